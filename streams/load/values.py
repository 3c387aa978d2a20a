"""Typed columns as values of a topic, in its format; a reader of the topic gets the same columns back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from barnabas.streams.encode.objects import Column, can_write, objects
from barnabas.streams.schema.ddl import parse_ddl
from barnabas.streams.wal import WalError
from barnabas.wire.queries.keys import CSV_NULL, CSV_SEPARATOR, FORMAT, SCHEMA

_WRITTEN = ("json", "csv")


class Form(NamedTuple):
    """The form of a topic's values."""

    schema: pa.Schema
    format: str = "json"
    separator: str = ","
    null: str = ""


def form_of(topic: str, configs: Mapping[str, str]) -> Form | None:
    """The form of a topic's values, from its configuration; None if it has no columns. Raises WalError."""
    format_ = configs.get(FORMAT, "raw")
    if format_ == "raw" or not configs.get(SCHEMA):
        if format_ == "avro":
            raise WalError(f"the values of {topic} are Avro, which barnabas reads but does not write")
        return None
    if format_ not in _WRITTEN:
        raise WalError(f"the values of {topic} are {format_}, which barnabas reads but does not write")
    separator = configs.get(CSV_SEPARATOR, ",").replace("\\t", "\t")
    return Form(parse_ddl(configs[SCHEMA]), format_, separator, configs.get(CSV_NULL, ""))


def values_of(rows: pa.Table, form: Form) -> pa.Array:
    """A value for each row, as large_binary. `rows` has some or all of the form's columns; missing ones are null.

    Raises WalError for values that the format cannot hold.
    """
    columns = []
    for field in form.schema:
        there = field.name in rows.schema.names
        array = rows[field.name].combine_chunks() if there else pa.nulls(rows.num_rows, field.type)
        columns.append((field.name, array))
    if not rows.num_rows:
        return pa.array([], pa.large_binary())
    if form.format == "csv":
        return _csv([text_of(array) for _, array in columns], form)
    plain = [(name, _plain(array)) for name, array in columns]
    return objects(plain) if all(can_write(array.type) for _, array in plain) else _nested(plain)


def _plain(array: pa.Array) -> pa.Array:
    """Times, dates and decimals as texts that read back identically; small floats unchanged."""
    kind = array.type
    if pa.types.is_float32(kind):
        return array.cast(pa.float64())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_decimal(kind):
        return text_of(array)
    return array


def text_of(array: pa.Array) -> pa.Array:
    """A column as texts. Raises WalError for bytes, which may not be text."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        return pc.strftime(array, format="%Y-%m-%dT%H:%M:%SZ" if kind.tz else "%Y-%m-%dT%H:%M:%S")
    if pa.types.is_binary(kind):
        raise WalError("a column of type BINARY cannot be written: use STRING")
    return array.cast(pa.string())


def _nested(columns: list[Column]) -> pa.Array:
    """Objects that contain lists and structs, made one by one."""
    names = [name for name, _ in columns]
    lists = [array.to_pylist() for _, array in columns]
    encode = msgspec.json.Encoder(decimal_format="string").encode
    return pa.array([encode(dict(zip(names, row, strict=True))) for row in zip(*lists, strict=True)], pa.large_binary())


def _csv(columns: list[pa.Array], form: Form) -> pa.Array:
    """A line for each row, quoted where a field needs it. Raises WalError for a text that cannot be a field."""
    for array in columns:
        if pc.any(pc.match_substring_regex(array, "[\r\n]")).as_py():
            raise WalError("a text with an end of a line cannot be a field of a CSV value")
        if pc.any(pc.equal(array, form.null)).as_py():
            raise WalError(f"the text {form.null!r} stands for null in this topic's CSV values")
    filled = pa.table([array.fill_null(form.null) for array in columns], [str(n) for n in range(len(columns))])
    sink = pa.BufferOutputStream()
    needed = csv.WriteOptions(include_header=False, delimiter=form.separator, quoting_style="needed")
    csv.write_csv(filled, sink, needed)
    lines = sink.getvalue().to_pybytes().split(b"\n")[:-1]
    return pa.array(lines, pa.large_binary())
