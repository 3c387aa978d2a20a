"""How the values of a topic are read: its configuration, in the form that the `wal` source and its users need."""

from __future__ import annotations

from barnabas.streams.source.options import Options
from barnabas.wire.queries.plan import Values


def options_of(values: Values) -> Options:
    """Options for the `wal` source's own parsers."""
    return Options(
        path="",
        format=values.format,
        avro_schema=values.avro_schema,
        avro_framing=values.avro_framing,
        separator=values.separator,
        null_value=values.csv_null,
    )


def reader_options(values: Values) -> dict[str, str]:
    """Options for one of Spark's readers."""
    own = {
        "avro": {"avroSchema": values.avro_schema, "avroFraming": values.avro_framing},
        "csv": {"sep": values.separator, "nullValue": values.csv_null},
    }
    return {"format": values.format, **own.get(values.format, {})}
