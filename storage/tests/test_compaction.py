"""Compaction of a vnode's log: what stays, what readers see, and the effects of damage, a full disk and deletion."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barnabas.storage.compaction import StoppedError
from barnabas.storage.compaction_terms import CompactionLimits, Throttle
from barnabas.storage.config import LogConfig
from barnabas.storage.data_dir import DataDir
from barnabas.storage.errors import StorageError
from barnabas.storage.files import OpenFile
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.recovery import needs_repair
from barnabas.storage.tests.compacting import CONFIG, RETENTION, clean, filled, keyed, limits_of, pairs
from barnabas.storage.tests.power import Disk, Site, survivor
from barnabas.storage.tests.support import (
    NOW,
    TOPIC_ID,
    CrashError,
    FaultyIo,
    RecordedEvents,
    created,
    produced,
    read_all,
    recovered,
    vnode_at,
)
from barnabas.storage.transactions_cleaned import Markers
from barnabas.storage.txn_index import AbortedTransaction
from barnabas.storage.vnode import Origin
from barnabas.wire import batch
from barnabas.wire.aliases import BytesLike
from barnabas.wire.batch import Marker, Record
from barnabas.wire.compression import CompressionType


def files(path: Path, mark: str) -> list[str]:
    return sorted(file.name for file in path.iterdir() if mark in file.name)


def headers(vnode: LocalVnode) -> list[batch.BatchHeader]:
    found = []
    for segment in vnode.segments:
        data = Path(segment.path()).read_bytes()[: segment.size]
        found += [header for header, _ in batch.iter_batches(data)]
    return found


def with_config(**changes: object) -> LogConfig:
    return msgspec.structs.replace(CONFIG, **changes)


# -- what stays --------------------------------------------------------------------------------------------------------


def test_the_last_value_of_each_key_stays_and_small_segments_become_one(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", with_config(segment_bytes=700))
    last = filled(vnode, 100)
    before, size = read_all(vnode), vnode.size_bytes
    active = vnode.segments[-1].base_offset
    assert len(vnode.segments) > 5
    vnode.config = with_config(segment_bytes=100_000)
    figures = clean(vnode)
    assert figures is not None
    after = read_all(vnode)
    assert pairs(after) == last
    assert [record for record in before if record in after] == after, "in order, as they were, at their offsets"
    assert len([record for record in after if record.offset < active]) == 7
    assert (figures.from_offset, figures.to_offset, figures.keys) == (0, active, 7)
    assert (figures.records_before, figures.records_after) == (active, 7)
    assert vnode.size_bytes == size - figures.bytes_before + figures.bytes_after
    assert [segment.base_offset for segment in vnode.segments] == [0, active]
    assert clean(vnode) is None, "what is clean is not cleaned again"


def test_segments_are_merged_up_to_their_size(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", with_config(segment_bytes=400))
    for number in range(60):
        vnode.append(keyed(b"k%d" % number, b"v"), now_ms=NOW)
    vnode.flush()
    vnode.config = with_config(segment_bytes=1000)
    clean(vnode)
    sizes = [segment.size for segment in vnode.segments[:-1]]
    assert all(size <= 1000 for size in sizes)
    assert all(size > 600 for size in sizes[:-1])
    vnode.config = with_config(segment_bytes=100_000, segment_index_bytes=24)
    vnode.append(keyed(b"k0", b"w"), now_ms=NOW)
    vnode.roll(NOW)
    vnode.append(keyed(b"k0", b"w"), now_ms=NOW)
    vnode.flush()
    assert len(vnode.segments) > 3
    clean(vnode)
    assert len(vnode.segments) > 3, "an index has to fit, too"


@pytest.mark.parametrize("codec", CompressionType)
def test_codecs_are_kept(tmp_path: Path, codec: CompressionType) -> None:
    vnode = created(tmp_path / "t-0", with_config(segment_bytes=2000))
    for number in range(40):
        data = [Record(b"k%d" % ((number + n) % 9), b"value %d" % number, NOW) for n in range(3)]
        vnode.append(batch.build_batch(data, compression=codec), now_ms=NOW)
    vnode.roll(NOW)
    vnode.flush()
    want = pairs(read_all(vnode))
    clean(vnode)
    assert pairs(read_all(vnode)) == want
    found = [header for header in headers(vnode) if header.records_count]
    assert {header.compression for header in found} == {codec}
    assert len(found) < 9


def test_a_map_that_is_too_small_takes_several_passes(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", with_config(segment_bytes=3000))
    for number in range(300):
        vnode.append(keyed(b"k%d" % (number % 100), b"v%d" % number), now_ms=NOW)
    vnode.roll(NOW)
    vnode.flush()
    want = pairs(read_all(vnode))
    passes = []
    while (figures := clean(vnode, limits=limits_of(30))) is not None:
        assert figures.keys <= 30
        assert pairs(read_all(vnode)) == want
        passes.append(figures)
    assert len(passes) == 10
    assert [each.is_partial for each in passes] == [True] * 9 + [False]
    assert [record.offset for record in read_all(vnode)] == list(range(200, 300))


def test_tombstones_stay_for_their_retention_and_go_in_a_later_pass(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", CONFIG)
    vnode.append(keyed(b"a", b"1"), now_ms=NOW)
    vnode.append(keyed(b"a", None), now_ms=NOW)
    vnode.append(keyed(b"b", b"1"), now_ms=NOW)

    def dirty() -> None:
        vnode.append(keyed(b"c", b"1"), now_ms=NOW)
        vnode.roll(NOW)
        vnode.flush()

    dirty()
    clean(vnode, NOW)
    assert [(r.key, r.value) for r in read_all(vnode)] == [(b"a", None), (b"b", b"1"), (b"c", b"1")]
    (marked,) = [header for header in headers(vnode) if header.has_delete_horizon]
    assert marked.base_timestamp == NOW + RETENTION
    dirty()
    clean(vnode, NOW + RETENTION - 1)
    assert (b"a", None) in [(r.key, r.value) for r in read_all(vnode)]
    dirty()
    clean(vnode, NOW + RETENTION)
    assert [(r.key, r.value) for r in read_all(vnode)] == [(b"b", b"1"), (b"c", b"1")]


def test_the_last_sequence_of_a_producer_outlives_its_records(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    vnode = created(path, CONFIG)
    for number in range(6):
        vnode.append(produced(number, producer_id=7), now_ms=NOW)
    vnode.append(keyed(b"k", b"last"), now_ms=NOW)
    vnode.roll(NOW)
    vnode.flush()
    clean(vnode)
    assert [record.value for record in read_all(vnode)] == [b"last"]
    vnode.close()
    for name in files(path, ".snapshot"):
        (path / name).unlink()
    vnode = recovered(path, CONFIG)
    assert vnode.append(produced(5, producer_id=7), now_ms=NOW).duplicate
    assert vnode.append(produced(6, producer_id=7), now_ms=NOW).base_offset == 7


def test_what_is_young_undecided_or_not_seen_yet_is_not_cleaned(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", with_config(min_compaction_lag_ms=30))
    filled(vnode, 60)  # at NOW + 0, 1, 2 ...
    assert clean(vnode, NOW + 30) is None
    figures = clean(vnode, NOW + 60)
    assert figures is not None
    assert 15 <= figures.to_offset <= 31
    kept = {record.offset for record in read_all(vnode)}
    assert kept >= set(range(figures.to_offset, 60))

    held = created(tmp_path / "u-0", CONFIG)
    held.append(keyed(b"a", b"1"), now_ms=NOW)
    begin = batch.build_batch(
        [Record(b"a", b"2", NOW)], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    held.append(begin, now_ms=NOW)
    filled(held, 40)
    figures = clean(held)
    assert figures is not None
    assert figures.to_offset == 1
    assert len(read_all(held)) == 42

    unseen = created(tmp_path / "v-0", CONFIG)
    for number in range(40):
        unseen.append(keyed(b"a", b"%d" % number), now_ms=NOW)
    assert unseen.high_watermark == 0
    assert clean(unseen) is None
    unseen.flush()
    assert clean(unseen) is not None


def test_aborted_records_go_and_markers_go_after_them(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    vnode = created(path, with_config(segment_bytes=1000))
    vnode.append(keyed(b"a", b"committed before"), now_ms=NOW)

    def write(producer: int, sequence: int, key: bytes, value: bytes, committed: bool) -> None:
        data = batch.build_batch(
            [Record(key, value, NOW)],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        vnode.append(data, now_ms=NOW)
        vnode.end_transaction(Marker(producer, 0, committed, 0), new_epoch=False, now_ms=NOW)

    def dirty() -> None:
        vnode.append(keyed(b"z", b"1"), now_ms=NOW)
        vnode.roll(NOW)
        vnode.flush()

    write(1, 0, b"a", b"aborted", False)
    write(2, 0, b"b", b"committed", True)
    write(1, 1, b"c", b"aborted", False)
    write(2, 1, b"d", b"committed", True)
    dirty()
    clean(vnode)
    data = [header for header in headers(vnode) if not header.is_control]
    assert [(h.base_offset, h.records_count) for h in data if h.producer_id == 1] == [(5, 0)], "its last sequence"
    assert [record.value for record in read_all(vnode) if record.key in (b"a", b"b", b"c", b"d")] == [
        b"committed before",
        b"committed",
        b"committed",
    ]
    assert [entry.last_offset for entry in vnode.aborted_transactions(0, vnode.log_end_offset)] == [2, 6]
    dirty()
    clean(vnode, NOW + 1)
    assert [h.base_offset for h in headers(vnode) if h.is_control] == [2, 4, 6, 8]
    assert [h.base_offset for h in headers(vnode) if h.is_control and h.has_delete_horizon] == [2]
    assert [entry.last_offset for entry in vnode.aborted_transactions(0, vnode.log_end_offset)] == [6]
    dirty()
    clean(vnode, NOW + 1 + RETENTION)
    assert [h.base_offset for h in headers(vnode) if h.is_control] == [4, 6, 8]
    vnode.close()
    again = vnode_at(path, with_config(segment_bytes=1000))
    assert [entry.last_offset for entry in again.aborted_transactions(0, again.log_end_offset)] == [6]


def test_which_transaction_has_a_batch_is_found_without_a_walk_over_all(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", with_config(segment_bytes=1 << 20))
    sources: list[batch.BatchHeader] = []
    for number in range(256):
        data = batch.build_batch(
            [Record(b"a", b"x", NOW)],
            producer_id=1,
            producer_epoch=0,
            base_sequence=number,
            is_transactional=True,
        )
        base = vnode.append(data, now_ms=NOW).base_offset
        sources.append(msgspec.structs.replace(batch.parse_header(data), base_offset=base))
        vnode.end_transaction(Marker(1, 0, number % 2 == 0, 0), new_epoch=False, now_ms=NOW)
    (segment,) = vnode.segments
    markers = Markers(Io(), [(segment, vnode.log_end_offset, None)], 0, vnode.log_end_offset)
    asked: list[int] = []

    class Counting(list[AbortedTransaction]):
        def __getitem__(self, number: Any) -> Any:
            asked.append(number)
            return super().__getitem__(number)

    markers.aborted = Counting(markers.aborted)
    assert [markers.is_aborted(header) for header in sources] == [False, True] * 128
    assert len(asked) <= 256 * 10, "128 transactions: 8 steps each, and the one that is found"


@pytest.mark.parametrize("what", ["lost", "of another producer", "longer", "cut"])
def test_a_wrong_index_of_aborted_transactions_costs_no_record(tmp_path: Path, what: str) -> None:
    path = tmp_path / "t-0"
    vnode = created(path, with_config(segment_bytes=1000))
    events = RecordedEvents()

    def write(producer: int, sequence: int, value: bytes, committed: bool) -> None:
        data = batch.build_batch(
            [Record(b"a", value, NOW)],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        vnode.append(data, now_ms=NOW)
        vnode.end_transaction(Marker(producer, 0, committed, 0), new_epoch=False, now_ms=NOW)

    write(1, 0, b"first", True)
    write(2, 0, b"kept", True)
    write(1, 1, b"aborted", False)
    vnode.append(keyed(b"z", b"1"), now_ms=NOW)
    vnode.roll(NOW)
    vnode.flush()
    vnode.close()
    index_file = path / f"{0:020d}.txnindex"
    data = bytearray(index_file.read_bytes())
    if what == "lost":
        index_file.unlink()
    elif what == "of another producer":
        data[9] = 2
    elif what == "longer":
        data[10:18] = bytes(8)
    else:
        del data[-3:]
    if what != "lost":
        index_file.write_bytes(data)
    vnode = vnode_at(path, with_config(segment_bytes=1000), tell=events)
    with pytest.raises(StorageError):
        clean(vnode)
    assert len(events.named("index.rebuilt")) == 1
    assert clean(vnode) is not None
    assert [record.value for record in read_all(vnode) if record.key == b"a"] == [b"kept"]


def test_records_without_a_key_go_and_a_batch_that_cannot_be_read_stays(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", LogConfig(segment_bytes=700))
    vnode.append(batch.build_batch([Record(None, b"keyless", NOW)]), now_ms=NOW)
    vnode.append(keyed(b"a", b"1"), now_ms=NOW)
    odd = bytearray(batch.build_batch([Record(b"a", b"2", NOW)], base_offset=2))
    odd[batch.HEADER_SIZE] += 2
    batch.seal(odd)
    vnode.append(bytes(odd), now_ms=NOW, origin=Origin.QUERY)
    packed = bytearray(batch.build_batch([Record(b"a", b"3", NOW)], base_offset=3))
    packed[22] |= CompressionType.ZSTD
    batch.seal(packed)
    vnode.append(bytes(packed), now_ms=NOW, origin=Origin.QUERY)
    vnode.roll(NOW)
    vnode.flush()
    vnode.config = CONFIG
    figures = clean(vnode)
    assert figures is not None
    assert figures.unreadable == 2
    assert [header.base_offset for header in headers(vnode)] == [1, 2, 3]


def test_a_segment_that_was_just_rolled_can_be_cleaned(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", with_config(segment_bytes=100_000))
    filled(vnode, 20)
    vnode.roll(NOW)
    assert vnode.compaction_need(NOW).dirty_ratio == 1
    assert clean(vnode) is not None
    assert len(read_all(vnode)) == 7


def test_max_compaction_lag_rolls_and_asks_for_a_pass(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", with_config(max_compaction_lag_ms=500, segment_bytes=100_000))
    last = filled(vnode, 20)
    assert not vnode.compaction_need(NOW + 499).must
    need = vnode.compaction_need(NOW + 500)
    assert need.must
    assert need.dirty_ratio == 1
    assert clean(vnode, NOW + 500) is not None
    assert len(read_all(vnode)) == len(last) == 7
    assert vnode.compaction_need(NOW + 5000).dirty_bytes == 0


# -- readers -----------------------------------------------------------------------------------------------------------


def test_readers_find_their_way_over_gaps(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    vnode = created(path, with_config(segment_bytes=700))
    filled(vnode, 100)
    held = vnode.read(5, 300).slice
    assert held is not None
    before = held.read()
    clean(vnode)
    assert held.read() == before, "a slice of an old segment stays readable"
    kept = [record.offset for record in read_all(vnode)]
    for offset in range(100):
        first = read_all(vnode, offset, max_bytes=80)
        assert [record.offset for record in first] == [each for each in kept if each >= offset]
    newest = vnode.max_timestamp_offset()
    assert newest == (99, NOW + 99)
    for number in (0, 10, kept[0], kept[0] + 1, 99):
        found = vnode.offset_for_timestamp(NOW + number)
        assert found == next((each, NOW + each) for each in kept if each >= number)
    assert vnode.epoch_end_offset(0) == (0, 100)
    for segment in vnode.segments[:-1]:
        indexes = [Path(segment.path(suffix)) for suffix in (".index", ".timeindex")]
        written = [file.read_bytes() for file in indexes]
        segment.rebuild_indexes(Io(), OpenFile(Io(), segment.path(), os.O_RDONLY), CONFIG.index_interval_bytes)
        segment.replace_indexes(Io())
        assert [file.read_bytes() for file in indexes] == written
    vnode.truncate_prefix(kept[0] + 1)  # into a gap
    assert [record.offset for record in read_all(vnode)] == kept[1:]
    vnode.close()
    assert not needs_repair(Io(), str(path))
    again = recovered(path, CONFIG, start=kept[0] + 1)
    assert [record.offset for record in read_all(again)] == kept[1:]


# -- meanwhile ---------------------------------------------------------------------------------------------------------


def test_appends_go_on_while_it_runs(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", CONFIG)
    filled(vnode, 60)
    job = vnode.begin_compaction(NOW, limits_of())
    assert job is not None
    assert vnode.begin_compaction(NOW, limits_of()) is None, "one at a time"
    goes_on = True
    number = 60
    while goes_on:
        job.run()
        vnode.append(keyed(b"k0", b"v%d" % number), now_ms=NOW)
        number += 1
        goes_on = vnode.end_compaction(job)
    vnode.flush()
    assert pairs(read_all(vnode))[b"k0"] == b"v%d" % (number - 1)


def test_retention_and_deleted_records_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    vnode = created(path, with_config(cleanup_policy="compact,delete", retention_ms=1000))
    filled(vnode, 60)
    job = vnode.begin_compaction(NOW, limits_of())
    assert job is not None
    job.run()
    assert vnode.apply_retention(NOW + 5000) > 0
    assert not vnode.end_compaction(job)
    assert not files(path, ".cleaned")
    assert read_all(vnode) == []
    filled(vnode, 60)
    job = vnode.begin_compaction(NOW, limits_of())
    assert job is not None
    vnode.truncate_prefix(vnode.high_watermark)
    with pytest.raises(FileNotFoundError):
        job.run()
    assert not vnode.end_compaction(job, FileNotFoundError())


def test_deletion_of_the_topic_meanwhile_leaves_the_next_one_of_its_name_alone(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    vnode = created(path, CONFIG)
    filled(vnode, 60)
    job = vnode.begin_compaction(NOW, limits_of())
    assert job is not None
    path.rename(tmp_path / "gone")
    vnode.abandon()
    new = created(path, CONFIG)
    with pytest.raises(StoppedError):
        job.run()
    assert not vnode.end_compaction(job, StoppedError())
    assert not files(path, ".cleaned")
    assert read_all(new) == []


def test_a_repair_ends_it_and_comes_next(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", CONFIG)
    filled(vnode, 60)
    job = vnode.begin_compaction(NOW, limits_of())
    assert job is not None
    assert vnode.begin_repair(vnode.segments[0]) is None
    with pytest.raises(StoppedError):
        job.run()
    assert not vnode.end_compaction(job, StoppedError())
    repair = vnode.begin_repair(vnode.segments[0])
    assert repair is not None
    assert vnode.begin_compaction(NOW, limits_of()) is None
    repair.run()
    assert vnode.end_repair(repair)
    assert clean(vnode) is not None


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 20, 100])
def test_damage_is_mended_and_the_next_pass_goes_on(tmp_path: Path, at: int) -> None:
    path = tmp_path / "t-0"
    filled(created(path, CONFIG), 60)
    events = RecordedEvents()
    vnode = vnode_at(path, CONFIG, tell=events)
    vnode.load()
    segment = path / f"{vnode.segments[2].base_offset:020d}.log"
    data = bytearray(segment.read_bytes())
    data[at] ^= 0x55
    segment.write_bytes(data)
    with pytest.raises(StorageError):
        clean(vnode)
    assert len(events.named("log.damaged")) == 1
    assert vnode.error is None
    assert not files(path, ".cleaned")
    assert clean(vnode) is not None
    assert len(pairs(read_all(vnode))) == 7


class FullIo(Io):
    """Fails writes to files that are being cleaned: no room, or an error."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.broken = True

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        fd = super().open(path, flags, mode)
        if path.endswith(".log.cleaned"):
            self.fd = fd
        return fd

    def pwritev(self, fd: int, parts: Sequence[BytesLike], position: int) -> int:
        if self.broken and fd == getattr(self, "fd", -1):
            raise OSError(self.code, os.strerror(self.code))
        return super().pwritev(fd, parts, position)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_takes_no_more_costs_the_pass_and_nothing_else(tmp_path: Path, code: int) -> None:
    path = tmp_path / "t-0"
    io = FullIo(code)
    vnode = created(path, CONFIG, io=io)
    filled(vnode, 60)
    before = read_all(vnode)
    with pytest.raises(StorageError):
        clean(vnode)
    assert not files(path, ".cleaned")
    assert read_all(vnode) == before
    assert vnode.error is None
    assert vnode.append(keyed(b"k", b"v"), now_ms=NOW).base_offset == 60
    io.broken = False
    vnode.flush()
    assert clean(vnode) is not None


# A kill after a step equals a kill before the next step.
@pytest.mark.parametrize("kind", ["before", pytest.param("after", marks=pytest.mark.long), "torn"])
def test_a_kill_at_any_step_loses_nothing(tmp_path: Path, kind: str) -> None:
    template = tmp_path / "template" / "t-0"
    template.parent.mkdir()
    whole = created(template, CONFIG)
    last = filled(whole, 80)
    active = whole.segments[-1].base_offset
    whole.close()
    done = False
    for at in range(1, 400):
        path = tmp_path / str(at) / "t-0"
        shutil.copytree(template, path)
        io = FaultyIo(-1, kind)
        vnode = vnode_at(path, CONFIG, io=io)
        vnode.load()
        io.calls, io.at = 0, at
        with contextlib.suppress(CrashError):
            clean(vnode)
            done = not io.dead
        after = recovered(path, CONFIG, recovery_point=vnode.recovery_point)
        assert pairs(read_all(after)) == last
        assert after.log_end_offset == 80
        after.load()
        assert not files(path, ".cleaned")
        assert clean(after) is not None or len(read_all(after)) == 7 + 80 - active
        assert pairs(read_all(after)) == last
        if done:
            break
    assert done
    assert at > 20


@pytest.mark.parametrize("kind", [pytest.param("enospc", marks=pytest.mark.long), "eio", "short"])
def test_an_error_at_any_step_loses_nothing(tmp_path: Path, kind: str) -> None:
    template = tmp_path / "template" / "t-0"
    template.parent.mkdir()
    last = filled(created(template, CONFIG), 80)
    for at in range(1, 400):
        path = tmp_path / str(at) / "t-0"
        shutil.copytree(template, path)
        io = FaultyIo(-1, kind)
        vnode = vnode_at(path, CONFIG, io=io)
        vnode.load()
        io.calls, io.at = 0, at
        with contextlib.suppress(StorageError):
            clean(vnode)
        fired, io.at, io.full = io.calls >= at, -1, False
        if vnode.error is None:
            assert pairs(read_all(vnode)) == last
            clean(vnode)
            assert pairs(read_all(vnode)) == last
        after = recovered(path, CONFIG)
        assert pairs(read_all(after)) == last
        if not fired:
            break
    assert not fired


class Compacted:
    """A log compacted on a recorded disk, and what may be left of it when the power fails."""

    def __init__(self, folder: Path) -> None:
        life, self._state = folder / "life", folder / "state"
        life.mkdir()
        self.disk = Disk(life)
        vnode = created(life / "t-0", with_config(segment_bytes=1000), io=self.disk)
        # A segment's newest time is seldom that of its last record.
        self.last = filled(vnode, 60, time_of=lambda number: NOW + number * 10 + (45 if number % 5 == 3 else 0))
        vnode.config = with_config(segment_bytes=2000)
        self.start = len(self.disk.journal)
        self.before = len(read_all(vnode))
        clean(vnode)
        vnode.append(keyed(b"new", b"1"), now_ms=NOW)
        vnode.flush()
        self.after = len(read_all(vnode))

    def look(self, upto: int, seed: int, mode: str, dropped: Callable[[Site], bool] | None = None) -> int:
        """How many records there are after `upto` changes; raises if a record that must stay is lost."""
        shutil.rmtree(self._state, ignore_errors=True)
        survivor(self.disk.journal[:upto], self._state, random.Random(seed), mode=mode, dropped=dropped)
        vnode = recovered(self._state / "t-0", CONFIG, recovery_point=60)
        found = read_all(vnode)
        assert {**pairs(found), b"new": b"1"} == {**self.last, b"new": b"1"}
        assert vnode.log_end_offset >= 60
        for record in found:
            first = min(other.offset for other in found if other.timestamp >= record.timestamp)
            at = vnode.offset_for_timestamp(record.timestamp)
            assert at is not None
            assert at[0] == first
        return len(found)


def test_power_lost_at_any_step_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    run = Compacted(tmp_path)
    seen = set()
    for upto in range(run.start, len(run.disk.journal) + 1):
        for seed, mode in enumerate(("some", "names")):
            seen.add(run.look(upto, seed + upto, mode))
    assert {run.before, run.after} <= seen
    assert len(seen) >= 3


def test_the_sync_of_a_compaction_is_missed_when_it_is_left_out(tmp_path: Path) -> None:
    run = Compacted(tmp_path)
    made = {
        op.detail
        for op in run.disk.journal
        if op.kind == "sync" and op.detail.lines and op.detail.lines[0].startswith("storage/compaction.py")
    }
    assert {site.role for site in made} == {"*.log", "*.index", "*.timeindex"}
    # An index that does not match its log is rebuilt when it is read: its sync saves that work.
    assert [str(site) for site in made if site.role == "*.log" and not _is_missed(run, site)] == []


def _is_missed(run: Compacted, site: Site) -> bool:
    for upto in range(run.start, len(run.disk.journal) + 1):
        for seed, mode in enumerate(("names", "some", "none")):
            try:
                run.look(upto, seed + upto, mode, lambda one: one == site)
            except Exception:
                run.look(upto, seed + upto, mode)  # it is only due to that sync
                return True
    return False


# -- limits and checkpoints --------------------------------------------------------------------------------------------


class Clock:
    """A clock that advances when somebody waits. `limit` is in bytes per second."""

    def __init__(self, limit: float) -> None:
        self.now, self.limit = 100.0, limit
        self.throttle = Throttle(lambda: self.limit, lambda: self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def seconds_for(self, count: int) -> float:
        before = self.now
        self.throttle.spend(count, self.wait)
        return self.now - before


def test_the_throttle_waits_for_what_is_above_the_limit() -> None:
    clock = Clock(1000)
    assert clock.seconds_for(500) == pytest.approx(0.5)
    assert clock.seconds_for(1500) == pytest.approx(1.5)
    clock.now += 10
    assert clock.seconds_for(1000) == pytest.approx(1)  # nothing was saved up
    Throttle().spend(1 << 60, clock.wait)
    assert clock.now == pytest.approx(113)


def test_a_limit_that_is_raised_ends_the_wait_for_the_one_before() -> None:
    clock = Clock(1)

    def wait(seconds: float) -> None:
        clock.now += seconds
        clock.limit = 1000.0

    before = clock.now
    clock.throttle.spend(10_000, wait)
    assert clock.now - before < 12


def test_a_wait_that_is_told_to_stop_ends() -> None:
    clock = Clock(1)
    clock.throttle.spend(1 << 40, lambda _: True)
    assert clock.now == 100


def test_reads_and_writes_are_throttled(tmp_path: Path) -> None:
    class Counting(Throttle):
        total = 0

        def spend(self, count: int, wait: object) -> None:
            self.total += count

    throttle = Counting()
    vnode = created(tmp_path / "t-0", CONFIG)
    filled(vnode, 60)
    figures = clean(vnode, limits=CompactionLimits(throttle=throttle))
    assert figures is not None
    assert throttle.total == 2 * figures.bytes_before + figures.bytes_after


async def test_how_far_a_log_is_clean_outlives_a_restart_but_not_the_topic(tmp_path: Path) -> None:
    path = tmp_path / "data"
    directory = DataDir.open(path, node_id=1)
    await directory.load()
    vnode = directory.create_vnode("t", 0, TOPIC_ID, CONFIG)
    filled(vnode, 60)
    clean(vnode)
    cleaned_to = vnode.cleaned_to
    await directory.close()
    assert (path / "cleaner-offset-checkpoint").read_text() == f"0\n1\nt 0 {cleaned_to}\n"
    directory = DataDir.open(path, node_id=1)
    await directory.load()
    assert directory.vnodes["t", 0].cleaned_to == cleaned_to
    directory.delete_vnode("t", 0)
    directory.create_vnode("t", 0, bytes(range(1, 17)), CONFIG)
    assert directory.vnodes["t", 0].cleaned_to == 0
    await directory.close()
    shutil.rmtree(path / "t-0")
    (path / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {cleaned_to}\n")
    directory = DataDir.open(path, node_id=1)
    await directory.load()
    directory.create_vnode("t", 0, bytes(range(2, 18)), CONFIG)
    await directory.close()
    (path / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {cleaned_to}\n")
    (path / "topic-id-checkpoint").write_text("0\n1\nt 0 AAAAAAAAAAAAAAAAAAAAAA\n")
    directory = DataDir.open(path, node_id=1)
    await directory.load()
    assert directory.vnodes["t", 0].cleaned_to == 0
    await directory.close()


def test_a_checkpoint_that_the_log_does_not_reach_counts_for_nothing(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", CONFIG)
    filled(vnode, 60)
    vnode.cleaned_to = 1000
    figures = clean(vnode)
    assert figures is not None
    assert figures.from_offset == 0
