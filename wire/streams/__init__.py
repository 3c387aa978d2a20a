"""The agreements of broker, streams driver and command line about streams.

keys       the configuration keys of topics that hold a stream's results
plan       what the broker fixes when a stream is created
tokens     the words of a statement, with their positions
durations  10s, 5m, 500a
cursor     a text's tokens, one after the other
windows    the kinds of windows, and their clauses
clauses    the parser for a stream's text
"""
