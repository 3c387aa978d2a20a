"""The rows of a query's source, as Spark's frames."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.parts import PARTS
from barnabas.streams.query.reading import reader_options
from barnabas.streams.query.source_rows import value_columns
from barnabas.streams.source.names import CORRUPT
from barnabas.streams.source.offsets import to_wire
from barnabas.streams.windows.checkpoint import Folder
from barnabas.streams.windows.due import Rule
from barnabas.streams.windows.limits import MAX_BATCH_BYTES
from barnabas.streams.windows.others import Other
from barnabas.streams.windows.plan import source_schema
from barnabas.streams.windows.reading import Reading
from barnabas.streams.windows.source import FORMAT
from barnabas.streams.windows.watched import CLOSE
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.streams.joins import Join
from barnabas.wire.streams.plan import StreamPlan
from barnabas.wire.streams.windows import Interval


def source_frame(
    session: SparkSession,
    data_dir: str,
    server: str,
    plan: StreamPlan,
    folder: Folder,
    *,
    batch_bytes: int = MAX_BATCH_BYTES,
    rate: int = 0,
    period: Interval | None = None,
    join: Join | None = None,
    reading: Reading | None = None,
    rule: Rule = Rule(),  # noqa: B008  (frozen)
) -> DataFrame:
    """The rows of a query's source, from where the query begins; with `period`, also the time when each is read.

    They have all columns, or those of `reading`. `rule` decides when there is a batch. Raises QueryError.
    """
    schema = source_schema(plan.values, plan.joined, by_clock=period is not None)
    if reading is not None:
        schema = reading.read
    joined = plan.joined
    options = {
        "path": data_dir,
        "topics": plan.source if joined is None or joined.is_table else f"{plan.source},{joined.source}",
        "bootstrap.servers": server,
        "startingOffsets": json.dumps(to_wire(plan.begins_at)),
        "maxBytesPerTrigger": str(batch_bytes),
        "failOnDataLoss": "false",
        "closeFile": folder.close_file,
        "holdFile": folder.hold_file,
        "replayFile": folder.replay_file,
        "foreseeFile": folder.foresee_file,
        "bytesPerSecond": str(rate),
        "rule": rule.encode(),
        "period": f"{period.length_ms},{period.offset_ms}" if period is not None else "",
        "joined": Other(joined, _read_name(schema, join.keys[0][0])).encode() if joined is not None and join else "",
    }
    more, read = _format(schema, plan)
    options |= more
    if CORRUPT in schema.names and reading is not None:
        options |= {"parsed": value_columns(plan.values).json(), "panes": reading.panes_option}
    if not os.path.isdir(data_dir):
        raise QueryError(f"there is no folder {data_dir}")
    return session.readStream.format(FORMAT).options(**options).schema(read).load().toDF(*schema.names)


def log_frame(
    session: SparkSession,
    data_dir: str,
    server: str,
    plan: StreamPlan,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> DataFrame:
    """The records between these offsets in the source of a query without a join, with all columns."""
    schema = source_schema(plan.values)
    options, read = _format(schema, plan)
    options |= {
        "path": data_dir,
        "topics": plan.source,
        "bootstrap.servers": server,
        "startingOffsets": json.dumps(to_wire(starts)),
        "endingOffsets": json.dumps(to_wire(ends)),
        "failOnDataLoss": "false",
    }
    records = StructType([field for field in read.fields if field.name != CLOSE])
    frame = session.read.format(FORMAT).options(**options).schema(records).load()
    return frame.withColumn(CLOSE, F.lit(None).cast("timestamp")).toDF(*schema.names)


def _format(schema: StructType, plan: StreamPlan) -> tuple[dict[str, str], StructType]:
    """How to read the values, and the columns as the source has them."""
    if CORRUPT in schema.names:
        return reader_options(plan.values), schema
    read = StructType([StructField(_read_name(schema, field.name), field.dataType) for field in schema.fields])
    return {"includeHeaders": "true"}, read


def _read_name(schema: StructType, name: str) -> str:
    """The source's name of a column, in any spelling. Without a schema, a record's parts have no underscore."""
    found = {known.lower(): known for known in schema.names}.get(name.lower(), name)
    return found[1:] if found in PARTS and CORRUPT not in schema.names else found
