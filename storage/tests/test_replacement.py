"""New segments replace old ones, all or none, at any interruption; readers of the old ones go on."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from barnabas.storage.config import LogConfig
from barnabas.storage.data_dir import DataDir
from barnabas.storage.errors import StorageError
from barnabas.storage.files import OpenFile
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.log_reader import BeingReplacedError, LogDirReader
from barnabas.storage.recovery import needs_repair, recover_partition
from barnabas.storage.salvage import filler
from barnabas.storage.segment import CLEANED_SUFFIX, SWAP_SUFFIX, Segment, iter_headers
from barnabas.storage.tests.power import Disk, survivor
from barnabas.storage.tests.support import (
    NOW,
    CrashError,
    FaultyIo,
    RecordedEvents,
    created,
    produced,
    read_all,
    vnode_at,
)

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150)
COUNT = 100
Keep = Callable[[int], bool]


def filled(path: Path, io: Io | None = None) -> LocalVnode:
    """A log of COUNT records in several segments, all flushed."""
    path.parent.mkdir(exist_ok=True, parents=True)
    vnode = created(path, CONFIG, io=io)
    for number in range(COUNT):
        vnode.append(produced(number), now_ms=NOW)
    vnode.flush()
    return vnode


def offsets(vnode: LocalVnode) -> list[int]:
    found = read_all(vnode)
    for record in found:
        assert record.value == b"%d" % record.offset
    return [record.offset for record in found]


def cleaned(io: Io, old: Sequence[Segment], end: int, keep: Keep) -> Segment:
    """The kept records of some segments as one segment that ends at `end`, synced under `.cleaned`."""
    new = Segment(old[0].directory, old[0].base_offset, mark=CLEANED_SUFFIX)
    new.start()
    fd = io.open(new.path(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    after = new.base_offset
    for segment in old:
        file = OpenFile(io, segment.path(), os.O_RDONLY)
        for position, header in iter_headers(io, file.fd, 0, segment.size):
            if keep(header.base_offset):
                io.pwritev(fd, (io.pread(file.fd, header.size_in_bytes, position),), new.size)
                new.note(header.last_offset, header.size_in_bytes, header.max_timestamp, 150)
                after = header.last_offset + 1
    if after < end:
        data = filler(after, end)
        io.pwritev(fd, (data,), new.size)
        new.note(end - 1, len(data), -1, 150)
    io.fsync(fd)
    io.close(fd)
    new.finish_times()
    new.replace_indexes(io)
    return new


def compact(vnode: LocalVnode, io: Io, keep: Keep = lambda offset: offset % 3 == 0) -> None:
    """Replace the second to the fifth segment by two smaller ones."""
    segments = vnode.segments
    assert len(segments) > 6
    first = cleaned(io, segments[1:4], segments[4].base_offset, keep)
    second = cleaned(io, segments[4:5], segments[5].base_offset, keep)
    vnode.replace(segments[1:5], [first, second])


def compacted(bases: list[int]) -> list[int]:
    return [offset for offset in range(COUNT) if not bases[1] <= offset < bases[5] or offset % 3 == 0]


def bases_of(vnode: LocalVnode) -> list[int]:
    return [segment.base_offset for segment in vnode.segments]


def leftovers(path: Path) -> list[str]:
    return [file.name for file in path.iterdir() if file.suffix in (CLEANED_SUFFIX, SWAP_SUFFIX, ".deleted", ".tmp")]


def test_readers_get_the_new_segments_and_those_with_a_slice_of_an_old_one_go_on(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    vnode = filled(path)
    bases = bases_of(vnode)
    held = vnode.read(bases[2], 500).slice
    assert held is not None
    before = held.read()
    vnode.read(bases[3], 100)  # and a hint for where the next read begins
    compact(vnode, Io())
    assert held.read() == before
    assert offsets(vnode) == compacted(bases)
    assert bases_of(vnode) == [bases[0], bases[1], *bases[4:]]
    assert [vnode.read(offset, 1).slice is not None for offset in (bases[2], bases[3])] == [True, True]
    assert vnode.append(produced(COUNT), now_ms=NOW).base_offset == COUNT
    vnode.flush()
    vnode.close()
    assert not leftovers(path)
    assert not needs_repair(Io(), str(path))
    assert offsets(vnode_at(path, CONFIG)) == [*compacted(bases), COUNT]


def test_the_new_segments_are_found_by_time_and_have_the_indexes_that_were_written(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    vnode = filled(path)
    compact(vnode, Io())
    for segment in vnode.segments[:-1]:
        indexes = [path / f"{segment.base_offset:020d}{suffix}" for suffix in (".index", ".timeindex")]
        written = [file.read_bytes() for file in indexes]
        segment.rebuild_indexes(Io(), OpenFile(Io(), segment.path(), os.O_RDONLY), 150)
        segment.replace_indexes(Io())
        assert [file.read_bytes() for file in indexes] == written
    assert vnode.offset_for_timestamp(NOW) == (0, NOW)


@pytest.mark.parametrize("kind", ["before", "after", "torn"])
def test_a_kill_at_any_step_leaves_all_of_the_old_or_all_of_the_new(tmp_path: Path, kind: str) -> None:
    template = tmp_path / "template" / "t-0"
    whole = filled(template)
    bases, end = bases_of(whole), whole.log_end_offset
    whole.close()
    seen = set()
    for at in range(1, 200):
        path = tmp_path / str(at) / "t-0"
        shutil.copytree(template, path)
        io = FaultyIo(-1, kind)
        vnode = vnode_at(path, CONFIG, io=io)
        vnode.load()
        io.at, io.calls = at, 0
        with contextlib.suppress(CrashError):
            compact(vnode, io)
        for again in range(1, 40):  # and a kill at any step of the recovery
            second = FaultyIo(again, kind)
            with contextlib.suppress(CrashError):
                recover_partition(second, str(path), end, CONFIG, RecordedEvents())
                break
        found = offsets(vnode_at(path, CONFIG))
        assert found in (list(range(COUNT)), compacted(bases))
        seen.add(len(found))
        assert not leftovers(path)
        if io.calls < at:
            break
    assert io.calls < at, "every call was met"
    assert len(seen) == 2


@pytest.mark.parametrize("kind", ["eio", "enospc"])
def test_after_an_error_the_log_is_the_old_one_or_the_new_one(tmp_path: Path, kind: str) -> None:
    template = tmp_path / "template" / "t-0"
    whole = filled(template)
    bases = bases_of(whole)
    whole.close()
    seen = set()
    for at in range(1, 200):
        path = tmp_path / str(at) / "t-0"
        shutil.copytree(template, path)
        io = FaultyIo(-1, kind)
        vnode = vnode_at(path, CONFIG, io=io, tell=RecordedEvents())
        vnode.load()
        io.at, io.calls = at, 0
        with contextlib.suppress(StorageError, OSError):
            compact(vnode, io)
        met, io.at = io.calls >= at, -1
        if vnode.error is not None:
            assert kind == "eio", "a full disk passes"
            recover_partition(Io(), str(path), COUNT, CONFIG, RecordedEvents())
            vnode = vnode_at(path, CONFIG)
        found = offsets(vnode)
        assert found in (list(range(COUNT)), compacted(bases))
        seen.add(len(found))
        assert vnode.append(produced(COUNT), now_ms=NOW).base_offset == COUNT
        vnode.flush()
        if len(found) == COUNT:  # it can be tried again
            compact(vnode, Io())
            assert offsets(vnode) == [*compacted(bases), COUNT]
        recover_partition(Io(), str(path), 0, CONFIG, RecordedEvents())
        assert offsets(vnode_at(path, CONFIG)) == [*compacted(bases), COUNT]
        if not met:
            break
    assert not met, "every call was met"
    assert len(seen) == 2


def test_a_power_loss_leaves_all_of_the_old_or_all_of_the_new(tmp_path: Path) -> None:
    life = tmp_path / "life"
    life.mkdir()
    disk = Disk(life)
    vnode = filled(life / "t-0", disk)
    bases = bases_of(vnode)
    vnode.flush()
    start = len(disk.journal)
    compact(vnode, disk)
    vnode.append(produced(COUNT), now_ms=NOW)
    vnode.flush()
    done = len(disk.journal)
    seen = set()
    for upto in range(start, done + 1):
        for seed, mode in enumerate(("some", "names")):
            state = tmp_path / "state"
            shutil.rmtree(state, ignore_errors=True)
            survivor(disk.journal[:upto], state, random.Random(seed + upto), mode=mode)
            recover_partition(Io(), str(state / "t-0"), COUNT, CONFIG, RecordedEvents())
            found = offsets(vnode_at(state / "t-0", CONFIG))
            assert [offset for offset in found if offset < COUNT] in (list(range(COUNT)), compacted(bases))
            if upto == done:
                assert found == [*compacted(bases), COUNT]
            seen.add(len(found))
    assert len(seen) >= 2


def test_what_recovery_could_not_finish_is_refused(tmp_path: Path) -> None:
    io = Io()
    vnode = filled(tmp_path / "t-0")
    segments = vnode.segments

    def refused(old: Sequence[Segment], new: Sequence[Segment]) -> None:
        with pytest.raises(ValueError):
            vnode.replace(old, new)

    everything: Keep = lambda offset: True  # noqa: E731
    refused(segments[1:3], [])
    refused(segments[1:3], [cleaned(io, segments[2:3], segments[3].base_offset, everything)])
    refused([segments[1], segments[3]], [cleaned(io, segments[1:2], segments[4].base_offset, everything)])
    refused(segments[-1:], [cleaned(io, segments[-1:], COUNT, everything)])
    refused(segments[1:3], [cleaned(io, segments[1:2], segments[2].base_offset, everything)])  # ends too early
    refused(segments[1:2], [cleaned(io, segments[1:3], segments[3].base_offset, everything)])  # and too late
    vnode.append(produced(COUNT), now_ms=NOW)
    vnode.roll(NOW)
    unseen = vnode.segments[-2:-1]
    refused(unseen, [cleaned(io, unseen, COUNT + 1, everything)])  # not flushed: above the high watermark
    vnode.flush()
    assert offsets(vnode) == list(range(COUNT + 1))


def test_what_a_failed_attempt_left_does_not_undo_the_next_replacement(tmp_path: Path) -> None:
    """A `.log.cleaned` of an earlier segment would say that the `.swap` files after it are not complete."""
    path = tmp_path / "t-0"
    vnode = filled(path)
    bases = bases_of(vnode)
    cleaned(Io(), vnode.segments[:1], bases[1], lambda offset: True)
    vnode.close()
    io = FaultyIo(-1, "before")
    vnode = vnode_at(path, CONFIG, io=io)
    vnode.load()
    segments = vnode.segments
    new = cleaned(io, segments[1:5], bases[5], lambda offset: offset % 3 == 0)
    io.at, io.calls = 8, 0  # three unlinks, three renames of the new one, and one rename of the old ones
    with pytest.raises(CrashError):
        vnode.replace(segments[1:5], [new])
    assert (path / f"{bases[1]:020d}.log.swap").exists()
    recover_partition(Io(), str(path), 0, CONFIG, RecordedEvents())
    assert offsets(vnode_at(path, CONFIG)) == compacted(bases)


def test_a_replacement_that_kafka_had_not_finished_is_finished(tmp_path: Path) -> None:
    """Kafka has renamed the old segments away; the new one's files are still `.swap`."""
    path = tmp_path / "t-0"
    vnode = filled(path)
    bases = bases_of(vnode)
    new = cleaned(Io(), vnode.segments[1:5], bases[5], lambda offset: offset % 3 == 0)
    vnode.close()
    for suffix in (".log", ".index", ".timeindex"):
        name = new.path(suffix).removesuffix(CLEANED_SUFFIX)
        for base in bases[2:4]:
            (path / f"{base:020d}{suffix}").rename(path / f"{base:020d}{suffix}.deleted")
        os.rename(name + CLEANED_SUFFIX, name + SWAP_SUFFIX)
    assert needs_repair(Io(), str(path))
    recover_partition(Io(), str(path), COUNT, CONFIG, RecordedEvents())
    assert offsets(vnode_at(path, CONFIG)) == compacted(bases)
    assert not leftovers(path)


def test_a_damaged_byte_in_a_segment_that_was_being_put_in_place_costs_its_batch(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    vnode = filled(path)
    bases = bases_of(vnode)
    new = cleaned(Io(), vnode.segments[1:5], bases[5], lambda offset: True)
    vnode.close()
    for suffix in (".index", ".timeindex", ".log"):
        name = new.path(suffix).removesuffix(CLEANED_SUFFIX)
        os.rename(name + CLEANED_SUFFIX, name + SWAP_SUFFIX)
    file = path / f"{bases[1]:020d}.log.swap"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    told = RecordedEvents()
    recover_partition(Io(), str(path), 0, CONFIG, told)
    found = offsets(vnode_at(path, CONFIG))
    lost = sorted(set(range(COUNT)) - set(found))
    assert 1 <= len(lost) <= 4
    assert len(told.named("log.damaged")) == 1


def test_readers_of_the_files_are_told_while_neither_the_old_nor_the_new_segments_are_there(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\n")
    path = tmp_path / "t-0"
    vnode = filled(path)
    bases = bases_of(vnode)
    vnode.close()
    reader = LogDirReader(str(tmp_path)).partition(("t", 0))
    said = set()

    class Watching(Io):
        def replace(self, source: str, target: str) -> None:
            super().replace(source, target)
            try:
                said.add(tuple(segment.base_offset for segment in reader.segments()))
            except BeingReplacedError:
                said.add(())

    vnode = vnode_at(path, CONFIG, io=Watching())
    vnode.load()
    said.clear()
    compact(vnode, Io())
    new = [bases[0], bases[1], *bases[4:]]
    said.add(tuple(segment.base_offset for segment in reader.segments()))
    assert said == {tuple(bases), (), tuple(new)}


async def test_what_could_not_be_put_in_place_is_not_tried_again_at_once(tmp_path: Path) -> None:
    """Because each try copies the segment."""

    class NoRoom(Io):
        def replace(self, source: str, target: str) -> None:
            if target.endswith(SWAP_SUFFIX):
                raise OSError(errno.ENOSPC, "No space left on device")
            super().replace(source, target)

    told = RecordedEvents()
    data_dir = DataDir.open(tmp_path, node_id=1, io=NoRoom(), tell=told)
    vnode = data_dir.create_vnode("t", 0, bytes(16), CONFIG)
    for number in range(COUNT):
        vnode.append(produced(number), now_ms=NOW)
    vnode.flush()
    segment = vnode.segments[1]
    with open(segment.path(), "r+b") as file:
        file.write(bytes(50))
    for _ in range(3):
        vnode.found_damage(segment.base_offset, ValueError("seen by a reader"))
        await data_dir.upkeep.mend_damaged()
    assert len(told.named("log.not.mended")) == 1
    assert vnode.error is None
    await data_dir.close()


def test_a_segment_that_proves_to_be_whole_stays(tmp_path: Path) -> None:
    """Only its indexes were wrong: they are rebuilt."""
    path = tmp_path / "t-0"
    vnode = filled(path)
    segment = vnode.segments[1]
    written = Path(segment.path(".index")).read_bytes()
    Path(segment.path(".index")).write_bytes(written[:-8] + b"\x01" * 8)
    inode = os.stat(segment.path()).st_ino
    vnode.repair(segment)
    assert vnode.segments[1] is segment
    assert os.stat(segment.path()).st_ino == inode
    assert offsets(vnode) == list(range(COUNT))
    assert Path(segment.path(".index")).read_bytes() == written
    assert not leftovers(path)


@pytest.mark.parametrize("kind", ["before", "after", "torn", "eio", "enospc"])
def test_a_fault_while_damage_is_mended_under_readers_loses_nothing_more(tmp_path: Path, kind: str) -> None:
    template = tmp_path / "template" / "t-0"
    whole = filled(template)
    bases = bases_of(whole)
    whole.close()
    file = template / f"{bases[1]:020d}.log"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    expected = None
    for at in range(1, 60):
        path = tmp_path / str(at) / "t-0"
        shutil.copytree(template, path)
        io = FaultyIo(-1, kind)
        vnode = vnode_at(path, CONFIG, io=io, tell=RecordedEvents())
        vnode.load()
        io.at, io.calls = at, 0
        with contextlib.suppress(CrashError, StorageError):
            vnode.repair(vnode.segments[1])
        recover_partition(Io(), str(path), 0, CONFIG, RecordedEvents())
        found = offsets(vnode_at(path, CONFIG))
        expected = expected or found
        assert found == expected
        assert len(found) >= COUNT - 4
        assert not leftovers(path)
        assert len(list(path.glob("*.damaged-*"))) == 1
        if io.calls < at:
            break
    assert io.calls < at, "every call was met"
