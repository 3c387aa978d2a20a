"""Schemas of typed columns in Spark's notation, without a JVM: checked, and inferred from a topic's records.

ddl = infer_json(LogDir("/var/lib/barnabas"), "readings")     # "device STRING, temp DOUBLE"
spark.read.format("wal").options(topic="readings", format="json").schema(ddl)
"""

from __future__ import annotations

from barnabas.streams.schema.ddl import check_ddl, parse_ddl
from barnabas.streams.schema.infer import infer_json
from barnabas.streams.wal import WalError

__all__ = ["WalError", "check_ddl", "infer_json", "parse_ddl"]
