"""Query topics: a driver that runs SELECTs over topics and writes the results into other topics.

One tick of the driver, for all queries that read the same source from the same offsets:

    the broker says where source and results end              definitions.py, driver.py
    the driver cuts the new part of the source into splits     streams.wal
    driver, workers or Spark run the tasks                     roads.py, inline.py, crew.py, job.py
        a task for each partition: segment files -> rows       scan.py
        -> the SELECTs of all the queries                      simple.py, evaluated.py; analysis.py (Catalyst)
        -> batches with the source's offsets -> the broker     direct.py, sink.py

There is no checkpoint: the end of a query's topic is its position. A batch must begin there, or the broker refuses it.
So a batch that is repeated after a failure is written only once.
"""
