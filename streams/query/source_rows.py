"""The columns that a query sees of its source.

A record's own parts go by names with an underscore. The columns of a topic with a schema are those of the schema,
parsed out of the value; a topic without one has none besides the parts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.reading import options_of
from barnabas.streams.source.typed import parser_of
from barnabas.streams.wal import WalError
from barnabas.wire.queries.keys import AVRO_SCHEMA
from barnabas.wire.queries.plan import Values

#: Parts of a record, with their Spark types.
PARTS = {
    "_key": "string",  # bytes that are no text pass through unchanged; CAST(_key AS BINARY) gives them as such
    "_value": "string",
    "_topic": "string",
    "_partition": "int",
    "_offset": "bigint",
    "_timestamp": "timestamp",
    "_headers": "array<struct<key: string, value: binary>>",
}
#: A record whose value could not be parsed, as it was, and why; and whether the row is no record, but says that a task
#: has read all.
UNREADABLE, END = "_unreadable", "_end"
#: Of a schema's text, which a client has set: characters, and types that have types.
_MAX_SCHEMA, _MAX_TYPES = 64 << 10, 500
_MARKS = {
    UNREADABLE: "struct<key: binary, value: binary, timestamp: timestamp, "
    f"headers: {PARTS['_headers']}, reason: string>",
    END: "boolean",
}


#: The same in Arrow's types.
_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_TIME = pa.timestamp("us", tz="UTC")
_PARTS = pa.schema(
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


def value_columns(values: Values) -> StructType:
    """The typed columns of a topic's values. Raises QueryError for a schema that does not parse or is not supported."""
    ddl = values.schema
    if values.format == "raw" or not ddl:
        return StructType([])
    if len(ddl) > _MAX_SCHEMA or ddl.count("<") > _MAX_TYPES:
        raise QueryError(f"the schema is too large: at most {_MAX_SCHEMA} characters and {_MAX_TYPES} types in others")
    try:
        schema = _columns(ddl)
    except QueryError:
        raise
    except Exception as error:
        raise QueryError(f"the schema {ddl!r} does not parse: {str(error).strip().splitlines()[0]}") from None
    hidden = [name for name in schema.names if name in PARTS or name in _MARKS]
    if hidden:
        raise QueryError(f"the schema has a column {hidden[0]}, which is the name of a part of a record")
    if any(isinstance(kind, StringType) and not kind.isUTF8BinaryCollation() for kind in _kinds(schema)):
        raise QueryError(f"the schema {ddl!r} has a collation: values have STRING columns without one")
    try:
        parser_of(options_of(values), arrow_schema(schema))
    except WalError as error:
        raise QueryError(str(error).replace("avroSchema", AVRO_SCHEMA)) from None
    return schema


def _kinds(kind: DataType) -> Iterator[DataType]:
    """A type, and all that are in it."""
    yield kind
    inner = {StructType: "fields", ArrayType: "elementType", StructField: "dataType"}.get(type(kind))
    found = getattr(kind, inner) if inner else []
    for one in found if isinstance(found, list) else [found]:
        yield from _kinds(one)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types that Spark expects of these columns."""
    return to_arrow_schema(schema, timezone="UTC")


def arrow_rows(values: pa.Schema, names: Collection[str]) -> pa.Schema:
    """As `row_schema`, in Arrow's types and without Spark."""
    always = {"_partition", "_offset"}
    wanted = [field for field in values if field.name in names]
    parts = [field for field in _PARTS if field.name in names or field.name in always]
    return pa.schema([*wanted, *parts, pa.field(UNREADABLE, _WAS), pa.field(END, pa.bool_())])


def row_schema(values: StructType, names: set[str] | None = None) -> StructType:
    """All columns that a query may name, or only `names`; the marks come last. What a task needs is always there."""
    always = {"_partition", "_offset"}
    parts = [f"{name} {kind}" for name, kind in PARTS.items() if names is None or name in names | always]
    marks = [f"{name} {kind}" for name, kind in _MARKS.items()]
    wanted = [field for field in values.fields if names is None or field.name in names]
    return StructType([*wanted, *_columns(", ".join([*parts, *marks])).fields])


def _columns(ddl: str) -> StructType:
    found = StructType.fromDDL(ddl)
    if not isinstance(found, StructType):
        raise QueryError(f"the schema {ddl!r} is one type, and no columns: write NAME TYPE, NAME TYPE")
    return found


def no_column(name: str, columns: Sequence[str]) -> str:
    """What is said of a column that is not there; a topic's own are `columns`."""
    return f"there is no column {name}: a record of this topic has {', '.join([*columns, *PARTS])}"


def quoted(name: str) -> str:
    """A column as a schema names it."""
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"
