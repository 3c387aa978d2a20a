"""The formats that make typed columns out of a record's value."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from barnabas.streams.source import avro_values, csv_values, json_values, weight
from barnabas.streams.source.blocks import Parsed
from barnabas.streams.source.options import Options

#: From an array of binary values to a row for each, and the indexes of the malformed ones.
Parser = Callable[[pa.Array], Parsed]


def elements(options: Options, values: pa.Array, schema: pa.Schema) -> pa.Array | None:
    """The most bytes that each value's array elements take as columns; None if there are none."""
    if options.format == "json":
        return weight.elements_of_json(values, schema)
    if options.format == "avro":
        return avro_values.elements(values, schema, written=options.avro_schema)
    return None


def parser_of(options: Options, schema: pa.Schema) -> Parser:
    """A parser for columns of `schema`, which can be sent to workers. Raises WalError for unsupported types."""
    if options.format == "csv":
        csv_values.check_schema(schema)
        return partial(csv_values.parse_csv, schema=schema, separator=options.separator, null=options.null_value)
    if options.format == "avro":
        avro_values.check_schema(options.avro_schema, schema)
        return partial(avro_values.parse_avro, schema=schema, written=options.avro_schema, framing=options.avro_framing)
    json_values.check_schema(schema)
    return partial(json_values.parse_json, schema=schema)
