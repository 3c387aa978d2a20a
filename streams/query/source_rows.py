"""The columns of its source that a query sees.

The names of a record's own parts begin with an underscore. A topic with a schema also has the schema's columns, parsed
from the value; a topic without a schema has only the parts.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.parts import END, PARTS, UNREADABLE
from barnabas.streams.query.reading import options_of
from barnabas.streams.source.typed import parser_of
from barnabas.streams.wal import WalError
from barnabas.wire.queries.keys import AVRO_SCHEMA
from barnabas.wire.queries.plan import Values

#: Limits of a schema's text, which a client has set: characters, and nested types.
_MAX_SCHEMA, _MAX_TYPES = 64 << 10, 500
_MARKS = {
    UNREADABLE: "struct<key: binary, value: binary, timestamp: timestamp, "
    f"headers: {PARTS['_headers']}, reason: string>",
    END: "boolean",
}


def value_columns(values: Values) -> StructType:
    """The typed columns of a topic's values. Raises QueryError for a schema that is invalid or not supported."""
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
    """A type, and all types inside it."""
    yield kind
    inner = {StructType: "fields", ArrayType: "elementType", StructField: "dataType"}.get(type(kind))
    found = getattr(kind, inner) if inner else []
    for one in found if isinstance(found, list) else [found]:
        yield from _kinds(one)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types that Spark expects of these columns."""
    return to_arrow_schema(schema, timezone="UTC")


def row_schema(values: StructType, names: set[str] | None = None) -> StructType:
    """All columns that a query may name, or only `names`; the marks come last. What a task needs is always included."""
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
