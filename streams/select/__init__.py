"""SELECTs over one topic without Spark: columns, expressions, conditions, simple aggregates, the newest records.

`syntax` makes a tree of a text, `typed` gives its expressions types and makes functions of them, `plan` says what is
read and what comes out, `scan` reads, `run` makes the results. `python -m barnabas.streams.select` answers a request
on standard input, for programs that want the work in a process of its own.

Invariant: a query that is answered here gets Spark's answer: names, types and values. Whatever could mean something
else raises `NeedsSpark` with the reason, before rows are given or when a value shows it (decision 59).
"""
