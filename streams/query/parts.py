"""The parts of a record that are columns of a query: their names and types, without Spark.

The names of a record's own parts begin with an underscore, so that they hide no column of the values.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

import pyarrow as pa

#: The parts of a record, with their Spark types.
PARTS = {
    "_key": "string",  # bytes that are not text pass through unchanged; CAST(_key AS BINARY) gives them as bytes
    "_value": "string",
    "_topic": "string",
    "_partition": "int",
    "_offset": "bigint",
    "_timestamp": "timestamp",
    "_headers": "array<struct<key: string, value: binary>>",
}
#: An unparsable record as it was, and why; and whether the row is the mark that its task has read everything.
UNREADABLE, END = "_unreadable", "_end"
#: The most columns that an unknown name is compared with; they are the topic's first ones.
_MOST_LIKENED = 1000
#: The same in Arrow types: `PART_FIELDS` are the parts, `_WAS` is the mark.
_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_TIME = pa.timestamp("us", tz="UTC")
PART_FIELDS = pa.schema(
    [
        pa.field("_key", pa.string()),
        pa.field("_value", pa.string()),
        pa.field("_topic", pa.string()),
        pa.field("_partition", pa.int32()),
        pa.field("_offset", pa.int64()),
        pa.field("_timestamp", _TIME),
        pa.field("_headers", _HEADERS),
    ]
)
_WAS = pa.struct(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp", _TIME),
        pa.field("headers", _HEADERS),
        pa.field("reason", pa.string()),
    ]
)


def arrow_rows(values: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Like `row_schema`, with Arrow types and without Spark."""
    always = {"_partition", "_offset"}
    wanted = [field for field in values if field.name in names]
    parts = [field for field in PART_FIELDS if field.name in names or field.name in always]
    return pa.schema([*wanted, *parts, pa.field(UNREADABLE, _WAS), pa.field(END, pa.bool_())])


def no_column(name: str, columns: Sequence[str], parts: Collection[str] = PARTS.keys()) -> str:
    """The message about a missing column; `columns` are the topic's own."""
    names = [*columns, *parts]
    near = difflib.get_close_matches(name.strip("`").lower(), [each.lower() for each in names[:_MOST_LIKENED]], n=1)
    meant = f"; did you mean {next(each for each in names if each.lower() == near[0])}?" if near else ""
    return f"there is no column {name}: a record of this topic has {', '.join(names)}{meant}"


def quoted(name: str) -> str:
    """A column's name as written in a schema."""
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"
