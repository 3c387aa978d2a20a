"""The agreements of broker, streams driver and command line about query topics.

keys      topics' configuration keys, and names derived from a topic's name
plan      what the broker fixes when a query topic is created
messages  the messages of broker and driver in `__barnabas_queries`
writer    how the driver proves its identity
"""
