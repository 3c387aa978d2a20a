"""Reads the other topic of a stream's join, as a column beside those of the stream's own topic.

    JOIN ... WITHIN     the rows of both topics; those of the other one have nothing but this column
    JOIN with a table   the rows of the stream's topic, with the table's row for the record, or nothing

Each worker keeps the table: the latest value of each key, at least as new as a batch's offsets say. Compaction may
remove values that a repeated batch saw the first time. So a worker that reads a table from the beginning takes, for a
key that it does not find, the next value after these offsets. A value that does not fit the topic's schema counts as
missing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructField, StructType

from barnabas.streams.query.parts import PARTS
from barnabas.streams.query.reading import options_of
from barnabas.streams.source.names import CORRUPT
from barnabas.streams.source.rows import rows_of
from barnabas.streams.wal import LogDir, Planner, Split
from barnabas.streams.windows.limits import MAX_TABLE_BYTES
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.streams.plan import JoinedReads
from barnabas.wire.uuids import encode_uuid

#: The source's column for the other topic.
OTHER = "__other"
#: The beginning of the reason when a stream has stopped because of too large a table.
TABLE_OUTGROWN = "the table that it is joined with,"
# A key's overhead besides its bytes: a dict entry, and its row's number.
_KEY_BYTES = 130
# Replaced rows are dropped when there are more than this many rows for each key.
_MANY_NEW = 4


class Other(msgspec.Struct, frozen=True):
    """What is read from the other topic; for a table, also the stream's own column with its key."""

    reads: JoinedReads
    column: str = ""

    def encode(self) -> str:
        """The value of the source's option."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> Other | None:
        """The object that `encode` has written; None for an empty text."""
        return msgspec.json.decode(text, type=cls) if text else None


def other_schema(typed: StructType) -> StructType:
    """The columns of the other topic; `typed` are those of its values."""
    parts = StructType.fromDDL(
        ", ".join(f"{n} {kind}" for n, kind in PARTS.items() if n != "_value" or not typed.names)
    )
    assert isinstance(parts, StructType)
    corrupt = [StructField(CORRUPT, parts["_key"].dataType)] if typed.names else []
    return StructType([*typed.fields, *parts.fields, *corrupt])


class OtherRows:
    """Rows of the other topic, as values of a single column."""

    def __init__(self, other: Other, kind: pa.StructType) -> None:
        """`kind` is the column's type, with the fields of `other_schema`."""
        self.kind, self.reads, self.column = kind, other.reads, other.column
        self.name = f"{other.encode()} {kind}"
        is_typed = CORRUPT in kind.names
        fields = [field if is_typed else field.with_name(field.name.removeprefix("_")) for field in kind]
        self._rows = rows_of(options_of(other.reads.values), pa.schema(fields))

    def batches(self, split: Split) -> Iterator[pa.Array]:
        """The rows of a split. Raises WalError."""
        for batch in self._rows.batches(split):
            yield self._struct(batch)

    def pairs(self, split: Split) -> Iterator[tuple[list[bytes | None], list[bool], pa.Array]]:
        """Keys, whether each has a value, and rows. Raises WalError."""
        for found, made in self._rows.pairs(split, ("key", "value")):
            has_value = found.column("value").is_valid()
            if CORRUPT in self.kind.names:
                has_value = pc.and_(has_value, made.column(CORRUPT).is_null())
            yield found.column("key").to_pylist(), has_value.to_pylist(), self._struct(made)

    def _struct(self, batch: pa.RecordBatch) -> pa.Array:
        return pa.StructArray.from_arrays(batch.columns, fields=list(self.kind))


class Table:
    """The latest row of each key."""

    def __init__(self, path: str, bootstrap: str | None, rows: OtherRows) -> None:
        self._rows, self._log_dir = rows, LogDir(path, bootstrap=bootstrap)
        self._planner = Planner(self._log_dir, split_bytes=None, fail_on_data_loss=True)
        self._topic_id = _in_logs(rows.reads.source_id)
        self._at: dict[TopicPartition, int] = {}
        self._places: dict[bytes, int] = {}  # row numbers: first the old rows, then the new ones
        self._old: pa.Array = pa.nulls(0, rows.kind)
        self._new: list[pa.Array] = []
        self._key_bytes = 0

    def __len__(self) -> int:
        return len(self._places)

    def advance(self, ends: Mapping[int, int]) -> None:
        """Bring it at least to these offsets of its partitions. Raises WalError."""
        topic = self._rows.reads.source
        wanted = {(topic, number): end for number, end in ends.items()}
        is_new = not self._at
        self._read(wanted, only_unknown=False)
        self._at |= {key: max(end, self._at.get(key, 0)) for key, end in wanted.items()}
        if is_new:
            self._read({key: end for key, (_, end) in self._log_dir.ranges(wanted).items()}, only_unknown=True)

    def find(self, keys: pa.Array) -> pa.Array:
        """The rows for these binary keys; null where there is none."""
        self._together()
        places = self._places
        return self._old.take(pa.array([places.get(key) for key in keys.to_pylist()], pa.int64()))

    def _read(self, ends: Mapping[TopicPartition, int], *, only_unknown: bool) -> None:
        ranges = {key: (at, end) for key, end in ends.items() if (at := self._first(key, ends)) < end}
        for split in self._planner.plan(ranges):
            split = split._replace(topic_id=self._topic_id)
            for keys, has_value, rows in self._rows.pairs(split):
                self._take(keys, has_value, rows, only_unknown=only_unknown)
            self._check()

    def _first(self, key: TopicPartition, ends: Mapping[TopicPartition, int]) -> int:
        segments = self._log_dir.segments(key)
        return max(self._at.get(key, 0), segments[0].base_offset if segments else ends[key])

    def _take(self, keys: list[bytes | None], has_value: list[bool], rows: pa.Array, *, only_unknown: bool) -> None:
        places, first = self._places, len(self._old) + sum(map(len, self._new))
        for row, (key, is_there) in enumerate(zip(keys, has_value, strict=True)):
            if key is None or (only_unknown and key in places):
                continue
            if is_there:
                if key not in places:
                    self._key_bytes += len(key) + _KEY_BYTES
                places[key] = first + row
            elif places.pop(key, None) is not None:
                self._key_bytes -= len(key) + _KEY_BYTES
        self._new.append(rows)

    def _check(self) -> None:
        """Raises RuntimeError if the table is too large."""
        if self._size() > MAX_TABLE_BYTES:
            self._together(all_of_it=True)
        if self._size() > MAX_TABLE_BYTES:
            raise RuntimeError(
                f"{TABLE_OUTGROWN} {self._rows.reads.source}, has {len(self):,} keys and {self._size() >> 20} MiB, "
                f"more than {MAX_TABLE_BYTES >> 20} MiB: drop the stream, and join a smaller topic"
            )

    def _size(self) -> int:
        return int(self._old.nbytes) + sum(int(rows.nbytes) for rows in self._new) + self._key_bytes

    def _together(self, *, all_of_it: bool = False) -> None:
        """Merge the new rows into the old ones. Replaced rows are dropped if there are many."""
        if not self._new and not all_of_it:
            return
        self._old = pa.concat_arrays([self._old, *self._new])
        self._new = []
        if all_of_it or len(self._old) > _MANY_NEW * max(len(self._places), 1):
            self._old = self._old.take(pa.array(self._places.values(), pa.int64()))
            self._places = {key: number for number, key in enumerate(self._places)}


def _in_logs(topic_id: str) -> str:
    """A topic's id in the form of its logs; empty if there is none."""
    return encode_uuid(uuid.UUID(topic_id).bytes) if topic_id else ""
