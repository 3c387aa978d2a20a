"""The promises of a vnode for appends and reads, on real files."""

from __future__ import annotations

import os
import socket
import traceback
from collections import OrderedDict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barnabas.storage.config import LogConfig
from barnabas.storage.errors import StorageError
from barnabas.storage.files import FileCache
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.producer_state import ProducerState
from barnabas.storage.tests.support import (
    NOW,
    PAGE_CACHE,
    SMALL,
    TOPIC_ID,
    created,
    flush_alone,
    one,
    produced,
    read_all,
    recovered,
    values_of,
    vnode_at,
)
from barnabas.storage.vnode import Origin
from barnabas.wire import batch
from barnabas.wire.batch import Record
from barnabas.wire.compression import CompressionType
from barnabas.wire.errors import ErrorCode, KafkaError


def refused(vnode: LocalVnode, data: bytes, **how: object) -> ErrorCode:
    before = (vnode.log_end_offset, vnode.size_bytes)
    with pytest.raises(KafkaError) as caught:
        vnode.append(data, **{"now_ms": NOW, **how})  # type: ignore[arg-type]
    assert (vnode.log_end_offset, vnode.size_bytes) == before
    return caught.value.code


def changed(config: LogConfig, **fields: object) -> LogConfig:
    return msgspec.structs.replace(config, **fields)


def test_offsets_follow_one_another_and_reads_stop_at_the_high_watermark(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0")
    assert vnode.topic_id == TOPIC_ID
    first = vnode.append(one(b"a", b"b"), now_ms=NOW)
    second = vnode.append(one(b"c"), now_ms=NOW)
    assert (first.base_offset, first.last_offset, second.base_offset) == (0, 1, 2)
    assert (vnode.log_end_offset, vnode.high_watermark) == (3, 0)
    assert vnode.read(0, 1000).slice is None
    vnode.flush()
    assert vnode.high_watermark == vnode.last_stable_offset == vnode.recovery_point == 3
    assert values_of(vnode) == [b"a", b"b", b"c"]
    assert vnode.read(3, 1000).slice is None


def test_with_the_page_cache_policy_the_high_watermark_moves_at_append(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", PAGE_CACHE)
    heard: list[int] = []
    hear = lambda changed: heard.append(changed.high_watermark)  # noqa: E731
    vnode.on_high_watermark.subscribe(hear)
    vnode.append(one(b"a"), now_ms=NOW)
    vnode.on_high_watermark.unsubscribe(hear)
    vnode.append(one(b"b"), now_ms=NOW)
    assert heard == [1]
    assert vnode.high_watermark == 2


@pytest.mark.parametrize("offset", [-1, 4])
def test_reads_outside_the_log_are_refused(tmp_path: Path, offset: int) -> None:
    vnode = created(tmp_path / "t-0")
    vnode.append(one(b"a", b"b", b"c"), now_ms=NOW)
    with pytest.raises(KafkaError) as caught:
        vnode.read(offset, 100)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_inside_a_batch_gives_the_whole_batch_and_whole_batches_only(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", changed(PAGE_CACHE, segment_bytes=10_000))
    batches = [one(b"%d" % i, b"x" * 50, b"y") for i in range(40)]
    for data in batches:
        vnode.append(data, now_ms=NOW)
    size = len(batches[0])
    for offset in range(120):
        for max_bytes in (1, size, size + 1, 3 * size, 700):
            found = vnode.read(offset, max_bytes).slice
            assert found is not None
            headers = [header for header, _ in batch.iter_batches(found.read())]
            assert headers[0].base_offset <= offset <= headers[0].last_offset
            assert sum(header.size_in_bytes for header in headers) == len(found)
            assert len(headers) == 1 or len(found) <= max_bytes
    assert vnode.read(0, size - 1, min_one_batch=False).slice is None
    below = vnode.read(0, 10_000, max_offset=7).slice
    assert below is not None
    assert [header.last_offset for header, _ in batch.iter_batches(below.read())] == [2, 5]


def test_a_slice_outlives_its_segment(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", PAGE_CACHE)
    for i in range(30):
        vnode.append(one(b"%03d" % i), now_ms=NOW)
    held = vnode.read(0, 10_000).slice
    assert held is not None
    before = held.read()
    vnode.truncate_prefix(25)
    assert vnode.log_start_offset == 25
    vnode.close()
    assert held.read() == before
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert held.send(ours) == len(held)
        assert theirs.recv(2 * len(held)) == before


def test_the_file_cache_bounds_what_is_open(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", PAGE_CACHE, limit=3)
    for i in range(60):
        vnode.append(one(b"%03d" % i), now_ms=NOW)
        vnode.flush()
    assert len(vnode.segments) > 5
    assert values_of(vnode) == [b"%03d" % i for i in range(60)]
    assert sum(segment.file is not None for segment in vnode.segments) <= 4
    vnode.append(one(b"last"), now_ms=NOW)
    assert values_of(vnode)[-1] == b"last"


def test_a_clean_close_is_found_again_without_recovery(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0")
    for i in range(50):
        vnode.append(produced(i), now_ms=NOW)
    vnode.flush()
    vnode.close()
    again = vnode_at(tmp_path / "t-0")
    assert (again.log_end_offset, again.high_watermark, again.latest_epoch) == (50, 50, 0)
    assert values_of(again) == [b"%d" % i for i in range(50)]
    assert again.append(produced(49), now_ms=NOW).duplicate
    assert again.append(produced(50), now_ms=NOW).base_offset == 50


def test_segments_roll_by_time_and_by_full_index(tmp_path: Path) -> None:
    vnode = created(tmp_path / "a-0", LogConfig(segment_ms=1000, flush_messages=99))
    for step in (0, 1000, 1001, 2500):
        vnode.append(one(b"x", timestamp=NOW + step), now_ms=NOW + step)
    assert [segment.base_offset for segment in vnode.segments] == [0, 2, 3]
    full = created(tmp_path / "b-0", LogConfig(segment_index_bytes=36, index_interval_bytes=1, flush_messages=99))
    for step in range(10):
        full.append(one(b"x", timestamp=NOW + step), now_ms=NOW)
    assert len(full.segments) > 2
    assert len(values_of(full)) == 10


def test_what_a_client_may_not_append(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", LogConfig(max_message_bytes=500, message_timestamp_before_max_ms=5000))
    good = one(b"v")
    assert refused(vnode, good + good) is ErrorCode.INVALID_RECORD
    assert refused(vnode, b"") is ErrorCode.CORRUPT_MESSAGE
    assert refused(vnode, one(b"x" * 500)) is ErrorCode.MESSAGE_TOO_LARGE
    assert refused(vnode, batch.build_batch([Record(b"k", b"v", NOW)], base_offset=3)) is ErrorCode.INVALID_RECORD
    control = batch.build_batch([Record(batch.control_key(0), b"", NOW)], is_control=True)
    assert refused(vnode, control) is ErrorCode.INVALID_RECORD
    assert refused(vnode, one(b"v", timestamp=NOW + 3_600_001)) is ErrorCode.INVALID_TIMESTAMP
    assert refused(vnode, one(b"v", timestamp=NOW - 5001)) is ErrorCode.INVALID_TIMESTAMP
    stamped = batch.build_batch([Record(b"k", b"v")], timestamp_type=batch.LOG_APPEND_TIME, append_time=NOW)
    assert refused(vnode, stamped) is ErrorCode.INVALID_TIMESTAMP
    vnode.config = LogConfig(cleanup_policy="compact")
    keyless = batch.build_batch([Record(b"k", b"v", NOW), Record(None, b"v", NOW)], compression=CompressionType.ZSTD)
    assert refused(vnode, keyless) is ErrorCode.INVALID_RECORD
    vnode.config = LogConfig(segment_bytes=100)
    assert refused(vnode, one(b"x" * 100)) is ErrorCode.RECORD_LIST_TOO_LARGE
    vnode.append(control, now_ms=NOW, origin=Origin.COORDINATOR)


def test_log_append_time_and_topic_compression(tmp_path: Path) -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime", compression_type="zstd", flush_messages=99)
    vnode = created(tmp_path / "t-0", config)
    result = vnode.append(one(b"x" * 1000, b"y", timestamp=5), now_ms=NOW)
    assert result.append_time_ms == NOW
    assert vnode.size_bytes < 500
    assert [(r.timestamp, r.value) for r in read_all(vnode)] == [(NOW, b"x" * 1000), (NOW, b"y")]


def test_producer_sequences(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", LogConfig(flush_messages=99))
    assert vnode.append(produced(41, count=2), now_ms=NOW).base_offset == 0  # unknown: any sequence
    for i in range(43, 49):
        vnode.append(produced(i), now_ms=NOW)
    again = vnode.append(produced(44), now_ms=NOW)
    assert (again.base_offset, again.last_offset, again.duplicate) == (3, 3, True)
    assert refused(vnode, produced(41, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # older than five batches
    assert refused(vnode, produced(50)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(vnode, produced(1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    vnode.append(produced(0, epoch=1), now_ms=NOW)
    assert refused(vnode, produced(49)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert vnode.append(produced(0, producer_id=8), now_ms=NOW).base_offset == 9
    vnode.append(produced(2**31 - 1, producer_id=9), now_ms=NOW)
    assert not vnode.append(produced(0, producer_id=9), now_ms=NOW).duplicate  # wraps


def test_idle_producers_are_forgotten(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", LogConfig(producer_id_expiration_ms=1000, retention_ms=-1))
    vnode.append(produced(0), now_ms=NOW)
    vnode.apply_retention(NOW + 999)
    assert refused(vnode, produced(5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    vnode.apply_retention(NOW + 1000)
    vnode.append(produced(5), now_ms=NOW)


@pytest.mark.parametrize("crash", [False, True])
def test_producers_survive_a_restart(tmp_path: Path, crash: bool) -> None:
    vnode = created(tmp_path / "t-0")
    for i in range(30):
        vnode.append(produced(i, producer_id=i % 3), now_ms=NOW) if i < 3 else None
        vnode.append(produced(i, producer_id=9), now_ms=NOW)
    vnode.flush()
    if not crash:
        vnode.close()
    again = recovered(tmp_path / "t-0") if crash else vnode_at(tmp_path / "t-0")
    assert again.append(produced(29, producer_id=9), now_ms=NOW).duplicate
    assert refused(again, produced(31, producer_id=9)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_timestamps_find_the_record_inside_its_batch(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", PAGE_CACHE)
    times = []
    for i in range(40):
        stamps = [NOW + 10 * i, NOW + 10 * i - 25, NOW + 10 * i + 3]
        times += stamps
        vnode.append(
            batch.build_batch([Record(b"k", b"x" * 20, t) for t in stamps], compression=CompressionType.LZ4), now_ms=NOW
        )
    for ask in range(NOW - 30, NOW + 400, 3):
        expected = next(((i, t) for i, t in enumerate(times) if t >= ask), None)
        assert vnode.offset_for_timestamp(ask) == expected, ask - NOW
    assert vnode.max_timestamp_offset() == (119, times[119])
    vnode.truncate_prefix(50)
    assert vnode.offset_for_timestamp(0) == (50, times[50])
    vnode.close()
    again = vnode_at(tmp_path / "t-0", PAGE_CACHE)
    assert again.offset_for_timestamp(NOW + 200) == next((i, t) for i, t in enumerate(times) if t >= NOW + 200)
    assert again.max_timestamp_offset() == (119, times[119])


def test_leader_epochs_end_where_the_next_begins(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0")
    assert vnode.epoch_end_offset(0) == (-1, -1)
    for epoch in (2, 2, 5):
        vnode.leader_epoch = epoch
        vnode.append(one(b"v"), now_ms=NOW)
    vnode.flush()
    expected = {-1: (-1, -1), 1: (1, 0), 2: (2, 2), 4: (2, 2), 5: (5, 3), 6: (-1, -1)}
    assert {epoch: vnode.epoch_end_offset(epoch) for epoch in expected} == expected
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_text("garbage")
    assert recovered(tmp_path / "t-0").epoch_end_offset(4) == (2, 2)


def test_retention_by_size_and_time(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", changed(PAGE_CACHE, retention_ms=10_000, retention_bytes=-1))
    for i in range(40):
        vnode.append(one(b"%04d" % i, timestamp=NOW + 100 * i), now_ms=NOW)
    count = len(vnode.segments)
    assert vnode.apply_retention(NOW) == 0
    assert vnode.apply_retention(NOW + 12_000) > 0
    assert 0 < vnode.log_start_offset <= 20
    assert len(vnode.segments) < count
    vnode.config = changed(PAGE_CACHE, retention_bytes=700, retention_ms=-1)
    vnode.apply_retention(NOW)
    assert vnode.size_bytes < 1400
    vnode.config = changed(PAGE_CACHE, retention_ms=10)
    vnode.apply_retention(NOW + 20_000)  # the active segment is expired, too: it is rolled first
    assert (vnode.log_start_offset, vnode.log_end_offset, vnode.size_bytes) == (40, 40, 0)
    assert vnode.append(one(b"x"), now_ms=NOW).base_offset == 40
    assert sorted(n for n in os.listdir(vnode.directory) if n.endswith(".log")) == [f"{40:020d}.log"]


def test_replicated_batches_keep_their_offsets(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", PAGE_CACHE)
    data = b"".join(
        batch.build_batch([Record(b"k", b"%d" % o, NOW)], base_offset=o, leader_epoch=e) for o, e in ((5, 1), (9, 2))
    )
    result = vnode.append(data, now_ms=NOW, origin=Origin.REPLICATION)
    assert (result.base_offset, result.last_offset, vnode.log_end_offset) == (5, 9, 10)
    assert [r.offset for r in read_all(vnode)] == [5, 9]
    assert vnode.epoch_end_offset(1) == (1, 9)
    assert refused(vnode, data, origin=Origin.REPLICATION) is ErrorCode.INVALID_RECORD


def test_a_folder_without_indexes_is_served(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0")
    for i in range(40):
        vnode.append(one(b"%d" % i), now_ms=NOW)
    vnode.flush()
    vnode.close()
    for file in (tmp_path / "t-0").iterdir():
        if file.suffix == ".index":
            file.unlink()
        elif file.suffix == ".timeindex":
            file.write_bytes(b"\xff" * 24)
    again = vnode_at(tmp_path / "t-0")
    assert values_of(again) == [b"%d" % i for i in range(40)]


def test_an_index_that_does_not_match_its_log_is_built_anew(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0")
    for i in range(40):
        vnode.append(one(b"%d" % i), now_ms=NOW)
    vnode.flush()
    vnode.close()
    for file in sorted((tmp_path / "t-0").glob("*.index"))[:-1]:
        entries = bytearray(file.read_bytes())
        for at in range(3, len(entries), 8):
            entries[at] -= 1  # every offset one too low
        file.write_bytes(entries)
    again = vnode_at(tmp_path / "t-0")
    for offset in range(40):
        assert read_all(again, offset)[0].offset == offset


def test_batches_that_repeat_earlier_offsets_end_the_log(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", LogConfig())
    for i in range(4):
        vnode.append(produced(i), now_ms=NOW)
    path = Path(vnode.segments[0].path())
    data = path.read_bytes()
    path.write_bytes(data + data[: len(data) // 4])
    again = recovered(tmp_path / "t-0", LogConfig())
    assert again.log_end_offset == 4
    assert path.read_bytes() == data


def test_a_damaged_snapshot_or_one_beyond_the_log_is_not_believed(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", LogConfig())
    for i in range(4):
        vnode.append(produced(i), now_ms=NOW)
    vnode.flush()
    vnode.close()
    snapshot = tmp_path / "t-0" / f"{4:020d}.snapshot"
    (tmp_path / "t-0" / f"{9:020d}.snapshot").write_bytes(ProducerState().encode())
    for damaged in (snapshot.read_bytes()[:-1] + b"x", snapshot.read_bytes()[:20], b""):
        snapshot.write_bytes(damaged)
        again = vnode_at(tmp_path / "t-0", LogConfig())
        assert again.append(produced(3), now_ms=NOW).duplicate
        assert again.producers.producers[7].batches[-1].last_offset == 3


def test_unflushed_segments_keep_their_descriptors(tmp_path: Path) -> None:
    """Otherwise the kernel could forget a failed write-back before the fsync that should report it."""
    io = Io()
    cache = FileCache(io, limit=1)
    vnodes = [LocalVnode(str(tmp_path / f"t-{n}"), "t", n, LogConfig(), io=io, cache=cache) for n in range(4)]
    for vnode in vnodes:
        vnode.create(TOPIC_ID)
        vnode.append(one(b"v"), now_ms=NOW)
    assert len(cache) == 4
    for vnode in vnodes:
        vnode.flush()
    one_more = LocalVnode(str(tmp_path / "t-9"), "t", 9, LogConfig(), io=io, cache=cache)
    one_more.create(TOPIC_ID)
    one_more.append(one(b"v"), now_ms=NOW)
    assert len(cache) == 1
    assert all(values_of(vnode) == [b"v"] for vnode in vnodes)


def test_many_unflushed_segments_do_not_make_each_opening_dearer(tmp_path: Path) -> None:
    """When every opening checked each of them, ten thousand partitions took minutes."""

    class Counted(OrderedDict[Any, None]):
        looks = 0

        def popitem(self, last: bool = True) -> tuple[Any, None]:
            self.looks += 1
            return super().popitem(last)

    io = Io()
    cache = FileCache(io, limit=8)
    cache._open = counted = Counted()
    vnodes = []
    for number in range(200):
        vnode = LocalVnode(str(tmp_path / f"t-{number}"), "t", number, PAGE_CACHE, io=io, cache=cache)
        vnode.create(TOPIC_ID)
        vnode.append(one(b"v"), now_ms=NOW)
        vnodes.append(vnode)
    assert len(cache) == 200
    assert counted.looks <= 5 * len(vnodes)
    for vnode in vnodes:
        vnode.flush()
    vnode = LocalVnode(str(tmp_path / "t-last"), "t", 200, PAGE_CACHE, io=io, cache=cache)
    vnode.create(TOPIC_ID)
    vnode.append(one(b"v"), now_ms=NOW)
    assert len(cache) == 8
    assert all(values_of(vnode) == [b"v"] for vnode in vnodes)
    assert len(cache) <= 9, "the one that is not flushed, and what was read last"


def test_an_index_preallocated_with_zeros_is_read(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", LogConfig(index_interval_bytes=100))
    for i in range(40):
        vnode.append(one(b"%d" % i, timestamp=NOW + i), now_ms=NOW)
    vnode.flush()
    vnode.close()
    for suffix, entry in (("index", 8), ("timeindex", 12)):
        with open(tmp_path / "t-0" / f"{0:020d}.{suffix}", "ab") as file:
            file.write(bytes(entry * 100))
    again = vnode_at(tmp_path / "t-0", LogConfig(index_interval_bytes=100))
    assert values_of(again) == [b"%d" % i for i in range(40)]
    assert again.offset_for_timestamp(NOW + 30) == (30, NOW + 30)


def test_flushes_one_by_one_overwrite_zeros(tmp_path: Path) -> None:
    """So the file's length does not change before an fdatasync."""
    vnode = created(tmp_path / "t-0", LogConfig())
    path = Path(vnode.segments[0].path())
    lengths = []
    for number in range(2000):
        vnode.append(one(b"%d" % number), now_ms=NOW)
        flush_alone(vnode)
        lengths.append(path.stat().st_size)
    size = vnode.size_bytes
    assert size < lengths[-1] <= size + (64 << 10) + 4096
    assert len(set(lengths)) < 12
    assert len(values_of(vnode)) == 2000
    vnode.append(one(bytes(100_000)), now_ms=NOW)
    flush_alone(vnode)
    assert path.stat().st_size == vnode.size_bytes, "nothing is reserved for large appends"


def test_an_append_of_one_batch_reserves_no_more_than_its_page(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", LogConfig())
    vnode.append(one(b"a"), now_ms=NOW)
    flush_alone(vnode)
    assert Path(vnode.segments[0].path()).stat().st_size == 4096


@pytest.mark.parametrize("ends", ["roll", "close", "left alone"])
def test_a_segment_that_is_done_ends_where_its_log_does(tmp_path: Path, ends: str) -> None:
    vnode = created(tmp_path / "t-0", LogConfig())
    vnode.append(one(b"a"), now_ms=NOW)
    flush_alone(vnode)
    first = vnode.segments[0]
    if ends == "roll":
        vnode.roll(NOW)
    elif ends == "left alone":
        vnode.unreserve()
    else:
        assert first.path() in vnode.close(), "to be synced before the stop is called clean"
    assert Path(first.path()).stat().st_size == first.size


def test_nothing_is_reserved_in_the_page_cache(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", PAGE_CACHE)
    vnode.append(one(b"a"), now_ms=NOW)
    flush_alone(vnode)
    assert Path(vnode.segments[0].path()).stat().st_size == vnode.size_bytes


def test_the_indexes_say_what_kafkas_dump_tool_checks(tmp_path: Path) -> None:
    """An offset entry is (last offset, position) of a batch, a time one (newest timestamp, its batch's last offset)."""
    vnode = created(tmp_path / "t-0", PAGE_CACHE)
    for i in range(60):
        vnode.append(one(b"%d" % i, b"y", timestamp=NOW + (i * 7) % 50), now_ms=NOW)
    vnode.close()
    for log in (tmp_path / "t-0").glob("*.log"):
        base, data = int(log.stem), log.read_bytes()
        entries = log.with_suffix(".index").read_bytes()
        for at in range(0, len(entries), 8):
            offset, position = int.from_bytes(entries[at : at + 4]), int.from_bytes(entries[at + 4 : at + 8])
            assert batch.check(data, position).last_offset == base + offset
        headers = {header.last_offset: header for header, _ in batch.iter_batches(data)}
        times = log.with_suffix(".timeindex").read_bytes()
        found = [
            (int.from_bytes(times[at : at + 8]), base + int.from_bytes(times[at + 8 : at + 12]))
            for at in range(0, len(times), 12)
        ]
        assert found == sorted(set(found))
        assert all(headers[offset].max_timestamp == timestamp for timestamp, offset in found)
        assert found[-1][0] == max(header.max_timestamp for header in headers.values())


def test_an_error_that_many_clients_meet_keeps_nothing_of_them(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", SMALL)
    vnode.abandon()
    frames = set()
    for _ in range(3):
        with pytest.raises(StorageError) as caught:
            vnode.append(one(b"v"), now_ms=NOW)
        frames.add(len(list(traceback.walk_tb(caught.value.__traceback__))))
    assert len(frames) == 1, "each raise adds to the error's traceback"


def test_a_vnode_whose_folder_is_gone_is_offline(tmp_path: Path) -> None:
    vnode = vnode_at(tmp_path / "gone-0", SMALL)
    for _ in range(2):
        with pytest.raises(StorageError, match="offline"):
            vnode.read(0, 100)


def test_after_a_restart_a_producer_may_repeat_all_that_it_had_in_flight(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0")
    for sequence in range(7):
        vnode.append(produced(sequence), now_ms=NOW)
    vnode.roll(NOW)  # the next start reads only the snapshot of these
    vnode.flush()
    again = recovered(tmp_path / "t-0")
    for sequence in range(2, 7):
        result = again.append(produced(sequence), now_ms=NOW)
        assert (result.duplicate, result.base_offset) == (True, sequence)
    assert not again.append(produced(7), now_ms=NOW).duplicate


def test_a_batch_that_decompresses_to_too_much_is_refused(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", LogConfig(cleanup_policy="compact", max_message_bytes=1 << 20))
    bomb = batch.build_batch([Record(b"k", bytes(17 << 20), NOW)], compression=CompressionType.ZSTD)
    with pytest.raises(KafkaError, match="decompresses to more than"):
        vnode.append(bomb, now_ms=NOW)
    assert vnode.log_end_offset == 0


def test_a_stream_of_made_up_producers_is_bounded_and_forgets_the_silent_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.storage.producer_state.MOST_PRODUCERS", 50)
    vnode = created(tmp_path / "t-0")
    vnode.append(produced(0, producer_id=1), now_ms=NOW)
    vnode.append(produced(0, producer_id=2), now_ms=NOW)
    for stranger in range(1000, 1200):
        vnode.append(produced(0, producer_id=stranger), now_ms=NOW)
        vnode.append(produced(stranger - 999, producer_id=1), now_ms=NOW)
    assert len(vnode.producers.producers) == 50
    assert vnode.append(produced(200, producer_id=1), now_ms=NOW).duplicate, "it is remembered as it goes on writing"
    assert vnode.append(produced(7, producer_id=2), now_ms=NOW).base_offset == vnode.log_end_offset - 1
    vnode.flush()
    vnode.close()
    again = vnode_at(tmp_path / "t-0")
    assert len(again.producers.producers) == 50
    assert again.append(produced(200, producer_id=1), now_ms=NOW).duplicate
