"""Group keys as text, so that a query's state has the same columns whatever its streams group by."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from barnabas.streams.encode.times import OBJECT, READ_TIMES

_NESTED = ("struct", "array", "map")


def key_text(column: Column, kind: str) -> Column:
    """A grouping value as a text from which it can be restored. Equal values have equal texts."""
    if kind in ("float", "double"):
        return F.when(column == 0, F.lit("0.0")).otherwise(column.cast("string"))  # there are two zeros
    if kind == "binary":
        return F.hex(column)
    if kind == "timestamp":
        return F.unix_micros(column).cast("string")
    if kind.startswith(_NESTED):
        return F.to_json(column, OBJECT)
    return column.cast("string")


def key_value(text: Column, kind: str) -> Column:
    """The value for a text."""
    if kind == "binary":
        return F.unhex(text)
    if kind == "timestamp":
        return F.timestamp_micros(text.cast("bigint"))
    if kind.startswith(_NESTED):
        return F.from_json(text, kind, READ_TIMES)
    return text.cast(kind)
