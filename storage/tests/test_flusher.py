"""Group fsync: which callers wait, which are woken, and the effect of an error."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from barnabas.storage.config import LogConfig
from barnabas.storage.errors import NotLeaderError, StorageError
from barnabas.storage.flusher import ALONE_SECONDS, SPOT_BYTES, Flusher
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.tests.support import NOW, created, one, values_of
from barnabas.storage.vnode import Vnode


class HeldIo(Io):
    """An Io whose fdatasync waits until it is released, and can be made to fail."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.count = 0
        self.fails = False

    def fdatasync(self, fd: int) -> None:
        self.count += 1
        self.entered.release()
        self.gate.acquire()
        if self.fails:
            raise OSError(errno.EIO, "Input/output error")

    async def wait_entered(self) -> None:
        await trio.to_thread.run_sync(self.entered.acquire)


async def test_one_fsync_serves_all_who_came_before_it(tmp_path: Path) -> None:
    io = HeldIo()
    vnode = created(tmp_path / "t-0", LogConfig(), io=io)
    flusher = Flusher(io, spot_seconds=0)
    done: list[int] = []

    async def producer(number: int) -> None:
        result = vnode.append(one(b"%d" % number), now_ms=NOW)
        await flusher.flushed(vnode, result.last_offset + 1)
        assert vnode.high_watermark > result.last_offset
        done.append(number)

    async with trio.open_nursery() as nursery:
        await nursery.start(flusher.run)
        nursery.start_soon(producer, 0)
        await io.wait_entered()
        for number in range(1, 11):
            nursery.start_soon(producer, number)
        await trio.testing.wait_all_tasks_blocked()
        assert done == []
        assert vnode.high_watermark == 0
        io.gate.release()
        await io.wait_entered()
        await trio.testing.wait_all_tasks_blocked()
        assert done == [0]
        assert vnode.high_watermark == 1
        io.gate.release()
        while len(done) < 11:
            await trio.lowlevel.checkpoint()
        assert io.count == 2
        nursery.cancel_scope.cancel()


async def test_a_request_moves_the_high_watermark_without_anyone_waiting(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", LogConfig())
    flusher = Flusher()
    moved = trio.Event()
    vnode.on_high_watermark.subscribe(lambda _: moved.set())
    async with trio.open_nursery() as nursery:
        await nursery.start(flusher.run)
        vnode.append(one(b"a"), now_ms=NOW)
        flusher.request(vnode)
        await moved.wait()
        assert values_of(vnode) == [b"a"]
        nursery.cancel_scope.cancel()


async def test_a_failed_fsync_refuses_all_who_wait_and_leaves_other_vnodes_alone(tmp_path: Path) -> None:
    io = HeldIo()
    vnode = created(tmp_path / "t-0", LogConfig(), io=io)
    other = created(tmp_path / "o-0", LogConfig())
    flusher = Flusher(io, spot_seconds=0)
    refused: list[int] = []

    async def producer(number: int) -> None:
        result = vnode.append(one(b"v"), now_ms=NOW)
        with pytest.raises(StorageError, match="Input/output error"):
            await flusher.flushed(vnode, result.last_offset + 1)
        refused.append(number)

    async with trio.open_nursery() as nursery:
        await nursery.start(flusher.run)
        async with trio.open_nursery() as producers:
            producers.start_soon(producer, 0)
            await io.wait_entered()
            producers.start_soon(producer, 1)
            await trio.testing.wait_all_tasks_blocked()
            io.fails = True
            io.gate.release()
        assert sorted(refused) == [0, 1]
        assert io.count == 1
        io.fails = False
        io.gate.release()
        result = other.append(one(b"v"), now_ms=NOW)
        await flusher.flushed(other, result.last_offset + 1)
        assert other.high_watermark == 1
        nursery.cancel_scope.cancel()


async def test_who_begins_to_wait_when_another_node_is_to_lead_the_partition_is_told_at_once(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", LogConfig())
    flusher = Flusher(Io())
    end = vnode.append(one(b"v"), now_ms=NOW).last_offset + 1
    vnode.resign(NotLeaderError("another node will lead t-0"))
    told: list[StorageError | None] = []
    flusher.when_flushed(vnode, end, lambda: told.append(vnode.error))
    assert [type(error) for error in told] == [NotLeaderError]


async def test_the_page_cache_policy_flushes_by_count(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", LogConfig(flush_messages=3))
    flusher = Flusher()
    async with trio.open_nursery() as nursery:
        await nursery.start(flusher.run)
        for _ in range(2):
            result = vnode.append(one(b"v"), now_ms=NOW)
            await flusher.flushed(vnode, result.last_offset + 1)
        assert (vnode.high_watermark, vnode.recovery_point, vnode.unflushed_messages) == (2, 0, 2)
        vnode.append(one(b"v"), now_ms=NOW)
        flusher.request(vnode)
        while vnode.recovery_point < 3:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def test_the_page_cache_policy_flushes_by_time(tmp_path: Path, mock_clock: trio.testing.MockClock) -> None:
    vnode = created(tmp_path / "t-0", LogConfig(flush_messages=10**9, flush_ms=5000))
    flusher = Flusher()
    async with trio.open_nursery() as nursery:
        await nursery.start(flusher.run)
        vnode.append(one(b"v"), now_ms=NOW)
        flusher.request(vnode)
        mock_clock.jump(4.9)
        await trio.testing.wait_all_tasks_blocked()
        assert vnode.unflushed_messages == 1
        mock_clock.jump(0.2)
        while vnode.recovery_point < 1:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def test_cancelling_waits_for_the_flush_that_runs(tmp_path: Path) -> None:
    io = HeldIo()
    vnode = created(tmp_path / "t-0", LogConfig(), io=io)
    flusher = Flusher(io, spot_seconds=0)
    async with trio.open_nursery() as nursery:
        await nursery.start(flusher.run)
        vnode.append(one(b"v"), now_ms=NOW)
        flusher.request(vnode)
        await io.wait_entered()
        nursery.cancel_scope.cancel()
        io.gate.release()
    assert vnode.high_watermark == 1


async def test_a_callback_that_appends_and_asks_for_a_flush_gets_it(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0")
    async with trio.open_nursery() as nursery:
        flusher = Flusher()
        await nursery.start(flusher.run)

        def append_more(vnode: Vnode) -> None:
            if vnode.log_end_offset < 5:
                vnode.append(one(b"more"), now_ms=NOW)
                flusher.request(vnode)

        vnode.on_high_watermark.subscribe(append_more)
        vnode.append(one(b"first"), now_ms=NOW)
        flusher.request(vnode)
        with trio.fail_after(60):
            while vnode.high_watermark < 5:
                await trio.lowlevel.checkpoint()
            vnode.append(one(b"last"), now_ms=NOW)
            await flusher.flushed(vnode, 6)
        nursery.cancel_scope.cancel()


async def test_who_waits_when_the_flusher_ends_is_served(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0")
    flusher = Flusher()
    async with trio.open_nursery() as nursery:
        await nursery.start(flusher.run)
        nursery.cancel_scope.cancel()
    vnode.append(one(b"a"), now_ms=NOW)
    with trio.fail_after(60):
        await flusher.flushed(vnode, 1)
    assert vnode.high_watermark == 1


class WatchedIo(Io):
    """Notes in which thread each fdatasync ran, and how long it claims to have taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[int] = []
        self.seconds = 0.0001
        self._now = 0.0
        monkeypatch.setattr("barnabas.storage.flusher.time.perf_counter", lambda: self._now)

    def fdatasync(self, fd: int) -> None:
        self.threads.append(threading.get_ident())
        self._now += self.seconds


async def test_a_small_flush_of_a_quick_disk_runs_on_the_event_loop_and_serves_the_crowd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io = WatchedIo(monkeypatch)
    vnode = created(tmp_path / "t-0", LogConfig(), io=io)
    flusher = Flusher(io)

    async def producer(number: int) -> None:
        result = vnode.append(one(b"%d" % number), now_ms=NOW)
        await flusher.flushed(vnode, result.last_offset + 1)

    async with trio.open_nursery() as nursery:
        await nursery.start(flusher.run)
        for _ in range(2):
            async with trio.open_nursery() as producers:
                for number in range(10):
                    producers.start_soon(producer, number)
        assert vnode.high_watermark == 20
        assert set(io.threads) == {threading.get_ident()}
        assert len(io.threads) <= 4  # what came while nobody was known to follow has one of its own, the crowd shares
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("count", [1, 3], ids=["on the spot", "by the kernel"])
async def test_vnodes_that_are_flushed_again_have_room_for_more_until_they_are_left_alone(
    tmp_path: Path, mock_clock: trio.testing.MockClock, count: int
) -> None:
    vnodes = [created(tmp_path / f"t-{number}", LogConfig()) for number in range(count)]
    flusher = Flusher()

    def lengths() -> set[int]:
        return {Path(vnode.segments[0].path()).stat().st_size for vnode in vnodes}

    async def flush() -> None:
        async with trio.open_nursery() as producers:
            for vnode in vnodes:
                end = vnode.append(one(b"small"), now_ms=NOW).last_offset + 1
                producers.start_soon(flusher.flushed, vnode, end)

    async def pass_time() -> None:
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(ALONE_SECONDS)
        await trio.testing.wait_all_tasks_blocked()

    def logs() -> set[int]:
        return {vnode.size_bytes for vnode in vnodes}

    async with trio.open_nursery() as nursery:
        await nursery.start(flusher.run)
        await flush()
        assert lengths() == logs(), "one flush says nothing about the next"
        await flush()
        await pass_time()
        await flush()
        assert lengths() == {4096}
        await pass_time()
        assert lengths() == {4096}, "a flush came since the last look"
        await pass_time()
        assert lengths() == logs()
        await flush()
        assert lengths() == logs(), "as at first"
        nursery.cancel_scope.cancel()


async def test_a_vnode_that_is_gone_is_not_looked_at_again(tmp_path: Path, mock_clock: trio.testing.MockClock) -> None:
    vnode = created(tmp_path / "t-0", LogConfig())
    flusher = Flusher()
    async with trio.open_nursery() as nursery:
        await nursery.start(flusher.run)
        for offset in range(2):
            vnode.append(one(b"small"), now_ms=NOW)
            await flusher.flushed(vnode, offset + 1)
        path = Path(vnode.segments[0].path())
        vnode.abandon()
        for _ in range(2):
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(ALONE_SECONDS)
        await trio.testing.wait_all_tasks_blocked()
        assert path.stat().st_size == 4096
        nursery.cancel_scope.cancel()


async def test_large_flushes_and_those_of_a_slow_disk_run_in_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io = WatchedIo(monkeypatch)
    vnode = created(tmp_path / "t-0", LogConfig(), io=io)
    flusher = Flusher(io)
    here = threading.get_ident()

    async def append(value: bytes) -> bool:
        """Whether the flush ran on the event loop."""
        await flusher.flushed(vnode, vnode.append(one(value), now_ms=NOW).last_offset + 1)
        return io.threads[-1] == here

    async with trio.open_nursery() as nursery:
        await nursery.start(flusher.run)
        assert await append(b"small")
        assert not await append(bytes(SPOT_BYTES))
        assert await append(b"small")
        io.seconds = 0.05
        await append(b"this one shows that the disk is slow")
        assert not await append(b"small")
        io.seconds = 0.0001
        slow = 1
        while not await append(b"the disk is quick again"):
            slow += 1
        assert 3 < slow < 30
        nursery.cancel_scope.cancel()


async def test_a_fault_of_its_own_ends_it_and_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io = WatchedIo(monkeypatch)
    vnodes = [created(tmp_path / f"t-{number}", LogConfig(), io=io) for number in range(2)]
    flusher = Flusher(io)
    monkeypatch.setattr(flusher, "_run_job", None)
    told = []

    async def append(vnode: LocalVnode) -> None:
        with trio.CancelScope(shield=True):  # like a change that must not be left half done
            with pytest.raises(StorageError, match="flush failed"):
                await flusher.flushed(vnode, vnode.append(one(b"v"), now_ms=NOW).last_offset + 1)
            told.append(vnode)

    async def live() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(flusher.run)
            for vnode in vnodes:
                nursery.start_soon(append, vnode)

    with trio.fail_after(60), pytest.raises(ExceptionGroup):
        await live()
    assert len(told) == 2
