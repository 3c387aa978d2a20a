"""Avro values to typed columns: each value is one datum whose writer schema is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.streams.source.blocks import Parsed, in_blocks, without_heavy, without_nulls
from barnabas.streams.source.weight import element_width, too_heavy
from barnabas.streams.wal import WalError
from barnabas.wire.text import SPARK_REMEDY

# The prefix that Confluent's serializers write before each datum: a zero byte, and the id of a schema.
_CONFLUENT_BYTES = 5
_NO_ITEM = 1 << 30
# For each Avro type or logical type, the columns that can hold it. Other logical types count as their base types.
_FITS: dict[str, tuple[pa.DataType, ...]] = {
    "boolean": (pa.bool_(),),
    "int": (pa.int32(), pa.int64(), pa.float64()),
    "long": (pa.int64(),),
    "float": (pa.float32(), pa.float64()),
    "double": (pa.float64(),),
    "string": (pa.string(),),
    "enum": (pa.string(),),
    "bytes": (pa.binary(),),
    "fixed": (pa.binary(),),
    "date": (pa.date32(),),
    "timestamp-millis": (pa.timestamp("us", "UTC"),),
    "timestamp-micros": (pa.timestamp("us", "UTC"),),
    "local-timestamp-millis": (pa.timestamp("us"),),
    "local-timestamp-micros": (pa.timestamp("us"),),
}


def check_schema(written: str, schema: pa.Schema) -> None:
    """Raises WalError unless `written` (JSON) is the schema of a record with the columns of `schema`."""
    found = _loaded(written)
    if not isinstance(found, dict) or found.get("type") != "record":
        raise WalError("avroSchema is not the schema of a record: a value's fields become the columns")
    named = found.get("__named_schemas", {})
    _check(found, pa.struct(list(schema)), "", named)
    if _least_item(found, named, frozenset()) < 1:
        raise WalError("avroSchema has an array whose elements take no bytes: any number of them takes none")


def elements(values: pa.Array, schema: pa.Schema, *, written: str) -> pa.Array | None:
    """The most bytes that each value's array elements take as columns; None if no array has structs.

    Each element takes at least one byte of its own (`check_schema`).
    """
    each = element_width(schema)
    if not each:
        return None
    least = _least_item(_loaded(written), _loaded(written).get("__named_schemas", {}), frozenset())
    lengths = pc.binary_length(values).cast(pa.int64()).fill_null(0)
    return pc.multiply(pc.divide(lengths, max(least, 1)), each)


def _least_item(written: Any, named: Mapping[str, Any], inside: frozenset[str]) -> int:
    """The size of the smallest element that any array of a schema may have; a large number if there are no arrays."""
    if isinstance(written, list):
        return min((_least_item(one, named, inside) for one in written), default=_NO_ITEM)
    if isinstance(written, str):
        if written in inside or written not in named:
            return _NO_ITEM
        return _least_item(named[written], named, inside | {written})
    avro = written["type"]
    if avro == "record":
        inside |= {written["name"]}
        return min((_least_item(field["type"], named, inside) for field in written.get("fields", ())), default=_NO_ITEM)
    if avro in ("array", "map"):
        of = written["items" if avro == "array" else "values"]
        item = _least(of, named, inside) + int(avro == "map")  # a name has a length byte
        return min(item, _least_item(of, named, inside))
    return _least_item(avro, named, inside) if isinstance(avro, dict | list) else _NO_ITEM


def _least(written: Any, named: Mapping[str, Any], inside: frozenset[str]) -> int:
    """The size of the smallest datum of a schema."""
    if isinstance(written, list):
        return 1  # the branch number
    if isinstance(written, str):
        if written in inside:
            return _NO_ITEM  # a record that contains itself without end
        return _least(named[written], named, inside | {written}) if written in named else int(written != "null")
    avro = written["type"]
    if avro == "record":
        inside |= {written["name"]}
        return sum(_least(field["type"], named, inside) for field in written.get("fields", ()))
    if avro == "fixed":
        return int(written["size"])
    return _least(avro, named, inside) if isinstance(avro, dict | list) else 1 if avro != "null" else 0


def parse_avro(values: pa.Array, schema: pa.Schema, *, written: str, framing: str) -> Parsed:
    """One row for each of the binary `values`, with the columns of `schema`; and the indexes of the malformed ones.

    A value is malformed if it is not exactly one datum of the schema `written` after its framing, or if its column
    cannot hold it. A null value gives a row of nulls.
    """
    from fastavro import schemaless_reader

    skip = _CONFLUENT_BYTES if framing == "confluent" else 0
    datum = _loaded(written)

    def parse(items: Sequence[bytes]) -> pa.Table:
        rows = [_datum(item, datum, skip, schemaless_reader) for item in items]
        try:
            columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
        except (pa.ArrowTypeError, OverflowError) as error:
            raise pa.ArrowInvalid(str(error)) from None
        return pa.table(columns, schema=schema)

    def parse_light(light: pa.Array) -> Parsed:
        return without_nulls(light, lambda there: in_blocks(there.to_pylist(), parse, schema))

    return without_heavy(values, too_heavy(elements(values, schema, written=written)), parse_light)


@cache
def _loaded(written: str) -> Any:
    """The schema in fastavro's form. Raises WalError."""
    try:
        from fastavro import parse_schema
    except ModuleNotFoundError:
        raise WalError(f"format=avro needs fastavro: {SPARK_REMEDY}") from None
    try:
        return parse_schema(_cleaned(json.loads(written)))
    except Exception as error:  # fastavro raises arbitrary errors
        raise WalError(f"avroSchema is not an Avro schema: {error!r}") from None


def _cleaned(node: Any) -> Any:
    """A schema without logical types that no column has, such as times of day and UUIDs."""
    if isinstance(node, list):
        return [_cleaned(one) for one in node]
    if isinstance(node, dict):
        known = node.get("logicalType") == "decimal" or node.get("logicalType") in _FITS
        return {name: _cleaned(one) for name, one in node.items() if name != "logicalType" or known}
    return node


def _check(written: Any, kind: pa.DataType, name: str, named: Mapping[str, Any]) -> None:
    """Raises WalError unless everything that `written` allows fits a column of type `kind`; null always fits."""
    if isinstance(written, list):
        for one in written:
            _check(one, kind, name, named)
        return
    if isinstance(written, str):
        written = named.get(written, {"type": written})
    avro = written["type"]
    if isinstance(avro, dict | list):
        _check(avro, kind, name, named)
    elif avro == "record" and pa.types.is_struct(kind):
        fields = {field["name"]: field["type"] for field in written.get("fields", ())}
        for field in kind:
            if field.name not in fields:
                raise WalError(
                    f"avroSchema has no field {field.name}{name and f' in {name}'}: it has {', '.join(fields)}"
                )
            _check(fields[field.name], field.type, field.name, named)
    elif avro == "array" and pa.types.is_list(kind):
        _check(written["items"], kind.value_type, name, named)
    elif written.get("logicalType") == "decimal" and pa.types.is_decimal(kind):
        if kind.scale != written.get("scale", 0) or kind.precision < written["precision"]:
            raise WalError(f"the column {name} needs DECIMAL({written['precision']},{written.get('scale', 0)})")
    elif avro != "null" and kind not in _FITS.get(written.get("logicalType", avro), ()):
        raise WalError(f"the column {name} of type {kind} cannot hold Avro's {written.get('logicalType', avro)}")


def _datum(value: bytes, written: Any, skip: int, read: Callable[[BytesIO, Any, None], Any]) -> dict[str, Any]:
    """Read a datum. Raises ArrowInvalid unless the value is exactly one datum."""
    if skip and value[:1] != b"\0":
        raise pa.ArrowInvalid("a value without the zero byte of its framing")
    data = BytesIO(value[skip:])
    try:
        found: dict[str, Any] = read(data, written, None)
    except Exception as error:  # for damaged bytes, fastavro raises arbitrary errors
        raise pa.ArrowInvalid(repr(error)) from None
    if data.read(1):
        raise pa.ArrowInvalid("bytes after the datum")
    return found
