"""SELECTs over one topic without Spark: columns, expressions, conditions, simple aggregates, the newest records.

`syntax` parses a text into a tree, `typed` gives its expressions types and turns them into functions, `plan` says what
is read and which columns result, `scan` reads, `run` computes the results. `python -m barnabas.streams.select` answers
a request on standard input, for programs that want the work in its own process (`door`). With the argument `where`, it
finds the records that meet a condition, for the console (`where`).

Invariant: a query that is answered here gets Spark's answer: names, types and values. Whatever could mean something
else to Spark raises `NeedsSpark` with the reason, before any row is returned or when a value shows it (decision 59).
"""
