"""The views of the console, one file for each: from an HTTP request to an answer in JSON.

Each function asks on behalf of the visitor (`broker.http.asking`). It answers with a page: a limited number of rows,
and the start of the next page.
"""
