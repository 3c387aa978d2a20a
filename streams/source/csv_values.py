"""CSV values to typed columns: each value is one line, and its fields are those of the schema in order."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from barnabas.streams.source.blocks import Parsed, in_blocks, without_nulls
from barnabas.streams.wal import WalError

_UTC = pa.timestamp("us", "UTC")
_LOCAL = pa.timestamp("us")
_HAS_ZONE = r"(?:Z|[+-]\d\d:?\d\d)$"


def check_schema(schema: pa.Schema) -> None:
    """Raises WalError for a type that a CSV field cannot have."""
    for field in schema:
        if pa.types.is_nested(field.type) or pa.types.is_null(field.type):
            raise WalError(f"format=csv has no type {field.type} (column {field.name}): a field is one value")


def parse_csv(values: pa.Array, schema: pa.Schema, *, separator: str, null: str) -> Parsed:
    """One row for each of the binary `values`, with the columns of `schema`; and the indexes of the malformed ones.

    A field that reads `null` is null. A value is malformed if it is not one line (with or without a line end), or has
    another number of fields, or a field that does not fit its column's type. A null value gives a row of nulls.
    """
    if not schema.names:
        return pa.table({}), []

    def parse(lines: Sequence[bytes]) -> pa.Table:
        return _parse(lines, schema, separator, null)

    def parse_there(there: pa.Array) -> Parsed:
        lines = [value.removesuffix(b"\n").removesuffix(b"\r") for value in there.to_pylist()]
        return in_blocks(lines, parse, schema)

    return without_nulls(values, parse_there)


def _parse(lines: Sequence[bytes], schema: pa.Schema, separator: str, null: str) -> pa.Table:
    """Parse lines. Raises ArrowInvalid unless each line is one record.

    An unclosed quote joins its line with the next one, so there are fewer rows than lines. A value with line ends in it
    could hide that, so it is parsed alone.
    """
    if not lines:
        return schema.empty_table()
    data = b"\n".join(lines) + b"\n"
    alone = len(lines) == 1
    if not alone and (data.count(b"\n") > len(lines) or b"\r" in data):
        raise pa.ArrowInvalid("a value of several lines")
    if len(schema) > 1 and b"" in lines:
        raise pa.ArrowInvalid("a line without fields, of which Arrow makes a row of nulls")
    table = csv.read_csv(
        pa.py_buffer(data),
        read_options=csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=schema.names),
        parse_options=csv.ParseOptions(delimiter=separator, newlines_in_values=alone, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(schema.names, pa.string()), null_values=[null], strings_can_be_null=True
        ),
    )
    if table.num_rows != len(lines):
        raise pa.ArrowInvalid(f"{table.num_rows} records instead of {len(lines)}")
    columns = [_converted(column, field.type) for column, field in zip(table.columns, schema, strict=True)]
    return pa.table(columns, schema=schema)


def _converted(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Convert texts. Raises ArrowInvalid for a text that does not fit the type. A time without a zone is UTC."""
    if kind != _UTC:
        return texts.cast(kind)
    has_zone = pc.match_substring_regex(texts, _HAS_ZONE)
    none = pa.scalar(None, pa.string())
    zoned = pc.if_else(has_zone, texts, none).cast(_UTC)
    others = pc.if_else(has_zone, none, texts).cast(_LOCAL)
    return pc.coalesce(zoned, pc.assume_timezone(others, "UTC"))
