"""From a split to the Arrow batches of a query's schema."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from functools import cache

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.streams.source.names import CORRUPT, META
from barnabas.streams.source.options import TYPED, Options
from barnabas.streams.source.typed import Parser, elements, parser_of
from barnabas.streams.source.weight import pieces, width
from barnabas.streams.source.where import Condition, mask
from barnabas.streams.wal import COLUMNS, Split, WalError, read

_BLOBS = ("key", "value")
_MICROS = pa.timestamp("us", "UTC")
_MAX_MILLIS = (2**63 - 1) // 1000


class Rows(msgspec.Struct, frozen=True):
    """How to make a query's rows: `target` is the query's schema, `source` the record's column for each field."""

    options: Options
    target: pa.Schema
    source: dict[str, str]
    parser: Parser | None  # in typed formats, for the fields that come from the value
    where: tuple[Condition, ...] = ()  # rows that do not meet these may be left out
    values: pa.Schema = pa.schema([])  # in typed formats, the columns that are parsed from the value

    def batches(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows of a split. Raises WalError for data loss, damage, or a malformed value under FAILFAST."""
        for _, made in self.pairs(split):
            if self.where:
                made = made.filter(mask(self.where, made))
            if made.num_rows:
                yield made

    def pairs(self, split: Split, also: Sequence[str] = ()) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """A split's records, with the needed columns and `also`, and their rows, whatever `where` says.

        Raises like `batches`.
        """
        _spare_the_collector()
        wanted = dict.fromkeys((*self.source.values(), *also))
        if self.parser:
            wanted |= {"value": None, "offset": None}
        for found in read(split, list(wanted), fail_on_data_loss=self.options.fail_on_data_loss):
            for piece in self._pieces(found):
                yield piece, self._typed(piece, split, self.parser) if self.parser else self._plain(piece)

    def _pieces(self, found: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if not self.parser:
            return iter((found,))
        weights = elements(self.options, found.column("value"), self.values)
        others = pa.schema([field for field in self.target if field.name in self.source or field.name == CORRUPT])
        return pieces(found, width(self.values) + width(others), weights)

    def _plain(self, found: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [converted(found.column(self.source[field.name]), field.type) for field in self.target]
        return pa.RecordBatch.from_arrays(arrays, schema=self.target)

    def _typed(self, found: pa.RecordBatch, split: Split, parser: Parser) -> pa.RecordBatch:
        values = found.column("value")
        parsed, bad = parser(values)
        if bad and self.options.mode == "FAILFAST":
            raise WalError(
                f"{split.topic}-{split.partition}: the value at offset {found.column('offset')[bad[0]]} does not fit "
                "the schema: set mode=PERMISSIVE or DROPMALFORMED, or correct the schema"
            )
        arrays = []
        malformed = pa.array([number in set(bad) for number in range(len(values))]) if bad else None
        for field in self.target:
            if field.name in self.source:
                arrays.append(converted(found.column(self.source[field.name]), field.type))
            elif field.name == CORRUPT:
                text = values.view(pa.string())
                none = pa.nulls(len(values), pa.string())
                arrays.append(none if malformed is None else pc.if_else(malformed, text, none))
            else:
                arrays.append(parsed[field.name].combine_chunks().cast(field.type))
        made = pa.RecordBatch.from_arrays(arrays, schema=self.target)
        if malformed is not None and self.options.mode == "DROPMALFORMED":
            return made.filter(pc.invert(malformed))
        return made


@cache
def _spare_the_collector() -> None:
    """Exclude everything loaded so far from garbage collection, once per process.

    Spark's workers collect all garbage after every task, which would otherwise visit every object of every module.
    """
    gc.freeze()


def rows_of(options: Options, target: pa.Schema, parsed: pa.Schema | None = None) -> Rows:
    """How to make rows of the schema `target`.

    In typed formats, `parsed` are the columns that a value must fit: the target's columns that come from the value, and
    others. Raises WalError for columns or types that do not exist.
    """
    source: dict[str, str] = {}
    values = []
    for field in target:
        if options.format not in TYPED:
            if field.name not in COLUMNS:
                raise WalError(
                    f"there is no column {field.name}: a record has {', '.join(COLUMNS)}; "
                    f"set format={', '.join(TYPED[:-1])} or {TYPED[-1]} for columns out of the value"
                )
            source[field.name] = field.name
        elif field.name in META:
            source[field.name] = META[field.name]
        elif field.name == CORRUPT:
            if field.type != pa.string():
                raise WalError(f"the column {CORRUPT} must be a string")
        else:
            values.append(field)
        name = source.get(field.name)
        if name is not None and not _converts(name, field.type):
            raise WalError(f"the column {field.name} of type {field.type} cannot be made of a record's {name}")
    read = pa.schema(values) if parsed is None else parsed
    parser = parser_of(options, read) if options.format in TYPED else None
    return Rows(options, target, source, parser, values=read)


def _converts(name: str, kind: pa.DataType) -> bool:
    if name in _BLOBS:
        return bool(kind in (pa.binary(), pa.string()))
    if name == "timestamp":
        return bool(kind in (_MICROS, pa.int64()))
    return bool(kind == COLUMNS[name])


def converted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Bytes become text unchecked, as in Spark's own cast; times that Spark cannot hold become null."""
    if array.type == kind:
        return array
    if pa.types.is_binary(array.type):
        return array.view(kind)
    if pa.types.is_timestamp(array.type) and kind == _MICROS:
        millis = array.cast(pa.int64())
        extremes = pc.min_max(millis)
        if extremes["max"].as_py() > _MAX_MILLIS or extremes["min"].as_py() < -_MAX_MILLIS:
            fits = pc.and_(pc.less_equal(millis, _MAX_MILLIS), pc.greater_equal(millis, -_MAX_MILLIS))
            millis = pc.if_else(fits, millis, pa.scalar(None, pa.int64()))
        return pc.multiply(millis, 1000).cast(kind)
    return array.cast(kind)
