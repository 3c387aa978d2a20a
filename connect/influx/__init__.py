"""Points in InfluxDB's line protocol, over HTTP or from standard input, as JSON records of topics.

bytes -> points and bad lines (`lines`) -> topic, key and value of each point (`points`) -> batches on all replicas
(`sink`) -> the answer (`http`)
"""
