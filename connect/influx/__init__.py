"""Points in InfluxDB's line protocol, over HTTP or from standard input, as JSON records of topics.

bytes -> points, and which lines are none (`lines`) -> topic, key and value of each (`points`) -> batches that all
replicas have (`sink`) -> the answer (`http`)
"""
