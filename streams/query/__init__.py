"""Query topics: a driver that runs SELECTs over topics and writes what comes out into other topics.

One tick of the driver, for all queries that read the same source and have come equally far:

    the broker says how far source and results are            definitions.py, driver.py
    the driver cuts the new part of the source into splits     streams.wal
    somebody runs the tasks: driver, workers or Spark          roads.py, inline.py, crew.py, job.py
        a task for each partition: segment files -> rows       scan.py
        -> the SELECTs of all the queries                      simple.py, evaluated.py; analysis.py (Catalyst)
        -> batches with the source's offsets -> the broker     direct.py, sink.py

There is no checkpoint: how far a query has come is where its topic ends. A batch must begin there, or the broker
refuses it; so whatever is repeated after a failure is written once.
"""
