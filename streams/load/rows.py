"""Turns the records of a text into rows for a topic: value, key and time of each, and which records are malformed."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.streams.load.text import Piece
from barnabas.streams.load.values import Form, text_of, values_of
from barnabas.streams.schema.ddl import type_text
from barnabas.streams.source.csv_values import parse_csv
from barnabas.streams.source.json_values import parse_json, why_malformed
from barnabas.streams.wal import WalError

#: In the list of a file's columns: this one is not for the topic.
LEFT_OUT = "-"


class Bad(NamedTuple):
    """A record that cannot become a row."""

    line: int
    why: str


class Rows(NamedTuple):
    """Rows, in the order of the text."""

    lines: list[int]
    values: pa.Array  # large_binary
    keys: pa.Array  # large_binary, null for no key
    times: pa.Array  # int64, ms since 1970, null if the row has none
    bad: list[Bad]


class Reader(Protocol):
    """Makes rows from records."""

    def rows(self, piece: Piece) -> Rows:
        """Raises WalError if the problem is not with a single record."""
        ...


class Picks(NamedTuple):
    """The columns for a record's key and timestamp; empty for none."""

    key: str = ""
    time: str = ""

    def check(self, schema: pa.Schema) -> None:
        """Raises WalError for a column that does not exist or is not a time."""
        for option, name in (("--key", self.key), ("--time", self.time)):
            if name and name not in schema.names:
                raise WalError(f"{option} {name}: the topic has no such column; it has {', '.join(schema.names)}")
        if self.key and pa.types.is_nested(schema.field(self.key).type):
            raise WalError(
                f"--key {self.key}: a column of type {type_text(schema.field(self.key).type)} cannot be the key"
            )
        if self.time and not (pa.types.is_timestamp(kind := schema.field(self.time).type) or kind == pa.int64()):
            raise WalError(f"--time {self.time}: expected a column of type TIMESTAMP, or BIGINT with ms since 1970")

    def keys(self, table: pa.Table) -> pa.Array:
        """The key of each row."""
        if not self.key:
            return pa.nulls(table.num_rows, pa.large_binary())
        return text_of(table[self.key].combine_chunks()).cast(pa.large_binary())

    def times(self, table: pa.Table) -> pa.Array:
        """The time of each row in ms."""
        if not self.time:
            return pa.nulls(table.num_rows, pa.int64())
        column = table[self.time].combine_chunks()
        if column.type == pa.int64():
            return column
        return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())


class CsvRows:
    """Reads CSV. The fields of a line are those of `columns`, in this order (RFC 4180)."""

    def __init__(self, form: Form, columns: Sequence[str], picks: Picks, *, separator: str, null: str) -> None:
        """Raises WalError for columns that the topic does not have."""
        names = [name for name in columns if name != LEFT_OUT]
        for name in names:
            if name not in form.schema.names:
                raise WalError(
                    f"the file has a column {name}, and the topic has not: name the columns with --columns, with - for "
                    f"one to leave out; the topic has {', '.join(form.schema.names)}"
                )
            if names.count(name) > 1:
                raise WalError(f"the file has two columns {name}: name them with --columns")
        picks.check(form.schema)
        for option, name in (("--key", picks.key), ("--time", picks.time)):
            if name and name not in names:
                raise WalError(f"{option} {name}: the file has no such column")
        for name in names:
            if pa.types.is_nested(form.schema.field(name).type):
                raise WalError(f"a field of CSV is one value, and the column {name} has several: load JSON lines")
        self._form, self._picks, self._separator, self._null = form, picks, separator, null
        self._schema = pa.schema(
            pa.field(f"{number} {LEFT_OUT}", pa.string()) if name == LEFT_OUT else form.schema.field(name)
            for number, name in enumerate(columns)
        )

    def rows(self, piece: Piece) -> Rows:
        """See `Reader`."""
        records = pa.array(piece.records, pa.binary())
        table, numbers = parse_csv(records, self._schema, separator=self._separator, null=self._null)
        bad = [Bad(piece.lines[number], self._why(piece.records[number])) for number in numbers]
        table, lines = _without(table, piece.lines, numbers)
        return Rows(lines, values_of(table, self._form), self._picks.keys(table), self._picks.times(table), bad)

    def _why(self, record: bytes) -> str:
        """Why a record is malformed, in one line."""
        try:
            text = record.decode()
        except UnicodeDecodeError:
            return "it is not UTF-8"
        if record.count(b'"') % 2:
            return "a quote is not closed"
        fields = next(csv.reader([text], delimiter=self._separator))
        if len(fields) != len(self._schema):
            return f"it has {len(fields)} fields, and there are {len(self._schema)} columns"
        for field, given in zip(self._schema, fields, strict=True):
            alone = pa.schema([field])
            quoted = '"' + given.replace('"', '""') + '"'
            if (
                given != self._null
                and parse_csv(
                    pa.array([quoted.encode()], pa.binary()), alone, separator=self._separator, null=self._null
                )[1]
            ):
                return f"{given[:60]!r} is not a valid {type_text(field.type)} (column {field.name})"
        return "it is not a line of CSV"


class JsonRows:
    """Reads one JSON object per line. If the topic's values are JSON, it becomes the value unchanged."""

    def __init__(self, form: Form | None, picks: Picks) -> None:
        """Without a form, any object is a row. Raises WalError."""
        self._form, self._picks = form, picks
        if form is not None:
            picks.check(form.schema)
        elif picks.time:
            raise WalError("--time needs a topic whose schema says what its columns are")

    def rows(self, piece: Piece) -> Rows:
        """See `Reader`."""
        values = pa.array(piece.records, pa.binary())
        if self._form is None:
            return self._untyped(piece)
        table, numbers = parse_json(values, self._form.schema)
        bad = [Bad(piece.lines[n], why_malformed(piece.records[n], self._form.schema)) for n in numbers]
        kept, lines = _without(table, piece.lines, numbers)
        if self._form.format == "json":
            given = _without(pa.table({"value": values.cast(pa.large_binary())}), piece.lines, numbers)[0]
            written = given["value"].combine_chunks()
        else:
            written = values_of(kept, self._form)
        return Rows(lines, written, self._picks.keys(kept), self._picks.times(kept), bad)

    def _untyped(self, piece: Piece) -> Rows:
        lines, values, keys, bad = [], [], [], []
        decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
        for line, record in zip(piece.lines, piece.records, strict=True):
            try:
                fields = decode(record)
                key = _key(fields[self._picks.key]) if self._picks.key in fields else None
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                bad.append(Bad(line, f"it is not a JSON object: {error}"))
                continue
            lines.append(line)
            values.append(record)
            keys.append(key)
        return Rows(
            lines,
            pa.array(values, pa.large_binary()),
            pa.array(keys, pa.large_binary()),
            pa.nulls(len(lines), pa.int64()),
            bad,
        )


def _key(raw: msgspec.Raw) -> bytes | None:
    """A text without its quotes; anything else unchanged."""
    value = msgspec.json.decode(raw)
    return value.encode() if isinstance(value, str) else None if value is None else bytes(raw)


def _without(table: pa.Table, lines: list[int], numbers: list[int]) -> tuple[pa.Table, list[int]]:
    """The rows without those to remove."""
    if not numbers:
        return table, lines
    bad = set(numbers)
    kept = [number for number in range(len(lines)) if number not in bad]
    return table.take(pa.array(kept, pa.int64())), [lines[number] for number in kept]


def header_of(record: bytes, separator: str) -> list[str]:
    """The column names in the first line of a CSV file. Raises WalError."""
    try:
        return [name.strip() for name in next(csv.reader([record.decode()], delimiter=separator))]
    except (UnicodeDecodeError, csv.Error, StopIteration):
        raise WalError("the first line does not name columns: name them with --columns") from None


def inferred(columns: Sequence[str], piece: Piece, *, separator: str, null: str) -> pa.Schema:
    """A schema inferred from the first records: integers, numbers, times, booleans, else texts. Raises WalError."""
    fields: list[pa.Field] = []
    texts = pa.schema(pa.field(str(number), pa.string()) for number in range(len(columns)))
    table, _ = parse_csv(pa.array(piece.records, pa.binary()), texts, separator=separator, null=null)
    for name, column in zip(columns, table.columns, strict=True):
        if name != LEFT_OUT:
            fields.append(pa.field(name, _kind(column.drop_null())))
    if not fields:
        raise WalError("there are no columns")
    return pa.schema(fields)


_KINDS = (
    (r"^-?(0|[1-9]\d{0,17})$", pa.int64()),
    (r"^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$", pa.float64()),
    (r"^(true|false)$", pa.bool_()),
    (r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:?\d\d)?$", pa.timestamp("us", "UTC")),
    (r"^\d{4}-\d\d-\d\d$", pa.date32()),
)


def _kind(texts: pa.ChunkedArray) -> pa.DataType:
    """The narrowest type that fits all texts. A number with a leading zero is a text, because it may be a code."""
    if len(texts):
        for pattern, kind in _KINDS:
            if pc.all(pc.match_substring_regex(texts, pattern)).as_py():
                return kind
    return pa.string()
