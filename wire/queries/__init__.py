"""What the broker, the streams driver and the command line agree on about query topics.

keys      the configuration keys of topics, and the names that are made of a topic's
plan      what the broker fixes when a query topic is made
messages  what broker and driver say to each other in `__barnabas_queries`
writer    how the driver proves who it is
"""
