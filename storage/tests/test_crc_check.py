"""Batches that this process has not written are checked before they are sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.storage.config import LogConfig
from barnabas.storage.errors import StorageError
from barnabas.storage.files import FileCache
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.segment import Segment
from barnabas.storage.vnode import Check
from barnabas.wire.batch import Record, build_batch

EACH = build_batch([Record(b"k", b"v" * 500, 1)])


def opened(path: Path) -> LocalVnode:
    io = Io()
    return LocalVnode(str(path), "t", 0, LogConfig(index_interval_bytes=1), io=io, cache=FileCache(io, 4))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A partition of ten batches, written by another process."""
    vnode = opened(tmp_path / "t-0")
    vnode.create(bytes(16))
    for _ in range(10):
        vnode.append(bytearray(EACH), now_ms=1)
    found = vnode.read(0, 1 << 20, verified=True)
    assert found.check is None  # batches written here need no check
    vnode.flush()
    vnode.close()
    return tmp_path / "t-0"


def flip(path: Path, batch: int) -> None:
    log = path / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[batch * len(EACH) + 300] ^= 1
    log.write_bytes(data)


def checked(vnode: LocalVnode, offset: int, size: int = 1 << 20) -> Check:
    found = vnode.read(offset, size, verified=True)
    assert found.check is not None
    found.check.run()
    return found.check


def test_a_range_is_looked_at_once(path: Path) -> None:
    vnode = opened(path)
    size = len(EACH)
    assert len(vnode.end_check(checked(vnode, 2, 3 * size))) == 3 * size
    again = vnode.read(3, 1 << 20, verified=True)  # only up to the checked part
    assert again.check is None
    assert again.slice is not None
    assert len(again.slice) == 2 * size
    assert vnode.read(5, size, verified=True).check is not None
    vnode.append(bytearray(EACH), now_ms=1)
    vnode.flush()
    assert len(vnode.end_check(checked(vnode, 0))) == 11 * size
    whole = vnode.read(0, 1 << 20, verified=True)
    assert whole.check is None
    assert whole.slice is not None
    assert len(whole.slice) == 11 * size


def test_what_is_whole_before_the_damage_is_sent_and_then_it_is_set_aside(path: Path) -> None:
    flip(path, 6)
    vnode = opened(path)
    assert len(vnode.end_check(checked(vnode, 0))) == 6 * len(EACH)
    with pytest.raises(StorageError, match="CRC"):
        vnode.end_check(checked(vnode, 6))
    found = vnode.read(6, 1 << 20, verified=True)  # repaired meanwhile, all of it checked
    assert found.check is None
    assert found.slice is not None
    assert len(found.slice) == 3 * len(EACH)


def test_a_batch_larger_than_a_piece_is_read_whole(tmp_path: Path) -> None:
    io = Io()
    vnode = LocalVnode(str(tmp_path), "t", 0, LogConfig(max_message_bytes=8 << 20), io=io, cache=FileCache(io, 4))
    vnode.create(bytes(16))
    large = build_batch([Record(b"k", b"v" * (3 << 20), 1)])
    for data in (EACH, large, EACH):
        vnode.append(bytearray(data), now_ms=1)
    vnode.flush()
    vnode.close()
    again = opened(tmp_path)
    assert len(again.end_check(checked(again, 0, 8 << 20))) == len(large) + 2 * len(EACH)


def test_many_ranges_are_merged_and_few_are_kept() -> None:
    segment = Segment("", 0, size=1000)
    segment.unchecked_until = 1000
    for start in range(0, 1000, 20):
        segment.note_checked(start, start + 10)
    assert segment.checked_end(40, 100) == 50
    assert segment.checked_end(50, 100) == 50
    segment.note_checked(50, 60)
    assert segment.checked_end(40, 100) == 70
    for start in range(10, 1000, 20):
        segment.note_checked(start, start + 10)
    assert segment.unchecked_until == 0
    segment.unchecked_until = 1 << 30
    for start in range(0, 100_000, 20):
        segment.note_checked(start, start + 10)
    assert len(segment.checked) < 100
