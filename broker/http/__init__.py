"""The HTTP listener: health, metrics, and what a console asks. It is there where `barnabas.http.listen` is set.

messages    a request, an answer, and who asks
server      HTTP/1.1 on trio: connections, and how many there may be
passwords   names and passwords of the broker's own users
visitors    who asks: the Host header, logins, sessions, and the token that changes need
listener    the parts put together, and who answers which path
"""
