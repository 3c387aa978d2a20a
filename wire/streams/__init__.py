"""What the broker, the streams driver and the command line agree on about streams.

keys       the configuration keys of topics that hold a stream's results
plan       what the broker fixes when a stream is made
tokens     the words of a statement, with their places
durations  10s, 5m, 500a
cursor     a text's tokens, one after the other
windows    the kinds of windows, and their clauses
clauses    a stream's text, taken apart
"""
