"""Query topics: a driver that runs SELECTs over topics and writes what comes out into other topics.

One tick of the driver, for all queries that read the same source and have come equally far:

    the broker says how far source and results are            definitions.py, driver.py
    the driver cuts the new part of the source into splits     streams.wal
    a Spark task per partition: segment files -> rows          scan.py
        -> the SELECTs of all the queries (Catalyst)           analysis.py, job.py
        -> batches with the source's offsets -> the broker     sink.py

There is no checkpoint: how far a query has come is where its topic ends. A batch must begin there, or the broker
refuses it; so whatever is repeated after a failure is written once.
"""
