"""What the broker measures of itself, and how a monitoring system reads it.

measures    a histogram
requests    requests, answers, errors and bytes, by API: endpoints that count
loop        how long the event loop is held
trace       requests as they come, for who looks
lag         how far consumer groups are behind, in records and in seconds
collector   all of it as families of metrics, when somebody asks
exposition  the families as text

What is measured on the way of a request is a plain number that somebody adds to. All else is looked up when it is
asked for. A broker that nobody watches measures nothing: `Metrics` is made only where metrics can be read.
"""
