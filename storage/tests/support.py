"""Batches, vnodes and failing disks for the tests of storage."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from barnabas.storage.config import LogConfig
from barnabas.storage.errors import StorageError
from barnabas.storage.files import FileCache
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.recovery import recover_partition
from barnabas.storage.report import Tell, tell_logging
from barnabas.wire import batch
from barnabas.wire.aliases import BytesLike
from barnabas.wire.batch import Record

NOW = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
SMALL = LogConfig(segment_bytes=700, index_interval_bytes=100)
PAGE_CACHE = LogConfig(segment_bytes=700, index_interval_bytes=100, flush_messages=2**62)


def records(*values: bytes, timestamp: int = NOW) -> list[Record]:
    return [Record(b"k", value, timestamp) for value in values]


def one(*values: bytes, timestamp: int = NOW) -> bytes:
    return batch.build_batch(records(*values, timestamp=timestamp))


def produced(sequence: int, *, count: int = 1, epoch: int = 0, producer_id: int = 7, timestamp: int = NOW) -> bytes:
    """A batch of an idempotent producer."""
    values = [b"%d" % number for number in range(sequence, sequence + count)]
    return batch.build_batch(
        records(*values, timestamp=timestamp), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def vnode_at(
    path: Path,
    config: LogConfig = SMALL,
    *,
    io: Io | None = None,
    limit: int = 64,
    start: int = 0,
    tell: Tell = tell_logging,
) -> LocalVnode:
    """A vnode over the folder `path`, which may hold one already."""
    io = io or Io()
    cache = FileCache(io, limit)
    return LocalVnode(str(path), "t", 0, config, io=io, cache=cache, log_start_offset=start, tell=tell)


def created(path: Path, config: LogConfig = SMALL, *, io: Io | None = None, limit: int = 64) -> LocalVnode:
    vnode = vnode_at(path, config, io=io, limit=limit)
    vnode.create(TOPIC_ID)
    return vnode


def recovered(path: Path, config: LogConfig = SMALL, *, recovery_point: int = 0, start: int = 0) -> LocalVnode:
    """The vnode after recovery, as the next start after a crash has it."""
    recover_partition(Io(), str(path), recovery_point, config)
    return vnode_at(path, config, start=start)


def read_all(vnode: LocalVnode, start: int | None = None, max_bytes: int = 300) -> list[Record]:
    """Everything readable, as a consumer gets it: request by request."""
    offset = vnode.log_start_offset if start is None else start
    found: list[Record] = []
    while (result := vnode.read(offset, max_bytes)).slice is not None:
        data = result.slice.read()
        seen = 0
        for header, view in batch.iter_batches(data):
            batch.check(view)
            seen += header.size_in_bytes
            found += [record for record in batch.iter_records(view) if record.offset >= offset]
            offset = header.last_offset + 1
        assert seen == len(data), "the range ends inside a batch"
    return found


def values_of(vnode: LocalVnode) -> list[bytes | None]:
    return [record.value for record in read_all(vnode)]


def flush_alone(vnode: LocalVnode) -> None:
    """Flush as the flusher does for a vnode that is written again and again: with room for the next appends."""
    job = vnode.begin_flush()
    if job is None:
        return
    vnode.reserve(job)
    try:
        job.run()
    except OSError as error:
        vnode.end_flush(job, error)
        raise StorageError("flush failed") from error
    vnode.end_flush(job)


class RecordedEvents:
    """The events that storage has reported, as (event, fields)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def __call__(self, event: str, /, **fields: object) -> None:
        self.events.append((event, fields))

    def named(self, event: str) -> list[dict[str, object]]:
        return [fields for name, fields in self.events if name == event]


class CrashError(BaseException):
    """The process is gone: nothing catches this but the test."""


class FaultyIo(Io):
    """Fails the `at`-th call that changes the disk, in the way that `kind` says:

    `eio`, `enospc`: with that error, once. `short`: half of a write, then the disk is full. `before`, `after`, `torn`:
    the process dies before the call, after it, or (a write) in its middle.
    """

    def __init__(self, at: int, kind: str) -> None:
        self.at = at
        self.kind = kind
        self.calls = 0
        self.dead = False
        self.full = False

    def _change(self, act: Callable[[], int | None], half: Callable[[], object] | None = None) -> int | None:
        if self.dead:
            raise CrashError
        if self.full and half is not None:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.calls += 1
        if self.calls != self.at:
            return act()
        if self.kind == "eio":
            raise OSError(errno.EIO, "Input/output error")
        if self.kind == "enospc":
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.kind == "short":
            self.full = True
            if half is not None:
                return half()  # type: ignore[return-value]
            raise OSError(errno.ENOSPC, "No space left on device")
        self.dead = True
        if self.kind == "after":
            act()
        elif self.kind == "torn" and half is not None:
            half()
        raise CrashError

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        if flags & os.O_CREAT:
            return self._change(lambda: Io.open(self, path, flags, mode))  # type: ignore[return-value]
        return super().open(path, flags, mode)

    def pwritev(self, fd: int, parts: Sequence[BytesLike], position: int) -> int:
        whole = b"".join(parts)
        return self._change(  # type: ignore[return-value]
            lambda: Io.pwritev(self, fd, parts, position),
            lambda: Io.pwritev(self, fd, (whole[: len(whole) // 2],), position),
        )

    def fdatasync(self, fd: int) -> None:
        self._change(lambda: None)

    def fsync(self, fd: int) -> None:
        self._change(lambda: None)

    def ftruncate(self, fd: int, size: int) -> None:
        self._change(lambda: Io.ftruncate(self, fd, size))

    def replace(self, source: str, target: str) -> None:
        self._change(lambda: Io.replace(self, source, target))

    def unlink(self, path: str) -> None:
        self._change(lambda: Io.unlink(self, path))

    def mkdir(self, path: str) -> None:
        self._change(lambda: Io.mkdir(self, path))
