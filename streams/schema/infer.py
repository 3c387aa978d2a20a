"""Infers a schema from a sample of a topic's JSON values.

A value's type is an Arrow type, or `null` where nothing is known. The types of a field's values are merged into one
that fits all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from barnabas.streams.schema.ddl import ddl_text
from barnabas.streams.source.names import RESERVED
from barnabas.streams.wal import LogDir, Ranges, WalError, plan, read

_UNKNOWN = pa.null()
_BIGINT = range(-(2**63), 2**63)
_SPLIT_BYTES = 1 << 20
_MAX_DEPTH = 50


def infer_json(log_dir: LogDir, topic: str, *, sample: int = 10_000) -> str:
    """The schema text (Spark's DDL) of the JSON objects in a topic's values, from about `sample` records.

    Half of them are each partition's oldest records, half its newest. Integers mixed with other numbers become DOUBLE.
    A field that is always null, or has incompatible types, becomes STRING; times are texts, so they are STRING as well.
    Some fields are left out: those without content (`{}`), those that hide a record's own column (`_offset`), and the
    later of two that differ only in case, which Spark does not distinguish. Raises WalError for a topic without JSON
    objects.
    """
    found = pa.struct([])
    objects = values = 0
    for value in islice(_values(log_dir, topic, max(sample // 2, 1)), 2 * sample):
        values += 1
        try:
            parsed = json.loads(value)
            if isinstance(parsed, dict):
                found = _merge(found, _type_of(parsed))
                objects += 1
        except (ValueError, RecursionError):
            continue
    if not values:
        raise WalError(f"the topic {topic} has no values to infer a schema from: write some first, or state the schema")
    schema = pa.schema([field for field in _named(found) if field.name.lower() not in RESERVED])
    if not schema.names:
        what = "without fields" if objects else "that are no JSON objects"
        raise WalError(f"the topic {topic} has values {what}: read its column value, without format=json")
    return ddl_text(schema)


def _values(log_dir: LogDir, topic: str, half: int) -> Iterator[bytes]:
    """The `half` oldest and newest values, about equally many from each partition; null values are left out."""
    ranges = log_dir.ranges(log_dir.partitions(topic))
    filled = {key: (lo, hi) for key, (lo, hi) in ranges.items() if lo < hi}
    each = -(-half // max(len(filled), 1))
    for key, (lo, hi) in filled.items():
        yield from islice(_read(log_dir, {key: (lo, hi)}), each)
        yield from islice(_read(log_dir, {key: (max(lo, hi - each), hi)}), each)


def _read(log_dir: LogDir, ranges: Ranges) -> Iterator[bytes]:
    for split in plan(log_dir, ranges, split_bytes=_SPLIT_BYTES, fail_on_data_loss=False):
        for batch in read(split, ["value"], fail_on_data_loss=False):
            yield from (value.as_py() for value in batch.column("value") if value.is_valid)


def _type_of(value: Any, depth: int = 0) -> pa.DataType:
    """The type of a value. Raises ValueError if it is nested too deeply."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"more than {_MAX_DEPTH} levels")
    if value is None:
        return _UNKNOWN
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if value in _BIGINT else pa.float64()
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, list):
        element = _UNKNOWN
        for one in value:
            element = _merge(element, _type_of(one, depth + 1))
        return pa.list_(element)
    return pa.struct([pa.field(name, _type_of(one, depth + 1)) for name, one in value.items()])


def _merge(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that fits both types' values."""
    if one == other or other == _UNKNOWN:
        return one
    if one == _UNKNOWN:
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_merge(one.value_type, other.value_type))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = _merge(fields.get(field.name, _UNKNOWN), field.type)
        return pa.struct(list(fields.items()))
    return pa.string()


def _named(struct: pa.StructType) -> list[pa.Field]:
    """The fields as columns: an unknown type becomes a text, a field without content is left out."""
    found: dict[str, pa.Field] = {}
    for field in struct:
        kind = _settled(field.type)
        if kind is not None and field.name:
            found.setdefault(field.name.lower(), pa.field(field.name, kind))
    return list(found.values())


def _settled(kind: pa.DataType) -> pa.DataType | None:
    if kind == _UNKNOWN:
        return pa.string()
    if pa.types.is_list(kind):
        element = _settled(kind.value_type)
        return None if element is None else pa.list_(element)
    if pa.types.is_struct(kind):
        fields = _named(kind)
        return pa.struct(fields) if fields else None
    return kind
