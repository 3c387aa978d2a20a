"""Batches that bring their offsets along: those of query topics, whose offsets are their source's."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.data_dir import DataDir
from storage.io import Io
from storage.segment import FileCache
from storage.tests.support import NOW, PAGE_CACHE, TOPIC_ID, recovered
from storage.vnode import Origin, Vnode
from wire.batch import Record, build_batch, iter_batches, iter_records
from wire.errors import ErrorCode, KafkaError


def new_vnode(path: Path, first_offset: int) -> Vnode:
    vnode = Vnode(
        str(path), "t", 0, PAGE_CACHE, io=Io(), cache=FileCache(Io(), 10), log_start_offset=first_offset,
        recovery_point=first_offset,
    )  # fmt: skip
    vnode.create(TOPIC_ID)
    return vnode


def given(base: int, *offsets: int, upto: int, control: bool = False) -> bytes:
    """A batch that covers base to upto - 1, with records at `offsets`."""
    records = [Record(b"k", b"v%d" % offset, NOW, offset=offset) for offset in offsets]
    return build_batch(
        records, base_offset=base, producer_id=9, producer_epoch=0, last_offset_delta=upto - 1 - base,
        is_control=control,
    )  # fmt: skip


def append(vnode: Vnode, data: bytes) -> tuple[int, int]:
    result = vnode.append(data, now_ms=NOW, origin=Origin.QUERY)
    return result.base_offset, result.last_offset


def offsets_of(vnode: Vnode, start: int) -> list[int]:
    found = []
    while (part := vnode.read(start, 1 << 20).slice) is not None:
        for header, data in iter_batches(part.read()):
            found += [record.offset for record in iter_records(data) if record.offset >= start]
            start = header.last_offset + 1
    return found


def test_a_log_begins_where_its_source_does_and_keeps_gaps(tmp_path: Path) -> None:
    vnode = new_vnode(tmp_path / "t-0", 100)
    assert (vnode.log_start_offset, vnode.log_end_offset) == (100, 100)
    assert append(vnode, given(100, 103, 107, upto=110)) == (100, 109)
    assert append(vnode, given(110, upto=2_000_000_000)) == (110, 1_999_999_999)
    assert append(vnode, given(2_000_000_000, 2_000_000_005, upto=2_000_000_006)) == (2_000_000_000, 2_000_000_005)
    assert offsets_of(vnode, 100) == [103, 107, 2_000_000_005]
    assert offsets_of(vnode, 105) == [107, 2_000_000_005]
    assert offsets_of(vnode, 500) == [2_000_000_005]


def test_only_what_begins_at_the_end_is_taken(tmp_path: Path) -> None:
    vnode = new_vnode(tmp_path / "t-0", 100)
    append(vnode, given(100, 103, upto=110))
    size = vnode.size_bytes
    for data, code in [
        (given(100, 103, upto=110), ErrorCode.DUPLICATE_SEQUENCE_NUMBER),
        (given(105, 107, upto=120), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (given(112, 113, upto=120), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (given(110, 113, upto=120, control=True), ErrorCode.INVALID_RECORD),
        (given(110, 113, upto=120) * 2, ErrorCode.INVALID_RECORD),
        (given(110, 113, upto=120)[:-1], ErrorCode.CORRUPT_MESSAGE),
        (given(110, 113, upto=120)[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
    ]:
        with pytest.raises(KafkaError) as caught:
            append(vnode, data)
        assert caught.value.code == code
    assert (vnode.log_end_offset, vnode.size_bytes) == (110, size)


def test_a_start_finds_the_end_again_behind_an_empty_batch(tmp_path: Path) -> None:
    vnode = new_vnode(tmp_path / "t-0", 100)
    append(vnode, given(100, 103, upto=110))
    append(vnode, given(110, upto=400))
    again = recovered(tmp_path / "t-0")
    assert (again.log_start_offset, again.log_end_offset) == (100, 400)
    assert offsets_of(again, 100) == [103]


async def test_a_new_partition_of_a_data_directory_keeps_its_first_offset(tmp_path: Path) -> None:
    data_dir = DataDir.open(tmp_path / "data", node_id=1)
    data_dir.create_vnode("t", 0, TOPIC_ID, PAGE_CACHE, first_offset=77)
    await data_dir.close()
    again = DataDir.open(tmp_path / "data", node_id=1)
    await again.load()
    assert again.vnodes["t", 0].log_start_offset == again.vnodes["t", 0].log_end_offset == 77
    await again.close()
