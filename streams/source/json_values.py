"""JSON values to typed columns. A block is taken only if every line of it is one record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from barnabas.streams.source.blocks import Parsed, in_blocks, without_heavy
from barnabas.streams.source.plain_json import parse_plain
from barnabas.streams.source.weight import elements_of_json, too_heavy, why_too_heavy
from barnabas.streams.wal import WalError

_EMPTY = b"{}"


def check_schema(schema: pa.Schema) -> None:
    """Raises WalError for a type to which JSON values cannot be parsed."""
    for field in schema:
        try:
            _parse(_EMPTY + b"\n", pa.schema([field]), 1)
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise WalError(f"format=json has no type {field.type} (column {field.name}): {error}") from None


def parse_json(values: pa.Array, schema: pa.Schema) -> Parsed:
    """One row for each of the binary `values`, with the columns of `schema`; and the indexes of the malformed ones.

    A malformed value (not a JSON object, a field of another type, or too many elements for the memory limit) gives a
    row of nulls, and so does a null value.
    """
    return without_heavy(values, too_heavy(elements_of_json(values, schema)), lambda light: _parsed(light, schema))


def _parsed(values: pa.Array, schema: pa.Schema) -> Parsed:
    plain = parse_plain(values, schema)
    if plain is None or len(plain[1]) == len(values):
        return _parse_any(values, schema)
    table, left = plain
    if not left:
        return table, []
    rest, bad = _parse_any(values.take(pa.array(left)), schema)
    rows = list(range(len(values)))
    for at, row in enumerate(left):
        rows[row] = len(values) + at
    return pa.concat_tables([table, rest]).take(pa.array(rows)), [left[at] for at in bad]


def _parse_any(values: pa.Array, schema: pa.Schema) -> Parsed:
    """The same with Arrow's reader, for all of JSON and all types of columns."""
    whole = _lines(values)
    if whole is not None:
        with suppress(pa.ArrowInvalid):
            return _parse(whole, schema, len(values)), []

    def parse(lines: Sequence[bytes]) -> pa.Table:
        return _parse(b"\n".join(lines) + b"\n", schema, len(lines))

    lines = [_one_line(value) for value in values.to_pylist()]
    none = {number for number, line in enumerate(lines) if line is None}
    table, bad = in_blocks([line or _EMPTY for line in lines], parse, schema)
    return table, sorted(none.union(bad))


def why_malformed(value: bytes, schema: pa.Schema) -> str:
    """Why `parse_json` considers a value malformed, in one line."""
    weights = elements_of_json(pa.array([value], pa.binary()), schema)
    if weights is not None and too_heavy(weights):
        return why_too_heavy(weights[0].as_py())
    line = _one_line(value)
    if line is None:
        return "the value is not one JSON object"
    try:
        _parse(line + b"\n", schema, 1)
    except pa.ArrowInvalid as error:
        return str(error).splitlines()[0]
    return "the value does not fit the schema"


def _lines(values: pa.Array) -> pa.Buffer | None:
    """The values, one per line, if each begins an object on its line, so that no line can hold less than one record."""
    filled = values.fill_null(_EMPTY)
    one_list = pa.ListArray.from_arrays(pa.array([0, len(filled)], pa.int32()), filled)
    joined = pc.binary_join(one_list, b"\n")[0].as_py()
    begins = joined.count(b"\n{") + joined.startswith(b"{")
    if joined.count(b"\n") != len(values) - 1 or begins != len(values) or b"\0" in joined:
        return None
    return pa.py_buffer(joined)


def _one_line(value: bytes | None) -> bytes | None:
    """The same JSON object on one line; None if it is not an object."""
    if value is None:
        return _EMPTY
    if value.startswith(b"{") and b"\n" not in value and b"\0" not in value:
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return json.dumps(found).encode() if isinstance(found, dict) else None


def _parse(data: pa.Buffer | bytes, schema: pa.Schema, count: int) -> pa.Table:
    """Parse records. Raises ArrowInvalid unless `data` has exactly `count` of them."""
    read_as = pa.schema([pa.field(field.name, _read_as(field.type)) for field in schema])
    table = arrow_json.read_json(
        pa.BufferReader(data),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=arrow_json.ParseOptions(explicit_schema=read_as, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != count:
        raise pa.ArrowInvalid(f"{table.num_rows} records instead of {count}")
    columns = [
        table[field.name] if field.type == read.type else table[field.name].cast(field.type, safe=False)
        for field, read in zip(schema, read_as, strict=True)
    ]
    return pa.table(columns, schema=pa.schema([pa.field(f.name, f.type) for f in schema])) if columns else table


def _read_as(kind: pa.DataType) -> pa.DataType:
    """Arrow's reader does not know dates: they are read as times, and then lose the time of day."""
    if pa.types.is_date32(kind):
        return pa.timestamp("s")
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_read_as(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_read_as(field.type)) for field in kind])
    return kind
