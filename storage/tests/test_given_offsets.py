"""Batches that keep their offsets: those of query topics, whose offsets are their source's."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given as of
from hypothesis import strategies as st

from barnabas.storage.data_dir import DataDir
from barnabas.storage.errors import StorageError
from barnabas.storage.files import FileCache
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.recovery import recover_partition
from barnabas.storage.tests.support import (
    NOW,
    PAGE_CACHE,
    SMALL,
    TOPIC_ID,
    CrashError,
    FaultyIo,
    created,
    one,
    read_all,
    recovered,
    vnode_at,
)
from barnabas.storage.vnode import Origin
from barnabas.wire.batch import Record, build_batch, iter_batches, iter_records
from barnabas.wire.errors import ErrorCode, KafkaError


def new_vnode(path: Path, first_offset: int) -> LocalVnode:
    vnode = LocalVnode(
        str(path),
        "t",
        0,
        PAGE_CACHE,
        io=Io(),
        cache=FileCache(Io(), 10),
        log_start_offset=first_offset,
        recovery_point=first_offset,
    )
    vnode.create(TOPIC_ID)
    return vnode


def given(base: int, *offsets: int, upto: int, control: bool = False) -> bytes:
    """A batch that covers base to upto - 1, with records at `offsets`."""
    records = [Record(b"k", b"v%d" % offset, NOW, offset=offset) for offset in offsets]
    return build_batch(
        records,
        base_offset=base,
        producer_id=9,
        producer_epoch=0,
        last_offset_delta=upto - 1 - base,
        is_control=control,
    )


def append(vnode: LocalVnode, data: bytes) -> tuple[int, int]:
    result = vnode.append(data, now_ms=NOW, origin=Origin.QUERY)
    return result.base_offset, result.last_offset


def offsets_of(vnode: LocalVnode, start: int) -> list[int]:
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


def test_an_empty_log_can_begin_elsewhere_and_one_that_held_records_cannot(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0")
    heard: list[int] = []
    vnode.on_high_watermark.subscribe(lambda moved: heard.append(moved.high_watermark))
    vnode.begin_at(100)
    assert heard == [100]
    assert (vnode.log_start_offset, vnode.high_watermark, vnode.log_end_offset) == (100, 100, 100)
    with pytest.raises(KafkaError) as caught:
        vnode.read(0, 100)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    append(vnode, given(100, 103, upto=110))
    with pytest.raises(ValueError, match="has held records"):
        vnode.begin_at(200)
    vnode.flush()
    assert offsets_of(vnode, 100) == [103]
    emptied = created(tmp_path / "t-1")
    emptied.append(one(b"v"), now_ms=NOW)
    emptied.flush()
    emptied.truncate_prefix(1)
    with pytest.raises(ValueError, match="has held records"):
        emptied.begin_at(200)


@of(
    first=st.integers(1, 2**62),
    steps=st.lists(st.sampled_from(["append", "stop", "crash", "checkpoint"]), max_size=8),
    checkpointed=st.booleans(),
)
def test_a_log_that_begins_elsewhere_is_a_log_like_any_other(first: int, steps: list[str], checkpointed: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "t-0")
        vnode = created(path)
        point = vnode.recovery_point
        vnode.begin_at(first)
        point = vnode.recovery_point if checkpointed else point
        expected: list[int] = []
        end = first
        for step in steps:
            if step == "append":
                append(vnode, given(end, end + 2, upto=end + 5))
                expected.append(end + 2)
                end += 5
                vnode.flush()
            elif step == "checkpoint":
                vnode.write_indexes()
                point = vnode.recovery_point
            else:
                if step == "stop":
                    vnode.close()
                else:
                    recover_partition(Io(), str(path), point, SMALL)
                vnode = vnode_at(path)
            assert (vnode.log_start_offset, vnode.high_watermark, vnode.log_end_offset) == (first, end, end)
            assert [record.offset for record in read_all(vnode)] == expected
            assert vnode.topic_id == TOPIC_ID


@pytest.mark.parametrize("kind", ["eio", "enospc", "short", "before", "after", "torn"])
def test_a_fault_while_it_is_moved_leaves_an_empty_log_that_can_be_moved(tmp_path: Path, kind: str) -> None:
    def move(path: Path, at: int) -> int:
        created(path).close()
        io = FaultyIo(-1, kind)
        vnode = vnode_at(path, io=io)
        vnode.load()
        io.at, io.calls = at, 0
        vnode.begin_at(100)
        return io.calls

    calls = move(tmp_path / "count", -1)
    ends = set()
    for at in range(1, calls + 1):
        path = tmp_path / f"{at}-0"
        with pytest.raises((StorageError, CrashError)):
            move(path, at)
        vnode = recovered(path)
        assert vnode.log_start_offset == vnode.log_end_offset
        assert vnode.log_end_offset in (0, 100)
        ends.add(vnode.log_end_offset)
        if vnode.log_end_offset == 0:
            vnode.begin_at(100)
        append(vnode, given(100, 103, upto=110))
        vnode.flush()
        assert offsets_of(recovered(path), 100) == [103]
    assert 0 in ends


async def test_a_moved_partition_comes_back_whatever_was_checkpointed_before(tmp_path: Path) -> None:
    data_dir = DataDir.open(tmp_path, node_id=1)
    vnodes = [data_dir.create_vnode("t", partition, TOPIC_ID, SMALL) for partition in range(2)]
    await data_dir.checkpoint()
    for vnode in vnodes:
        vnode.begin_at(77)
    append(vnodes[0], given(77, 78, upto=80))
    vnodes[0].flush()
    data_dir.claim.release()  # as happens when the process ends
    again = DataDir.open(tmp_path, node_id=1)
    await again.load()
    assert not again.claim.was_clean
    assert [(v.log_start_offset, v.log_end_offset) for _, v in sorted(again.vnodes.items())] == [(77, 80), (77, 77)]
    await again.close()
