"""Each system call of a vnode's life fails with each errno, with the effect in the table of `storage.faults`."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from barnabas.storage.config import LogConfig
from barnabas.storage.data_dir import DataDir
from barnabas.storage.errors import StorageError
from barnabas.storage.faults import Fault, fault_of
from barnabas.storage.files import FileCache
from barnabas.storage.flusher import Flusher
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.tests.support import (
    NOW,
    TOPIC_ID,
    RecordedEvents,
    created,
    one,
    produced,
    read_all,
    recovered,
    values_of,
)
from barnabas.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")
CALLS = [
    "open", "pread", "pwritev", "fdatasync", "fsync", "ftruncate", "replace", "unlink", "mkdir", "listdir", "stat",
]  # fmt: skip
NUMBERS = [
    errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT, errno.EIO,
    errno.EROFS,
]  # fmt: skip
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100, retention_ms=-1)


class Failing(Io):
    """The `at`-th call of `name` fails with `number`, once."""

    def __init__(self, name: str, at: int, number: int) -> None:
        self.name, self.at, self.number, self.count = name, at, number, 0

    def __getattribute__(self, name: str) -> Any:
        call = super().__getattribute__(name)
        if name not in CALLS:
            return call

        def counted(*arguments: Any) -> Any:
            if name == self.name:
                self.count += 1
                if self.count == self.at:
                    raise OSError(self.number, os.strerror(self.number))
            return call(*arguments)

        return counted


class Offline(Exception):
    """The vnode refuses everything from now on."""


def insisting(vnode: LocalVnode, act: Callable[[], T]) -> T:
    """Retry refused calls, as a client does."""
    try:
        return act()
    except StorageError:
        if vnode.error is not None:
            raise Offline from None
        return act()


def life(path: Path, io: Io, told: RecordedEvents, appended: list[bytes], flushed: list[int]) -> LocalVnode:
    """Append, flush, roll, read, delete records, look up times; evict files and read again."""
    vnode = LocalVnode(str(path), "t", 0, CONFIG, io=io, cache=FileCache(io, 2), tell=told)
    for number in range(24):
        value = b"%d" % number
        vnode.leader_epoch = number // 9
        append = partial(vnode.append, produced(number), now_ms=NOW + number)
        result = insisting(vnode, append)
        assert result.base_offset == number
        assert not result.duplicate
        appended.append(value)
        if number % 3 == 2:
            insisting(vnode, vnode.flush)
            flushed[:] = [number + 1]
        if number % 5 == 4 and flushed:
            insisting(vnode, lambda: vnode.read(0 if vnode.log_start_offset == 0 else flushed[0] - 1, 1000))
        if number == 17:
            insisting(vnode, lambda: vnode.truncate_prefix(8))
            insisting(vnode, lambda: vnode.apply_retention(NOW))
    insisting(vnode, vnode.write_indexes)
    insisting(vnode, lambda: vnode.offset_for_timestamp(NOW + 12))
    insisting(vnode, lambda: vnode.roll(NOW))
    insisting(vnode, vnode.flush)
    flushed[:] = [24]
    return vnode


@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.get)
@pytest.mark.parametrize("name", CALLS)
def test_every_call_with_every_error(tmp_path: Path, name: str, number: int) -> None:
    counter = Failing(name, -1, number)
    created(tmp_path / "count", CONFIG).close()
    life(tmp_path / "count", counter, RecordedEvents(), [], [])
    fatal = fault_of(OSError(number, "")) is Fault.OFFLINE
    if name in ("fdatasync", "fsync"):
        fatal = True
    offline = 0
    for at in range(1, counter.count + 1):
        path = tmp_path / f"{at}-0"
        created(path, CONFIG).close()
        io, told, appended, flushed = Failing(name, at, number), RecordedEvents(), list[bytes](), list[int]()
        try:
            vnode = life(path, io, told, appended, flushed)
        except Offline:
            assert fatal, f"call {at} of {name} took it offline"
            assert len(told.named("partition.offline")) == 1
            offline += 1
        else:
            assert not told.named("partition.offline")
            found = insisting(vnode, partial(read_all, vnode))
            assert [(r.offset, r.value) for r in found] == [(n, b"%d" % n) for n in range(8, 24)]
        again = recovered(path, CONFIG)
        found = read_all(again)
        first = found[0].offset if found else again.log_end_offset
        assert [r.value for r in found] == appended[first : first + len(found)]
        assert not flushed or first + len(found) >= flushed[0]
    if fatal and counter.count and name not in ("unlink", "stat"):
        assert offline, "no such error was met"


def test_a_full_disk_frees_room_by_retention_and_takes_records_again(tmp_path: Path) -> None:
    class Full(Io):
        full = False

        def open(self, path: str, flags: int, mode: int = 0o644) -> int:
            if self.full and flags & os.O_CREAT and not os.path.exists(path):
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().open(path, flags, mode)

        def pwritev(self, fd: int, parts: object, position: int) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().pwritev(fd, parts, position)  # type: ignore[arg-type]

    io = Full()
    vnode = created(tmp_path / "t-0", LogConfig(segment_bytes=700, retention_ms=1000), io=io)
    for number in range(30):
        vnode.append(one(b"%d" % number, timestamp=NOW), now_ms=NOW)
    vnode.flush()
    io.full = True
    size = vnode.size_bytes
    with pytest.raises(StorageError, match="append is not possible now"):
        vnode.append(one(b"x"), now_ms=NOW)
    assert len(read_all(vnode)) == 30
    vnode.truncate_prefix(10)
    assert vnode.size_bytes < size
    assert vnode.apply_retention(NOW + 5000) > 0, "all but the active segment go, which has no successor yet"
    assert len(vnode.segments) == 1
    io.full = False
    assert vnode.append(one(b"x"), now_ms=NOW).base_offset == 30
    vnode.flush()
    assert values_of(vnode)[-1] == b"x"
    assert vnode.apply_retention(NOW + 5000) == 1
    assert vnode.size_bytes == 0


class FullDisk(Io):
    """A disk that can have no room for data."""

    full = False

    def pwritev(self, fd: int, parts: object, position: int) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().pwritev(fd, parts, position)  # type: ignore[arg-type]


@pytest.mark.parametrize("known", [True, False])
def test_batches_behind_a_refused_one_are_refused_like_it_and_not_as_out_of_order(tmp_path: Path, known: bool) -> None:
    """librdkafka would take a new epoch after OUT_OF_ORDER_SEQUENCE_NUMBER, and repeat batches of other partitions."""
    io = FullDisk()
    vnode = created(tmp_path / "t-0", CONFIG, io=io)
    first = 0
    if known:
        vnode.append(produced(0), now_ms=NOW)
        first = 1
    io.full = True
    for number in (first, first + 1):
        with pytest.raises(StorageError):
            vnode.append(produced(number), now_ms=NOW)
    io.full = False
    with pytest.raises(StorageError, match="an earlier batch of producer 7 was refused"):
        vnode.append(produced(first + 2), now_ms=NOW)
    vnode.append(produced(0, producer_id=8), now_ms=NOW)
    if known:
        assert vnode.append(produced(0), now_ms=NOW).duplicate
    for number in range(first, first + 3):
        vnode.append(produced(number), now_ms=NOW)
    with pytest.raises(KafkaError, match="sent sequence 9 after"):
        vnode.append(produced(9), now_ms=NOW)
    io.full = True
    with pytest.raises(StorageError):
        vnode.append(produced(first + 3), now_ms=NOW)
    io.full = False
    vnode.append(produced(0, epoch=1), now_ms=NOW)
    vnode.append(produced(1, epoch=1), now_ms=NOW)


@pytest.mark.parametrize("behind", [[2, 3, 2], [2, 3, 4, 5, 6, 7]])
def test_a_producer_that_gives_up_a_refused_batch_is_told_that_one_is_missing(
    tmp_path: Path, behind: list[int]
) -> None:
    """It repeats a later batch before the refused one, or has more behind it than can be in flight."""
    io = FullDisk()
    vnode = created(tmp_path / "t-0", CONFIG, io=io)
    vnode.append(produced(0), now_ms=NOW)
    io.full = True
    for _ in range(2):  # the refused batch comes again, and those behind it with it
        for number in (1, 2, 3):
            with pytest.raises(StorageError):
                vnode.append(produced(number), now_ms=NOW)
    with pytest.raises(StorageError):
        vnode.append(produced(1), now_ms=NOW)
    io.full = False
    *early, last = behind
    for number in early:
        with pytest.raises(StorageError, match="must come first"):
            vnode.append(produced(number), now_ms=NOW)
    with pytest.raises(KafkaError, match=f"sent sequence {last} after") as told:
        vnode.append(produced(last), now_ms=NOW)
    assert told.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    vnode.append(produced(1), now_ms=NOW)


async def test_an_fsync_for_which_there_is_no_descriptor_is_done_later_and_who_waits_is_served(tmp_path: Path) -> None:
    class NoDescriptors(Io):
        left = 3

        def open(self, path: str, flags: int, mode: int = 0o644) -> int:
            if flags == os.O_RDONLY and self.left and os.path.isdir(path):
                self.left -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return super().open(path, flags, mode)

    io = NoDescriptors()
    vnode = created(tmp_path / "t-0", io=io)
    async with trio.open_nursery() as nursery:
        flusher = Flusher(io)
        await nursery.start(flusher.run)
        vnode.append(one(b"v"), now_ms=NOW)
        with trio.fail_after(60):
            await flusher.flushed(vnode, 1)
        nursery.cancel_scope.cancel()
    assert io.left == 0
    assert vnode.error is None
    assert values_of(vnode) == [b"v"]


@pytest.mark.parametrize("length", [-12, -13, 0, 48, -(2**31)])
def test_a_damaged_length_ends_a_read(tmp_path: Path, length: int) -> None:
    vnode = created(tmp_path / "t-0", LogConfig(index_interval_bytes=1 << 20))
    for number in range(20):
        vnode.append(one(b"%d" % number), now_ms=NOW)
    vnode.flush()
    segment = vnode.segments[0]
    size = segment.size // 20
    with open(segment.path(), "r+b") as file:
        file.seek(3 * size + 8)
        file.write(length.to_bytes(4, "big", signed=True))
    found = vnode.read(0, 5 * size)
    assert found.slice is None or len(found.slice) <= 3 * size


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


async def test_a_real_disk_that_is_full(small_disk: Path) -> None:
    config = LogConfig(segment_bytes=100_000, retention_ms=-1, index_interval_bytes=1000)
    told = RecordedEvents()
    data_dir = DataDir.open(small_disk, node_id=1, tell=told)
    await data_dir.load(config_of=lambda topic: config)
    vnode = data_dir.create_vnode("t", 0, TOPIC_ID, config)
    vnode.flush()
    await data_dir.checkpoint()
    end = 0

    def fill() -> None:
        nonlocal end
        while True:
            vnode.append(one(b"%d" % end + bytes(3000)), now_ms=NOW)
            vnode.flush()
            end += 1

    for _ in range(3):
        with pytest.raises(StorageError, match="No space left"):
            fill()
        assert vnode.error is None
        assert vnode.log_end_offset == end
        assert len(read_all(vnode, max_bytes=10_000)) == end - vnode.log_start_offset
        with pytest.raises(StorageError):
            data_dir.create_vnode("more", 0, TOPIC_ID, config).append(one(bytes(100_000)), now_ms=NOW)
        vnode.truncate_prefix(end - 20)
        await data_dir.checkpoint()  # makes room first if necessary
        await data_dir.upkeep.delete_discarded()
    assert end > 600
    vnode.append(one(b"last"), now_ms=NOW)
    await data_dir.close()
    assert not told.named("partition.offline")
    again = DataDir.open(small_disk, node_id=1)
    await again.load(config_of=lambda topic: config)
    assert again.claim.was_clean
    assert values_of(again.vnodes["t", 0])[-1] == b"last"
    await again.close()
