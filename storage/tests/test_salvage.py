"""Only damaged batches are lost: whole ones stay readable, damage is set aside, and each finding is reported."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path

import pytest
import trio

from barnabas.storage.config import LogConfig
from barnabas.storage.data_dir import DataDir
from barnabas.storage.errors import StorageError
from barnabas.storage.files import FileCache
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.recovery import kept_end, recover_partition
from barnabas.storage.salvage import KEPT_FILES, filler
from barnabas.storage.tests.support import (
    NOW,
    TOPIC_ID,
    CrashError,
    FaultyIo,
    RecordedEvents,
    created,
    one,
    produced,
    read_all,
    vnode_at,
)
from barnabas.wire import batch
from barnabas.wire.batch import Record
from barnabas.wire.errors import KafkaError

CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=200)
COUNT = 300


def filled(path: Path, *, clean: bool = False, config: LogConfig = CONFIG) -> list[int]:
    """Make a log of COUNT records, one in each batch; gives the base offsets of its segments."""
    path.parent.mkdir(exist_ok=True)
    vnode = created(path, config)
    for number in range(COUNT):
        vnode.append(produced(number), now_ms=NOW)
    vnode.flush()
    bases = [segment.base_offset for segment in vnode.segments]
    if clean:
        vnode.close()
    else:
        vnode.write_indexes()
    return bases


def flip(path: Path, base: int, at: int, bit: int = 0) -> None:
    file = path / f"{base:020d}.log"
    data = bytearray(file.read_bytes())
    data[at % len(data)] ^= 1 << bit
    file.write_bytes(data)


def reopened(path: Path, told: RecordedEvents, *, point: int = 0, config: LogConfig = CONFIG) -> LocalVnode:
    """The vnode after recovery."""
    recover_partition(Io(), str(path), point, config, told)
    return vnode_at(path, config, tell=told)


def offsets(vnode: LocalVnode) -> list[int]:
    found = read_all(vnode)
    for record in found:
        assert record.value == b"%d" % record.offset
    return [record.offset for record in found]


def insisting(vnode: LocalVnode) -> list[int]:
    """Like `offsets`, but by a client that checks the CRC and asks again."""
    found: list[int] = []
    offset, tries = vnode.log_start_offset, 0
    while offset < vnode.high_watermark:
        tries += 1
        assert tries < 1000, "no way past the damage"
        with contextlib.suppress(KafkaError):
            result = vnode.read(offset, 300)
            assert result.slice is not None
            for header, view in batch.iter_batches(result.slice.read()):
                batch.check(view)
                found += [record.offset for record in batch.iter_records(view)]
                offset = header.last_offset + 1
    return found


def set_aside(path: Path) -> list[Path]:
    return sorted(path.glob("*.log.damaged-*"))


def test_a_flipped_bit_in_the_first_of_many_segments_costs_what_one_index_interval_holds(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    bases = filled(path)
    assert len(bases) > 5
    flip(path, 0, 700)
    told = RecordedEvents()
    vnode = reopened(path, told)
    found = offsets(vnode)
    lost = sorted(set(range(COUNT)) - set(found))
    assert 1 <= len(lost) <= 6
    assert lost == list(range(lost[0], lost[-1] + 1))
    ((event, fields),) = told.events
    assert event == "log.damaged"
    assert (fields["topic"], fields["partition"]) == ("t", 0)
    assert (fields["first_offset"], fields["next_offset"]) == (lost[0], lost[-1] + 1)
    (kept,) = set_aside(path)
    assert kept.stat().st_size == fields["bytes"]
    assert fields["action"] == f"kept as {kept.name}"
    assert vnode.append(produced(COUNT), now_ms=NOW).base_offset == COUNT
    assert vnode.append(produced(COUNT), now_ms=NOW).duplicate
    again = RecordedEvents()
    assert offsets(reopened(path, again)) == [*found, COUNT]
    assert not again.events


def test_one_segment_loses_no_more_than_entries_wait_in_memory(tmp_path: Path) -> None:
    config = LogConfig(index_interval_bytes=200)
    path = tmp_path / "t-0"
    vnode = created(path, config)
    for number in range(COUNT):
        vnode.append(produced(number), now_ms=NOW)
    vnode.flush()  # as after a kill: the indexes were not written
    flip(path, 0, vnode.size_bytes // 2)
    assert len(offsets(reopened(path, RecordedEvents(), config=config))) > COUNT - 10


@pytest.mark.parametrize("clean", [False, True])
def test_a_bit_anywhere_costs_little_and_nothing_is_made_up(tmp_path: Path, clean: bool) -> None:
    template = tmp_path / "template" / "t-0"
    bases = filled(template, clean=clean)
    pick = random.Random(5)
    for number in range(120):
        path = tmp_path / str(number) / "t-0"
        shutil.copytree(template, path)
        base = pick.choice(bases)
        data = (path / f"{base:020d}.log").read_bytes()
        at = pick.randrange(len(data))
        flip(path, base, at, pick.randrange(8))
        told = RecordedEvents()
        point = pick.choice([0, bases[2], COUNT])
        if base < point and any(start <= at < start + 8 for start, _ in positions(data)):
            continue  # a base offset, which no CRC covers and recovery does not check
        end = kept_end(Io(), str(path), point)
        vnode = reopened(path, told, point=point)
        assert vnode.log_end_offset == end >= point
        found = insisting(vnode)  # below the recovery point nothing was checked: the reader finds it
        assert len(found) >= COUNT - 25
        assert vnode.error is None
        if len(found) < COUNT:
            assert told.events


def test_bytes_in_a_payload_that_look_like_a_batch_are_never_taken_for_one(tmp_path: Path) -> None:
    """The length of the batch is damaged, so that it ends where a batch in its payload begins."""
    path = tmp_path / "t-0"
    config = LogConfig(index_interval_bytes=1 << 20)
    vnode = created(path, config)
    vnode.append(one(b"first"), now_ms=NOW)
    forged = b"".join(batch.build_batch([Record(b"k", b"forged", NOW)], base_offset=base) for base in range(2, 40))
    vnode.append(one(forged), now_ms=NOW)
    for _ in range(5):
        vnode.append(one(b"after"), now_ms=NOW)
    vnode.flush()
    file = Path(vnode.segments[0].path())
    data = bytearray(file.read_bytes())
    start = len(one(b"first"))
    inner = data.index(forged) - start
    data[start + 8 : start + 12] = (inner - 12).to_bytes(4, "big")
    file.write_bytes(data)
    told = RecordedEvents()
    values = [record.value for record in read_all(reopened(path, told, config=config))]
    assert values == [b"first"]
    assert len(set_aside(path)) == 1


@pytest.mark.parametrize("jump", [1, 64, 4096, 2**33, -1])
def test_a_wrong_base_offset_costs_its_batch(tmp_path: Path, jump: int) -> None:
    """The CRC does not cover it."""
    path = tmp_path / "t-0"
    filled(path)
    file = path / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    at = next(pos for pos, header in positions(bytes(data)) if header.base_offset == 9)
    data[at : at + 8] = (9 + jump).to_bytes(8, "big")
    file.write_bytes(data)
    told = RecordedEvents()
    assert offsets(reopened(path, told)) == [offset for offset in range(COUNT) if offset != 9]
    assert len(told.named("log.damaged")) == 1


def positions(data: bytes) -> list[tuple[int, batch.BatchHeader]]:
    found, at = [], 0
    for header, view in batch.iter_batches(data):
        found.append((at, header))
        at += len(view)
    return found


def test_a_torn_tail_is_cut_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    bases = filled(path)
    with open(path / f"{bases[-1]:020d}.log", "ab") as file:
        file.write(produced(COUNT)[:50])
    told = RecordedEvents()
    assert offsets(reopened(path, told)) == list(range(COUNT))
    ((event, fields),) = told.events
    assert (event, fields["first_offset"], fields["bytes"], fields["action"]) == ("log.cut", COUNT, 50, "cut off")
    assert not set_aside(path)


def test_offsets_that_were_acknowledged_are_not_given_out_again(tmp_path: Path) -> None:
    """The last batch of the log is damaged; the checkpoint says that it was durable."""
    path = tmp_path / "t-0"
    bases = filled(path)
    flip(path, bases[-1], -3)
    told = RecordedEvents()
    vnode = reopened(path, told, point=COUNT)
    assert vnode.log_end_offset == COUNT
    assert vnode.append(one(b"new"), now_ms=NOW).base_offset == COUNT
    assert len(told.named("log.damaged")) == 1
    data = filler(5, 9)
    assert (batch.check(data).base_offset, batch.check(data).last_offset, list(batch.iter_records(data))) == (5, 8, [])


def test_a_whole_segment_of_garbage_is_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    bases = filled(path)
    for damaged in (bases[0], bases[2]):
        file = path / f"{damaged:020d}.log"
        file.write_bytes(b"\xa5" * file.stat().st_size)
    vnode = reopened(path, RecordedEvents())
    assert vnode.log_start_offset == 0
    assert offsets(vnode) == [*range(bases[1], bases[2]), *range(bases[3], COUNT)]
    vnode.config = LogConfig(segment_bytes=4000, retention_bytes=5000, retention_ms=-1)
    vnode.apply_retention(NOW)
    assert vnode.size_bytes < 10_000, "a segment without records does not hold up retention"


def test_what_is_lost_of_a_segment_that_was_rolled_before_a_flush_is_no_duplicate_when_it_is_sent_again(
    tmp_path: Path,
) -> None:
    """The next segment's name and the snapshot had reached the disk, the batches had not."""
    path = tmp_path / "t-0"
    vnode = created(path, CONFIG)
    for number in range(10):
        vnode.append(produced(number), now_ms=NOW)
    vnode.roll(NOW)
    log = path / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:50])
    again = reopened(path, RecordedEvents())
    assert again.log_end_offset == 10
    assert read_all(again) == []
    sent = again.append(produced(0), now_ms=NOW)
    assert (sent.duplicate, sent.base_offset) == (False, 10)


@pytest.mark.parametrize("kind", ["before", "after", "torn", "eio", "enospc", "short"])
def test_a_fault_while_damage_is_set_aside_loses_nothing_more(tmp_path: Path, kind: str) -> None:
    template = tmp_path / "template" / "t-0"
    filled(template)
    flip(template, 0, 700)
    expected = None
    for at in range(60):
        path = tmp_path / str(at) / "t-0"
        shutil.copytree(template, path)
        io = FaultyIo(at, kind)
        try:
            recover_partition(io, str(path), 0, CONFIG, RecordedEvents())
        except (OSError, CrashError):
            pass
        found = offsets(reopened(path, RecordedEvents()))
        expected = expected or found
        assert found == expected
        assert len(set_aside(path)) == 1
    assert io.calls < 60, "every call was met"


def test_a_reader_that_meets_damage_gets_past_it_and_nothing_goes_offline(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    bases = filled(path, clean=True)
    told = RecordedEvents()
    vnode = LocalVnode(str(path), "t", 0, CONFIG, io=Io(), cache=FileCache(Io(), 4), tell=told)
    vnode.load()
    flip(path, bases[1], 700)
    lost_at = next(offset for offset in range(bases[1], bases[2]) if not whole(vnode, offset))
    held = vnode.read(bases[1], 1500).slice
    assert held is not None
    before = held.read()
    for _ in range(2):
        with contextlib.suppress(StorageError):
            vnode.read(lost_at, 300)
    found = vnode.read(lost_at, 300)
    assert found.slice is not None
    assert batch.check(found.slice.read()).base_offset > lost_at
    assert held.read() == before, "a slice stays what it was"
    assert vnode.error is None
    readable = offsets(vnode)
    assert len(readable) >= COUNT - 6
    assert [event for event, _ in told.events] == ["log.damaged"]
    vnode.append(produced(COUNT), now_ms=NOW)
    vnode.flush()
    assert offsets(vnode) == [*readable, COUNT]
    assert offsets(reopened(path, RecordedEvents())) == [*readable, COUNT]


def whole(vnode: LocalVnode, offset: int) -> bool:
    found = vnode.read(offset, 1).slice
    assert found is not None
    try:
        batch.check(found.read())
    except Exception:
        return False
    return True


async def test_a_data_directory_mends_in_a_thread_what_a_reader_met_in_the_active_segment(tmp_path: Path) -> None:
    told = RecordedEvents()
    data_dir = DataDir.open(tmp_path, node_id=1, tell=told)
    await data_dir.load(config_of=lambda topic: CONFIG)
    vnode = data_dir.create_vnode("t", 0, TOPIC_ID, LogConfig(index_interval_bytes=200))
    for number in range(COUNT):
        vnode.append(produced(number), now_ms=NOW)
    vnode.flush()
    with open(vnode.segments[0].path(), "r+b") as file:
        file.seek(vnode.size_bytes // 2)
        file.write(b"\xff" * 30)
    async with trio.open_nursery() as nursery:
        await nursery.start(data_dir.run)
        found: list[int] = []
        offset = 0
        with trio.fail_after(60):
            while offset < COUNT:
                with contextlib.suppress(KafkaError):  # like a client that checks the CRC and asks again
                    result = vnode.read(offset, 300)
                    assert result.slice is not None
                    for header, view in batch.iter_batches(result.slice.read()):
                        batch.check(view)
                        found.append(header.base_offset)
                        offset = header.last_offset + 1
                await trio.sleep(0)
        nursery.cancel_scope.cancel()
    assert len(found) >= COUNT - 6
    assert len(told.named("log.damaged")) == 1
    assert vnode.error is None
    vnode.append(produced(COUNT), now_ms=NOW)
    await data_dir.close()
    again = DataDir.open(tmp_path, node_id=1)
    await again.load()
    assert again.claim.was_clean
    assert offsets(again.vnodes["t", 0]) == [*found, COUNT]
    await again.close()


def test_what_is_set_aside_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    filled(path)
    for _ in range(KEPT_FILES + 5):
        flip(path, 0, -1)
        reopened(path, RecordedEvents())
        vnode = vnode_at(path, CONFIG)
        vnode.close()
        if (path / f"{0:020d}.log").stat().st_size < 200:
            break
    assert len(set_aside(path)) <= KEPT_FILES
