"""The log cleaner: which log is due, logs that cannot be cleaned, and a stop during a compaction."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import trio
import trio.testing

from barnabas.storage.cleaner import NEXT_TRY_SECONDS, Cleaner, CleanerSettings
from barnabas.storage.compaction_terms import CompactionLimits, Throttle
from barnabas.storage.errors import StorageError
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.tests.compacting import CONFIG, filled, keyed, pairs
from barnabas.storage.tests.support import NOW, RecordedEvents, created, read_all, vnode_at


def cleaner_of(
    *vnodes: LocalVnode, settings: CleanerSettings | None = None, now_ms: int = NOW
) -> tuple[Cleaner, RecordedEvents]:
    events = RecordedEvents()
    found = settings or CleanerSettings()
    by_key = {(vnode.topic, vnode.partition): vnode for vnode in vnodes}
    return Cleaner(by_key, lambda: found, lambda: now_ms, events), events


def logs(tmp_path: Path, *counts: int, **changes: object) -> list[LocalVnode]:
    """Logs with these numbers of records. The first half of each is clean."""
    config = msgspec.structs.replace(CONFIG, **changes)
    found = []
    for number, count in enumerate(counts):
        vnode = created(tmp_path / f"t{number}-0", config)
        vnode.topic = f"t{number}"
        filled(vnode, count)
        found.append(vnode)
    return found


async def test_the_filthiest_log_comes_first_but_for_one_that_must(tmp_path: Path) -> None:
    some, more = logs(tmp_path, 100, 100, min_cleanable_dirty_ratio=0.2)
    some.cleaned_to = some.segments[6].base_offset
    more.cleaned_to = more.segments[3].base_offset
    cleaner, _ = cleaner_of(some, more)
    assert await cleaner.filthiest() is more
    some.config = msgspec.structs.replace(some.config, max_compaction_lag_ms=1)
    cleaner, _ = cleaner_of(some, more, now_ms=NOW + 1000)
    assert await cleaner.filthiest() is some


async def test_a_log_below_its_ratio_is_left_alone(tmp_path: Path) -> None:
    (vnode,) = logs(tmp_path, 100)
    vnode.cleaned_to = vnode.segments[-3].base_offset
    cleaner, _ = cleaner_of(vnode)
    assert await cleaner.filthiest() is None
    vnode.config = msgspec.structs.replace(vnode.config, min_cleanable_dirty_ratio=0.1)
    assert await cleaner.filthiest() is vnode


async def test_a_log_that_nobody_has_used_is_looked_at_without_loading_it(tmp_path: Path) -> None:
    (vnode,) = logs(tmp_path, 100)
    cleaned_to = vnode.segments[-1].base_offset
    vnode.close()
    fresh = vnode_at(tmp_path / "t0-0", CONFIG)
    fresh.cleaned_to = cleaned_to
    cleaner, _ = cleaner_of(fresh)
    assert await cleaner.filthiest() is None
    assert not fresh.loaded
    fresh.cleaned_to = 0
    assert await cleaner.filthiest() is fresh


async def test_it_cleans_what_is_due_and_tells_the_figures(tmp_path: Path) -> None:
    vnodes = logs(tmp_path, 100, 50)
    before = [pairs(read_all(vnode)) for vnode in vnodes]
    cleaner, events = cleaner_of(*vnodes, settings=CleanerSettings(threads=2))
    async with trio.open_nursery() as nursery:

        def tell(event: str, /, **fields: object) -> None:
            events(event, **fields)
            if len(events.events) == 2:
                nursery.cancel_scope.cancel()

        cleaner._tell = tell
        nursery.start_soon(cleaner.run)
    assert [pairs(read_all(vnode)) for vnode in vnodes] == before
    told = events.named("log.cleaned")
    assert sorted(str(each["topic"]) for each in told) == ["t0", "t1"]
    for fields in told:
        assert isinstance(fields["bytes_before"], int)
        assert isinstance(fields["bytes_after"], int)
        assert fields["bytes_before"] > fields["bytes_after"]
    vnodes[0].append(keyed(b"k0", b"later"), now_ms=NOW)
    assert await cleaner.filthiest() is None


async def test_nothing_is_cleaned_when_it_is_off(tmp_path: Path, autojump_clock: object) -> None:
    vnodes = logs(tmp_path, 100)
    for settings in (CleanerSettings(enabled=False), CleanerSettings(threads=0)):
        cleaner, events = cleaner_of(*vnodes, settings=settings)
        with trio.move_on_after(40):
            await cleaner.run()
        assert not events.events


async def test_a_log_that_cannot_be_cleaned_is_told_once_and_left_alone_for_a_while(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    def refuse(now_ms: int, limits: CompactionLimits) -> None:
        raise StorageError("no room")

    class Refusing(LocalVnode):
        __slots__ = ()
        begin_compaction = staticmethod(refuse)

    (vnode,) = logs(tmp_path, 100)
    vnode.__class__ = Refusing
    cleaner, events = cleaner_of(vnode)
    for _ in range(2):
        assert await cleaner.filthiest() is vnode
        assert await cleaner.clean(vnode, CleanerSettings()) is None
        assert await cleaner.filthiest() is None
        mock_clock.jump(NEXT_TRY_SECONDS)
    assert len(events.named("log.not.cleaned")) == 1
    vnode.__class__ = LocalVnode
    assert await cleaner.clean(vnode, CleanerSettings()) is not None
    assert await cleaner.filthiest() is None


async def test_a_stop_ends_the_thread_soon_and_leaves_no_files(tmp_path: Path) -> None:
    (vnode,) = logs(tmp_path, 100)
    before = read_all(vnode)
    waits = threading.Event()

    class Endless(Throttle):
        def spend(self, count: int, wait: object) -> None:
            waits.set()
            assert callable(wait)
            wait(3600)

    settings = CleanerSettings(limits=CompactionLimits(throttle=Endless()))
    cleaner, events = cleaner_of(vnode, settings=settings)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cleaner.run)
        await trio.to_thread.run_sync(waits.wait)
        nursery.cancel_scope.cancel()
    assert not events.events
    assert not [file for file in Path(vnode.directory).iterdir() if "cleaned" in file.name]
    assert read_all(vnode) == before
    assert vnode.begin_compaction(NOW, CompactionLimits()) is not None
