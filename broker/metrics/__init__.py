"""The broker's metrics, and how a monitoring system reads them.

measures    a histogram
requests    requests, answers, errors and bytes, by API: endpoints that count
loop        how long the event loop is held
trace       requests as they come, for watchers
lag         how far consumer groups are behind, in records and in seconds
collector   all of it as families of metrics, on request
exposition  the families as text

Measures on the path of a request are plain numbers that are added to. Everything else is looked up on request. A broker
without a reader measures nothing: `Metrics` is made only where metrics can be read.
"""
