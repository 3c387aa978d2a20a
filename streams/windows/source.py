"""The source of a stream: the `wal` source, and marks that close the windows of a quiet topic.

A mark is a row that has a time and nothing else. The driver writes the time into a file; the file's time is part of the
source's offset, so Spark's checkpoint says which mark a batch has, and a batch that is repeated has the same one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from barnabas.streams.source.batch import SplitPartition
from barnabas.streams.source.options import Options
from barnabas.streams.source.rows import Rows
from barnabas.streams.source.source import WalDataSource
from barnabas.streams.source.stream import StreamReader
from barnabas.streams.windows.plan import CLOSE

FORMAT = "barnabas-stream"
_FILE = "closefile"
#: The mark in an offset; it can be no topic's name.
_MARK, _AT = "#close", "at"


def write_mark(path: str, ms: int) -> None:
    """Have the windows up to this time closed. Raises OSError."""
    made = Path(f"{path}.new")
    made.write_text(str(ms))
    made.replace(path)


def read_mark(path: str) -> int:
    """The time of the last mark; 0 if there is none."""
    try:
        return int(Path(path).read_text())
    except (FileNotFoundError, ValueError):
        return 0


class StreamDataSource(WalDataSource):
    """The `wal` source with the option `closeFile`, and the column of the marks as the schema's last."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        given = dict(options)
        self._close_file = next((given.pop(name) for name in list(given) if name.lower() == _FILE), "")
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> MarkedReader:
        inner = StructType([field for field in schema.fields if field.name != CLOSE])
        return MarkedReader(self._options, self._rows(inner), self._close_file)


class MarkPartition(InputPartition):
    """A mark, as one task's work."""

    def __init__(self, ms: int) -> None:
        super().__init__(ms)
        self.ms = ms


class MarkedReader(StreamReader):
    """Offsets are those of the `wal` source, and the time of the last mark."""

    def __init__(self, options: Options, rows: Rows, close_file: str) -> None:
        super().__init__(options, rows)
        self._close_file = close_file
        kind = pa.timestamp("us", "UTC")
        self._schema = pa.schema([*rows.target, pa.field(CLOSE, kind)])

    def initialOffset(self) -> dict[str, Any]:
        return {**super().initialOffset(), _MARK: {_AT: 0}}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        plain, mark = _apart(start)
        latest = max(mark, read_mark(self._close_file))
        return {**super().latestOffset(plain, limit), _MARK: {_AT: latest}}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        (began, before), (ends, mark) = _apart(start), _apart(end)
        found: list[InputPartition] = list(super().partitions(began, ends))
        return [*found, MarkPartition(mark)] if mark > before else found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, MarkPartition):
            row = dict.fromkeys(self._schema.names) | {CLOSE: partition.ms * 1000}
            arrays = [
                pa.array([row[f.name]], pa.int64()).cast(f.type) if f.name == CLOSE else _blank(f) for f in self._schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            return
        assert isinstance(partition, SplitPartition)
        for batch in super().read(partition):
            none = pa.nulls(batch.num_rows, self._schema.field(CLOSE).type)
            yield pa.RecordBatch.from_arrays([*batch.columns, none], schema=self._schema)


def _blank(field: pa.Field) -> pa.Array:
    """One value of a column in a mark: nothing, or where nothing is not possible, a zero."""
    if field.nullable:
        return pa.nulls(1, field.type)
    return pa.array([0 if pa.types.is_integer(field.type) else ""], field.type)


def _apart(offset: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The source's own offset, and the mark's time."""
    plain = dict(offset)
    mark = plain.pop(_MARK, {}).get(_AT, 0)
    return plain, int(mark)


def checkpoint_dir(folder: str) -> str:
    """Where Spark keeps its own part of a stream's folder."""
    return os.path.join(folder, "checkpoint")
