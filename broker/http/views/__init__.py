"""What the console shows, one file for each of its views: from a request over HTTP to an answer in JSON.

Each function asks as the visitor (`broker.http.asking`) and answers a page: so many rows, and where the next begins.
"""
