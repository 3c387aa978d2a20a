"""The HTTP listener: health, metrics and the web console. It exists if `barnabas.http.listen` is set.

messages    a request, an answer, and the visitor who asks
server      HTTP/1.1 on trio: connections, and a bound on their number
passwords   names and passwords of the broker's own users
visitors    who asks: the Host header, logins, sessions, and the token that changes need
listener    the parts put together, and the handler of each path
console     the web console: the view for each path
asking      a visitor as a client in memory
views       what the console shows and changes
pages       the files of the console's page, which are in static
"""
