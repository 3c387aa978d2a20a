"""The folder that an export writes: its one writer, the names of its files, and how a file gets its name."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyarrow import parquet

from barnabas.streams.wal import WalError
from barnabas.wire.aliases import TopicPartition

_MARKER = "_barnabas_export.json"
_TEMPORARY = ".tmp"
_NAME = re.compile(r"(\d{20})-(\d{20})\.parquet")
_ROW_GROUP_BYTES = 32 << 20
# A key in each Parquet file's metadata.
_TOPIC_ID = b"barnabas.topic.id"


class Span(NamedTuple):
    """The offsets that a file stands for, both inclusive. Not every one of them needs to have a record."""

    first: int
    last: int


@contextmanager
def claim(to: Path, marks: Mapping[str, str]) -> Iterator[None]:
    """Create the folder, or continue one with the same marks. It is locked until the context ends. Raises WalError."""
    with ExitStack() as stack:
        try:
            to.mkdir(parents=True, exist_ok=True)
            stack.callback(os.close, _lock(to, wait=False))
            _mark(to, marks)
        except BlockingIOError:
            raise WalError(f"another export writes to {to} now: wait until it ends, or take another folder") from None
        except OSError as error:
            raise WalError(f"cannot write to {to}: {error.strerror or error}") from None
        yield


def _mark(to: Path, marks: Mapping[str, str]) -> None:
    marker = to / _MARKER
    if marker.exists():
        try:
            found = json.loads(marker.read_bytes())
            different = [name for name in marks if found[name] != marks[name]]
        except (ValueError, TypeError, KeyError):
            raise WalError(f"{marker} is damaged: take another folder") from None
        if different:
            name = different[0]
            raise WalError(
                f"{to} holds an export with {name} {found[name] or 'none'}, this one has {marks[name] or 'none'}: "
                "take another folder"
            )
        return
    if any(not one.name.startswith(".") for one in to.iterdir()):
        raise WalError(f"{to} has files that are no export's: take an empty folder")
    temporary = to / f".{_MARKER}{_TEMPORARY}"
    temporary.write_text(json.dumps(dict(marks), indent=1))
    _publish(temporary, marker)


def partition_folder(to: Path, key: TopicPartition) -> Path:
    """The folder for a partition's files. Spark reads `topic` and `partition` as columns from this path."""
    return to / f"topic={key[0]}" / f"partition={key[1]}"


@contextmanager
def opened(to: Path, key: TopicPartition) -> Iterator[Path]:
    """The folder of a partition, created if needed, and cleared of a killed run's incomplete files.

    It is locked meanwhile. A worker may outlive its killed run by a moment, and is waited for.
    """
    folder = partition_folder(to, key)
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _sync(folder.parent)
        _sync(to)
    held = _lock(folder, wait=True)
    try:
        for one in folder.iterdir():
            if one.name.endswith(_TEMPORARY):
                one.unlink()
        yield folder
    finally:
        os.close(held)


def finished(folder: Path) -> dict[Span, Path]:
    """The complete files of a partition, in order; empty if there is no folder."""
    found = {}
    try:
        for one in folder.iterdir():
            match = _NAME.fullmatch(one.name)
            if match:
                found[Span(int(match[1]), int(match[2]))] = one
    except FileNotFoundError:
        pass
    return dict(sorted(found.items()))


def position(folder: Path) -> int | None:
    """The offset after the last exported one; None if there is none."""
    spans = finished(folder)
    return max(span.last for span in spans) + 1 if spans else None


def exported_topic_id(folder: Path) -> str:
    """The id of the topic in the last file; empty without a file, or if the file does not say.

    Raises WalError if the file cannot be read.
    """
    files = list(finished(folder).values())
    if not files:
        return ""
    try:
        metadata: Mapping[bytes, bytes] = parquet.read_schema(files[-1]).metadata or {}
    except (OSError, pa.ArrowInvalid) as error:
        reason = str(error).splitlines()[0]
        raise WalError(f"{files[-1]} cannot be read ({reason}): delete it, and the export writes it again") from None
    return metadata.get(_TOPIC_ID, b"").decode()


class ParquetFile:
    """An unfinished file, temporary until `finish`. Rows are buffered until they make a row group."""

    def __init__(self, folder: Path, schema: pa.Schema, first: int, topic_id: str) -> None:
        self.rows = 0
        self._folder, self._first = folder, first
        self._schema = schema = schema.with_metadata({**(schema.metadata or {}), _TOPIC_ID: topic_id})
        self._path = folder / f".{first:020}{_TEMPORARY}"
        self._writer = parquet.ParquetWriter(self._path, schema, compression="zstd")
        self._held: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self.rows += batch.num_rows
        self._held.append(batch)
        if sum(one.nbytes for one in self._held) >= _ROW_GROUP_BYTES:
            self._flush()

    def finish(self, last: int) -> int:
        """Put the file on disk under its final name, for the offsets up to `last`. Returns its size in bytes."""
        self._flush()
        self._writer.close()
        size = self._path.stat().st_size
        _publish(self._path, self._folder / f"{self._first:020}-{last:020}.parquet")
        return size

    def close(self) -> None:
        """Close the file, complete or not."""
        self._writer.close()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, self._schema), row_group_size=self.rows)
            self._held = []


def _publish(temporary: Path, name: Path) -> None:
    """Give a file its final name once its bytes are on disk."""
    _sync(temporary)
    temporary.rename(name)
    _sync(name.parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _lock(folder: Path, *, wait: bool) -> int:
    """A descriptor that locks a folder exclusively until it is closed or its process ends.

    Without `wait`, raises BlockingIOError if the folder is locked.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(fd)
        raise
    return fd
