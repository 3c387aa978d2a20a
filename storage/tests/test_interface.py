"""The contract of every vnode: the same tests for the local one and for one without files."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from barnabas.storage.compaction_terms import CompactionLimits
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import StorageError
from barnabas.storage.faults import NotBegunError
from barnabas.storage.tests.memory import MemoryVnode
from barnabas.storage.tests.support import NOW, PAGE_CACHE, SMALL, TOPIC_ID, created, one, produced
from barnabas.storage.validation import validate
from barnabas.storage.vnode import Origin, Vnode
from barnabas.wire import batch
from barnabas.wire.batch import Record
from barnabas.wire.errors import ErrorCode, KafkaError

Make = Callable[[LogConfig], Vnode]


@pytest.fixture(params=["local", "memory"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A new vnode, t-0."""
    if request.param == "local":
        return lambda config: created(tmp_path / "t-0", config)
    return lambda config: MemoryVnode("t", 0, TOPIC_ID, config)


def heard(vnode: Vnode) -> list[int]:
    """The high watermarks that a listener gets; -1 when the vnode goes offline."""
    marks: list[int] = []
    vnode.on_high_watermark.subscribe(lambda vnode: marks.append(-1 if vnode.error else vnode.high_watermark))
    return marks


def records_of(vnode: Vnode, offset: int, max_bytes: int = 300) -> list[Record]:
    """Everything readable from an offset on, request by request."""
    found: list[Record] = []
    while (piece := vnode.read(offset, max_bytes).slice) is not None:
        for header, view in batch.iter_batches(piece.read()):
            batch.check(view)
            found += [record for record in batch.iter_records(view) if record.offset >= offset]
            offset = header.last_offset + 1
    return found


def values(vnode: Vnode, offset: int = 0, max_bytes: int = 300) -> list[bytes | None]:
    return [record.value for record in records_of(vnode, offset, max_bytes)]


def refused(act: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        act()
    return caught.value.code


def given(base: int, last: int, *values: bytes, epoch: int = 0) -> bytes:
    made = [Record(b"k", value, NOW) for value in values]
    data = batch.build_batch(made, base_offset=base, last_offset_delta=last - base)
    return batch.PREFIX.pack(base, len(data) - batch.LOG_OVERHEAD, epoch) + data[batch.PREFIX_SIZE :]


def test_it_says_what_it_is(make: Make) -> None:
    vnode = make(SMALL)
    assert (vnode.topic, vnode.partition, vnode.topic_id) == ("t", 0, TOPIC_ID)
    assert vnode.place
    assert vnode.error is None
    assert vnode.config is SMALL
    assert (vnode.log_start_offset, vnode.high_watermark, vnode.last_stable_offset, vnode.log_end_offset) == (0,) * 4
    assert (vnode.latest_epoch, vnode.newest_timestamp(), vnode.size_bytes) == (-1, -1, 0)
    assert {vnode: 1}[vnode] == 1


def test_what_is_appended_is_seen_when_it_is_durable(make: Make) -> None:
    vnode = make(SMALL)
    assert vnode.waits_for_fsync
    marks = heard(vnode)
    result = vnode.append(one(b"a", b"b"), now_ms=NOW)
    assert (result.base_offset, result.last_offset, result.duplicate) == (0, 1, False)
    assert vnode.append_valid(validate(one(b"c"), vnode.rules, NOW), now_ms=NOW).base_offset == 2
    assert (vnode.high_watermark, vnode.log_end_offset, vnode.unflushed_messages) == (0, 3, 3)
    assert vnode.read(0, 1000).slice is None
    job = vnode.begin_flush()
    assert job is not None
    assert job.syncs > 0
    vnode.append(one(b"d"), now_ms=NOW)
    job.run()
    assert marks == []
    vnode.end_flush(job)
    assert marks == [3]
    assert values(vnode) == [b"a", b"b", b"c"]
    vnode.flush()
    assert (marks, vnode.last_stable_offset, vnode.unflushed_messages) == ([3, 4], 4, 0)
    assert vnode.begin_flush() is None
    sizes = [len(one(b"a", b"b")), len(one(b"c")), len(one(b"d"))]
    assert vnode.size_bytes == vnode.stored_bytes() == sum(sizes)


def test_under_the_page_cache_policy_it_is_seen_at_once_and_a_setting_changes_the_policy(make: Make) -> None:
    vnode = make(PAGE_CACHE)
    marks = heard(vnode)
    vnode.append(one(b"a"), now_ms=NOW)
    assert (marks, values(vnode)) == ([1], [b"a"])
    vnode.config = SMALL
    vnode.append(one(b"b"), now_ms=NOW)
    assert vnode.high_watermark == 1
    vnode.config = PAGE_CACHE
    assert (marks, values(vnode)) == ([1, 2], [b"a", b"b"])
    vnode.config = msgspec.structs.replace(PAGE_CACHE, max_message_bytes=10)
    assert refused(lambda: vnode.append(one(b"c"), now_ms=NOW)) == ErrorCode.MESSAGE_TOO_LARGE


def test_a_read_gives_whole_batches_within_its_bounds(make: Make) -> None:
    vnode = make(PAGE_CACHE)
    for number in range(40):
        vnode.append(one(b"%03d" % number, b"%03d" % number), now_ms=NOW)
    size = len(one(b"000", b"000"))
    for offset, max_bytes in ((0, 1), (1, size), (7, 3 * size), (70, 3 * size + 1)):
        found = vnode.read(offset, max_bytes)
        assert found.slice is not None
        assert found.left > 0
        data = found.slice.read()
        assert len(data) == len(found.slice) == max(max_bytes // size, 1) * size
        assert next(batch.iter_batches(data))[0].base_offset == offset // 2 * 2
    assert vnode.read(0, size - 1, min_one_batch=False).slice is None
    limited = vnode.read(0, 10 * size, max_offset=4).slice
    assert limited is not None
    assert len(limited) == 2 * size
    at_end = vnode.read(80, 1000)
    assert (at_end.slice, at_end.left, at_end.high_watermark, at_end.log_start_offset) == (None, 0, 80, 0)
    for outside in (-1, 81):
        assert refused(lambda: vnode.read(outside, 1)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert len(values(vnode, 0, 5 * size)) == 80


def test_a_slice_sends_itself_and_outlives_its_part_of_the_log(make: Make) -> None:
    vnode = make(PAGE_CACHE)
    for number in range(30):
        vnode.append(one(b"%03d" % number), now_ms=NOW)
    piece = vnode.read(0, 400).slice
    assert piece is not None
    data = piece.read()
    vnode.truncate_prefix(25)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert piece.send(ours) == len(data)
        assert theirs.recv(10_000) == data
        rest = piece.rest(100)
        assert (len(rest), rest.read()) == (len(data) - 100, data[100:])
        rest.warm()
        assert rest.cached
        assert rest.look_cached()
        ours.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                ours.send(bytes(1 << 20))
        with pytest.raises(BlockingIOError):
            piece.send(ours)


def test_what_a_client_may_not_append_leaves_no_trace(make: Make) -> None:
    vnode = make(PAGE_CACHE)
    vnode.append(produced(0), now_ms=NOW)
    bad = bytearray(one(b"x"))
    bad[-1] ^= 1
    assert refused(lambda: vnode.append(bad, now_ms=NOW)) == ErrorCode.CORRUPT_MESSAGE
    assert refused(lambda: vnode.append(one(b"x") * 2, now_ms=NOW)) == ErrorCode.INVALID_RECORD
    assert refused(lambda: vnode.append(produced(5), now_ms=NOW)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (vnode.log_end_offset, values(vnode)) == (1, [b"0"])
    repeated = vnode.append(produced(0), now_ms=NOW)
    assert (repeated.duplicate, repeated.base_offset, repeated.last_offset) == (True, 0, 0)
    assert vnode.append(produced(1), now_ms=NOW).base_offset == 1
    assert refused(lambda: vnode.append(produced(0, epoch=-1), now_ms=NOW)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_append_time_is_the_vnodes(make: Make) -> None:
    vnode = make(msgspec.structs.replace(PAGE_CACHE, message_timestamp_type="LogAppendTime"))
    assert vnode.append(one(b"a"), now_ms=NOW + 7).append_time_ms == NOW + 7
    assert [record.timestamp for record in records_of(vnode, 0)] == [NOW + 7]
    assert vnode.newest_timestamp() == NOW + 7


def test_offsets_of_another_log_have_gaps_and_come_once(make: Make) -> None:
    vnode = make(PAGE_CACHE)
    vnode.append(given(0, 4, b"a"), now_ms=NOW, origin=Origin.QUERY)
    vnode.append(given(5, 9), now_ms=NOW, origin=Origin.QUERY)
    vnode.append(given(10, 12, b"b", b"c"), now_ms=NOW, origin=Origin.QUERY)
    again = given(5, 9)
    assert refused(lambda: vnode.append(again, now_ms=NOW, origin=Origin.QUERY)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    later = given(20, 21)
    code = refused(lambda: vnode.append(later, now_ms=NOW, origin=Origin.QUERY))
    assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [record.offset for record in records_of(vnode, 0)] == [0, 10, 11]
    assert [record.offset for record in records_of(vnode, 3)] == [10, 11]
    assert vnode.log_end_offset == 13


def test_a_leaders_batches_keep_their_offsets_and_epochs(make: Make) -> None:
    vnode = make(PAGE_CACHE)
    data = given(0, 0, b"a", epoch=3) + given(4, 5, b"b", b"c", epoch=7)
    result = vnode.append(data, now_ms=NOW, origin=Origin.REPLICATION)
    assert (result.base_offset, result.last_offset) == (0, 5)
    assert [record.offset for record in records_of(vnode, 0)] == [0, 4, 5]
    assert vnode.latest_epoch == 7
    assert [vnode.epoch_end_offset(epoch) for epoch in (3, 5, 7, 8)] == [(3, 4), (3, 4), (7, 6), (-1, -1)]
    assert [vnode.epoch_of(offset) for offset in (0, 3, 4, 6)] == [3, 3, 7, 7]
    old = given(2, 2, b"x")
    assert refused(lambda: vnode.append(old, now_ms=NOW, origin=Origin.REPLICATION)) == ErrorCode.INVALID_RECORD


def test_deleted_records_are_gone_for_readers(make: Make) -> None:
    vnode = make(SMALL)
    for number in range(30):
        vnode.append(one(b"%03d" % number), now_ms=NOW)
    vnode.flush()
    vnode.append(one(b"unseen"), now_ms=NOW)
    marks = heard(vnode)
    vnode.truncate_prefix(25)
    assert marks == [30]
    assert vnode.log_start_offset == 25
    assert values(vnode, 25) == [b"%03d" % number for number in range(25, 30)]
    assert refused(lambda: vnode.read(24, 1)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert refused(lambda: vnode.truncate_prefix(31)) == ErrorCode.OFFSET_OUT_OF_RANGE
    vnode.truncate_prefix(3)
    assert vnode.log_start_offset == 25
    vnode.truncate_prefix(30)
    assert vnode.read(30, 100).slice is None


def test_a_log_that_has_held_no_record_may_begin_anywhere(make: Make) -> None:
    vnode = make(SMALL)
    vnode.begin_at(100)
    assert (vnode.log_start_offset, vnode.high_watermark, vnode.log_end_offset) == (100, 100, 100)
    vnode.append(one(b"a"), now_ms=NOW)
    vnode.flush()
    assert values(vnode, 100) == [b"a"]
    with pytest.raises(ValueError):
        vnode.begin_at(200)


def test_retention_takes_the_oldest_and_nothing_that_is_not_durable(make: Make) -> None:
    config = LogConfig(segment_bytes=300, index_interval_bytes=100, retention_ms=1000)
    vnode = make(config)
    for number in range(20):
        vnode.append(one(b"%03d" % number, timestamp=NOW + 100 * number), now_ms=NOW)
    vnode.flush()
    vnode.append(one(b"unseen", timestamp=NOW), now_ms=NOW)
    assert vnode.apply_retention(NOW + 900) == 0
    assert vnode.apply_retention(NOW + 2000) > 0
    assert 5 < vnode.log_start_offset <= 10
    vnode.config = LogConfig(segment_bytes=300, index_interval_bytes=100, retention_ms=-1, retention_bytes=400)
    vnode.apply_retention(NOW)
    assert vnode.size_bytes <= 700
    assert vnode.high_watermark == 20
    vnode.flush()
    vnode.config = msgspec.structs.replace(config, retention_ms=0)
    vnode.apply_retention(NOW + 10_000)
    assert vnode.log_start_offset == vnode.log_end_offset == 21


def test_a_time_finds_its_first_record(make: Make) -> None:
    vnode = make(PAGE_CACHE)
    for number in range(30):
        vnode.append(one(b"a", timestamp=NOW + 10 * number), now_ms=NOW)
    assert vnode.newest_timestamp() == NOW + 290
    for asked, found in ((0, (0, NOW)), (NOW + 11, (2, NOW + 20)), (NOW + 290, (29, NOW + 290)), (NOW + 291, None)):
        assert vnode.offset_for_timestamp(asked) == found
        seen = None
        for scan in vnode.time_scans(asked):
            scan.run()
            seen = vnode.end_scan(scan)
            if seen is not None:
                break
        assert seen == found


def test_a_flush_that_has_not_begun_is_owed_and_one_that_failed_takes_it_offline(make: Make) -> None:
    vnode = make(SMALL)
    marks = heard(vnode)
    vnode.append(one(b"a"), now_ms=NOW)
    job = vnode.begin_flush()
    assert job is not None
    vnode.end_flush(job, NotBegunError(errno.EMFILE, "no descriptors"))
    assert vnode.error is None
    vnode.flush()
    assert marks == [1]
    vnode.append(one(b"b"), now_ms=NOW)
    job = vnode.begin_flush()
    assert job is not None
    vnode.end_flush(job, OSError(errno.EIO, "Input/output error"))
    assert isinstance(vnode.error, StorageError)
    assert marks == [1, -1]
    acts: list[Callable[[], object]] = [
        lambda: vnode.append(one(b"c"), now_ms=NOW),
        lambda: vnode.append_valid(validate(one(b"c"), vnode.rules, NOW), now_ms=NOW),
        lambda: vnode.read(0, 1),
        lambda: vnode.high_watermark,
        lambda: vnode.last_stable_offset,
        vnode.begin_flush,
        lambda: vnode.truncate_prefix(1),
        lambda: vnode.begin_at(1),
        lambda: vnode.apply_retention(NOW),
        lambda: vnode.offset_for_timestamp(NOW),
        vnode.newest_timestamp,
        lambda: vnode.epoch_end_offset(0),
    ]
    assert {refused(act) for act in acts} == {ErrorCode.KAFKA_STORAGE_ERROR}


def test_who_has_unsubscribed_hears_nothing(make: Make) -> None:
    vnode = make(PAGE_CACHE)
    marks: list[int] = []

    def hear(vnode: Vnode) -> None:
        marks.append(vnode.high_watermark)
        vnode.on_high_watermark.unsubscribe(hear)

    vnode.on_high_watermark.subscribe(hear)
    vnode.append(one(b"a"), now_ms=NOW)
    vnode.append(one(b"b"), now_ms=NOW)
    assert marks == [1]


def test_compaction_keeps_the_last_record_of_each_key_at_its_offset(make: Make) -> None:
    vnode = make(msgspec.structs.replace(SMALL, cleanup_policy="compact"))
    for number in range(50):
        vnode.append(batch.build_batch([Record(b"k%d" % (number % 5), b"%d" % number, NOW)]), now_ms=NOW)
    assert vnode.compaction_need(NOW).dirty_bytes == 0, "nothing of it is seen yet"
    vnode.flush()
    assert vnode.may_need_compaction()
    need = vnode.compaction_need(NOW)
    assert need.dirty_ratio == 1
    assert not need.must
    job = vnode.begin_compaction(NOW, CompactionLimits())
    assert job is not None
    job.run()
    while vnode.end_compaction(job):
        job.run()
    assert job.is_done
    assert job.figures.bytes_after < job.figures.bytes_before
    kept = records_of(vnode, 0)
    assert [record.value for record in kept if record.offset >= 45] == [b"45", b"46", b"47", b"48", b"49"]
    assert all(record.value == b"%d" % record.offset for record in kept)
    assert len(kept) < 25
    assert vnode.log_end_offset == 50
    assert vnode.compaction_need(NOW).dirty_bytes == 0
    assert vnode.begin_compaction(NOW, CompactionLimits()) is None


def test_a_log_that_does_not_compact_is_left_alone(make: Make) -> None:
    vnode = make(SMALL)
    for _ in range(50):
        vnode.append(one(b"v"), now_ms=NOW)
    vnode.flush()
    assert not vnode.may_need_compaction()
    assert vnode.compaction_need(NOW).dirty_bytes == 0
    assert vnode.begin_compaction(NOW, CompactionLimits()) is None
