"""Several nodes on one data directory: claims, partitions that move, and the return to one process."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.storage.checkpoints import read_checkpoints, read_offsets
from barnabas.storage.claim import Claim, NodeClaim
from barnabas.storage.cleaner import Cleaner, CleanerSettings
from barnabas.storage.config import LogConfig
from barnabas.storage.data_dir import DataDir
from barnabas.storage.errors import StorageError
from barnabas.storage.flusher import Flusher
from barnabas.storage.io import Io
from barnabas.storage.layout import (
    ADDRESS_FILE,
    CLEAN_FILE,
    LOCK_FILE,
    LOG_STARTS_FILE,
    NODES_FOLDER,
    RECOVERY_POINTS_FILE,
    TOPIC_IDS_FILE,
)
from barnabas.storage.log_reader import LogDirReader
from barnabas.storage.recovery import recover_partition
from barnabas.storage.tests.compacting import keyed
from barnabas.storage.tests.support import NOW, TOPIC_ID, CrashError, FaultyIo, RecordedEvents, one, produced, values_of
from barnabas.wire.errors import ErrorCode, KafkaError

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)
OTHER_ID = bytes(range(16, 32))
T = ("t", 0)


def config_of(topic: str) -> LogConfig:
    return CONFIG


def supervised(path: Path, io: Io | None = None) -> Claim:
    return Claim.take(io or Io(), str(path), node_id=1, cluster_id=None, for_nodes=True, tell=RecordedEvents())


async def member(path: Path, node_id: int, *keys: tuple[str, int], io: Io | None = None) -> DataDir:
    opened = DataDir.open(path, node_id=node_id, member=True, io=io, tell=RecordedEvents())
    await opened.load(config_of=config_of, keys=keys)
    return opened


@asynccontextmanager
async def two(path: Path) -> AsyncIterator[tuple[DataDir, DataDir]]:
    """Nodes 1 and 2; at the end they are killed, unless they were closed."""
    claim = supervised(path)
    nodes = await member(path, 1), await member(path, 2)
    try:
        yield nodes
    finally:
        for each in nodes:
            each.claim.release()
        claim.release()


def filled(node: DataDir, count: int = 20, key: tuple[str, int] = T, topic_id: bytes = TOPIC_ID) -> None:
    vnode = node.create_vnode(*key, topic_id, CONFIG)
    for number in range(count):
        vnode.append(produced(number), now_ms=NOW)
    vnode.flush()


def recoveries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records the names of the partitions that are recovered from now on."""
    found: list[str] = []

    def noted(io: Io, directory: str, *rest: Any) -> int:
        found.append(os.path.basename(directory))
        return recover_partition(io, directory, *rest)

    monkeypatch.setattr("barnabas.storage.starting.recover_partition", noted)
    return found


# -- claims ------------------------------------------------------------------------------------------------------------


async def test_a_member_needs_a_supervisor(tmp_path: Path) -> None:
    supervised(tmp_path).release()
    with pytest.raises(StorageError, match="no supervisor has the data directory") as caught:
        DataDir.open(tmp_path, node_id=2, member=True)
    assert "\n" not in str(caught.value)


async def test_each_node_is_there_once_and_ids_begin_with_the_first(tmp_path: Path) -> None:
    async with two(tmp_path) as (one_, _):
        with pytest.raises(StorageError, match=r"node 1 of the data directory .* runs already"):
            DataDir.open(tmp_path, node_id=1, member=True)
        with pytest.raises(StorageError, match="belongs to node 1, not 0"):
            DataDir.open(tmp_path, node_id=0, member=True)
        with pytest.raises(StorageError, match="belongs to cluster"):
            DataDir.open(tmp_path, node_id=3, member=True, cluster_id="another")
        one_.claim.release()
        DataDir.open(tmp_path, node_id=1, member=True).claim.release()


async def test_nobody_gets_the_directory_while_a_node_outlives_its_supervisor(tmp_path: Path) -> None:
    claim = supervised(tmp_path)
    orphan = await member(tmp_path, 2)
    with pytest.raises(StorageError, match="still in use by its node 2"):
        claim.fold()
    claim.release()
    for for_nodes in (False, True):
        with pytest.raises(StorageError, match="still in use by its node 2: stop that process, and try again"):
            Claim.take(Io(), str(tmp_path), node_id=1, cluster_id=None, for_nodes=for_nodes)
    orphan.claim.release()
    DataDir.open(tmp_path, node_id=1).claim.release()


async def test_a_members_look_does_not_cost_the_supervisor_its_lock(tmp_path: Path) -> None:
    """POSIX drops the lock when the process closes any of its descriptors of the file."""
    async with two(tmp_path):
        ask = "import sys; from barnabas.storage.layout import is_locked; sys.exit(not is_locked(sys.argv[1]))"
        subprocess.run([sys.executable, "-c", ask, str(tmp_path)], check=True)


async def test_a_forked_node_asks_the_kernel_whether_its_supervisor_lives(tmp_path: Path) -> None:
    program = """
import os, sys
from barnabas.storage.claim import Claim, NodeClaim
from barnabas.storage.data_dir import DataDir
from barnabas.storage.io import Io

claim = Claim.take(Io(), sys.argv[1], node_id=1, cluster_id=None, for_nodes=True)
if sys.argv[2] == "dead":
    os.close(claim._lock_fd)
if not os.fork():
    DataDir.open(sys.argv[1], node_id=2, member=True)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    for state, status in (("alive", 0), ("dead", 1)):
        done = await trio.run_process(
            [sys.executable, "-c", program, str(tmp_path), state], check=False, capture_stderr=True
        )
        assert done.returncode == status, done.stderr.decode()
    assert b"no supervisor has the data directory" in done.stderr


async def test_a_child_does_not_keep_the_locks_of_a_node_that_died(tmp_path: Path) -> None:
    claim = supervised(tmp_path)
    node = await member(tmp_path, 2)
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            name = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if name.endswith(LOCK_FILE) and name.startswith(str(tmp_path)):
            assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    node.claim.release()
    claim.release()


async def test_the_first_nodes_address_is_the_directorys(tmp_path: Path) -> None:
    async with two(tmp_path) as (first, second):
        first.claim.announce("127.0.0.1:1")
        second.claim.announce("127.0.0.1:2")
        await second.close()
        assert LogDirReader(str(tmp_path)).address() == "127.0.0.1:1"
        await first.close()
        assert not (tmp_path / ADDRESS_FILE).exists()


# -- giving and taking -------------------------------------------------------------------------------------------------


async def test_a_partition_moves_with_all_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recovered = recoveries(monkeypatch)
    async with two(tmp_path) as (left, right):
        filled(left)
        old = left.vnodes[T]
        old.truncate_prefix(3)
        old.append(produced(20), now_ms=NOW)  # not flushed
        await left.give([T])
        assert T not in left.vnodes
        assert len(left.cache) == 0
        assert await right.take([T, ("absent", 0)], config_of) == [("absent", 0)]
        vnode = right.vnodes[T]
        assert recovered == []
        assert values_of(vnode) == [b"%d" % number for number in range(3, 21)]
        assert (vnode.log_start_offset, vnode.high_watermark, vnode.topic_id) == (3, 21, TOPIC_ID)
        assert vnode.append(produced(20), now_ms=NOW).duplicate
        with pytest.raises(KafkaError) as caught:
            old.append(produced(21), now_ms=NOW)
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await right.give([T])
        await left.take([T], config_of)
        assert left.vnodes[T].log_end_offset == 21
        assert recovered == []


class SlowSync(Io):
    """An Io whose fdatasync waits for `go` once it is `armed`."""

    def __init__(self) -> None:
        self.armed, self.began, self.go = False, threading.Event(), threading.Event()
        self.error: OSError | None = None
        self.slow_folder = ""

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        if self.slow_folder and path.startswith(self.slow_folder):
            self.began.set()
            assert self.go.wait(60)
        return super().open(path, flags, mode)

    def fdatasync(self, fd: int) -> None:
        if self.armed:
            self.began.set()
            assert self.go.wait(60)
            if self.error is not None:
                raise self.error
        super().fdatasync(fd)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_flush_that_runs_is_waited_for_and_its_error_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """A second fsync may succeed on pages that the first has lost. Waiting callers get NOT_LEADER_OR_FOLLOWER."""
    io = SlowSync()
    claim = supervised(tmp_path)
    left, right = await member(tmp_path, 1, io=io), await member(tmp_path, 2)
    filled(left)
    vnode, flusher = left.vnodes[T], Flusher(io, spot_seconds=0)
    recovered = recoveries(monkeypatch)
    async with trio.open_nursery() as nursery:
        await nursery.start(flusher.run)
        vnode.append(produced(20), now_ms=NOW)
        io.armed = True
        io.error = OSError(errno.EIO, "Input/output error") if fails else None
        heard: list[ErrorCode | None] = []
        flusher.when_flushed(vnode, 21, lambda: heard.append(vnode.error.code if vnode.error else None))
        vnode.on_high_watermark.subscribe(lambda of: heard.append(of.error.code if of.error else None))
        await trio.to_thread.run_sync(io.began.wait)
        async with trio.open_nursery() as giving:
            giving.start_soon(left.give, [T])
            giving.start_soon(left.give, [T])
            await trio.testing.wait_all_tasks_blocked(0.02)
            assert T in left.vnodes
            io.go.set()
        nursery.cancel_scope.cancel()
    assert heard == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert T not in left.vnodes
    await right.take([T], config_of)
    assert recovered == (["t-0"] if fails else [])
    assert right.vnodes[T].log_end_offset == 21
    for each in (left.claim, right.claim, claim):
        each.release()


async def test_a_compaction_that_runs_is_stopped_and_leaves_nothing(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=600, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
    async with two(tmp_path) as (left, right):
        vnode = left.create_vnode(*T, TOPIC_ID, config)
        for number in range(60):
            vnode.append(keyed(b"key", b"%d" % number), now_ms=NOW)
        vnode.flush()
        began, go = threading.Event(), threading.Event()
        real = left.io.fsync

        def fsync(fd: int) -> None:
            began.set()
            assert go.wait(60)
            real(fd)

        left.io.fsync = fsync  # type: ignore[method-assign]
        cleaner = Cleaner(left.vnodes, CleanerSettings, lambda: NOW, RecordedEvents())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cleaner.clean, vnode, CleanerSettings())
            await trio.to_thread.run_sync(began.wait)
            nursery.start_soon(left.give, [T])
            await trio.testing.wait_all_tasks_blocked(0.02)
            assert T in left.vnodes
            go.set()
        assert T not in left.vnodes
        assert not list((tmp_path / "t-0").glob("*.cleaned"))
        await right.take([T], lambda topic: config)
        assert values_of(right.vnodes[T])[-1] == b"59"


async def test_partitions_move_while_checkpoints_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim, io = supervised(tmp_path), SlowSync()
    left, right = await member(tmp_path, 1, io=io), await member(tmp_path, 2, io=io)
    filled(left)
    filled(left, key=("u", 0), topic_id=OTHER_ID)
    filled(right, key=("v", 0), topic_id=bytes(reversed(TOPIC_ID)))

    async def during_a_checkpoint(node: DataDir, *moves: Callable[[], Awaitable[object]]) -> None:
        assert isinstance(node.claim, NodeClaim)
        io.slow_folder = node.claim.home
        io.began, io.go = threading.Event(), threading.Event()
        node.vnodes[next(iter(node.vnodes))].append(one(b"more"), now_ms=NOW)
        node.vnodes[next(iter(node.vnodes))].flush()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.checkpoint)
            await trio.to_thread.run_sync(io.began.wait)
            for move in moves:
                nursery.start_soon(move)
            await trio.testing.wait_all_tasks_blocked(0.02)
            io.slow_folder = ""
            io.go.set()

    await during_a_checkpoint(left, lambda: left.give([T]), lambda: left.give([("u", 0)]))
    await during_a_checkpoint(right, lambda: right.take([T], config_of), lambda: right.take([("u", 0)], config_of))
    assert sorted(right.vnodes) == [T, ("u", 0), ("v", 0)]
    for key in (T, ("u", 0)):
        right.vnodes[key].append(produced(30, producer_id=8), now_ms=NOW)
    right.claim.release()  # killed
    recovered = recoveries(monkeypatch)
    await left.take([T, ("u", 0)], config_of)
    assert sorted(recovered) == ["t-0", "u-0"]
    assert left.vnodes["u", 0].log_end_offset == 21
    for each in (left.claim, claim):
        each.release()


async def test_what_was_dropped_is_deleted_before_the_partition_goes(tmp_path: Path) -> None:
    async with two(tmp_path) as (node, _):
        filled(node, 40)
        node.vnodes[T].truncate_prefix(30)
        await node.give([T])
        assert not list((tmp_path / "t-0").glob("*.deleted"))


async def test_a_node_that_dies_leaves_its_partitions_to_be_recovered_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(tmp_path) as (left, right):
        filled(left)
        filled(left, key=("given", 0), topic_id=OTHER_ID)
        await left.give([("given", 0)])
        with open(left.vnodes[T].segments[-1].path(), "ab") as log:
            log.write(b"torn")
        left.claim.release()
        recovered = recoveries(monkeypatch)
        await right.take([T, ("given", 0)], config_of)
        assert recovered == ["t-0"]
        assert values_of(right.vnodes[T]) == [b"%d" % number for number in range(20)]


async def test_a_node_that_dies_at_once_after_it_took_is_not_taken_for_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(tmp_path) as (left, right):
        filled(left)
        await left.give([T])
        await right.take([T], config_of)
        right.vnodes[T].append(produced(20), now_ms=NOW)
        right.claim.release()
        recovered = recoveries(monkeypatch)
        await left.take([T], config_of)
        assert recovered == ["t-0"]


async def test_what_the_last_node_found_counts_not_the_largest_offset(tmp_path: Path) -> None:
    """A disk has lost flushed data, and recovery found less. Later appends are above no node's recovery point."""
    async with two(tmp_path) as (left, right):
        filled(left, 6)
        await left.give([T])
        await right.take([T], config_of)
        right.claim.release()  # killed
        (segment,) = (tmp_path / "t-0").glob("*.log")
        with open(segment, "r+b") as log:
            log.truncate(segment.stat().st_size // 2)
        again = await member(tmp_path, 2, T)
        vnode = again.vnodes[T]
        assert vnode.log_end_offset == 3
        vnode.append(produced(3), now_ms=NOW)
        vnode.flush()
        await again.checkpoint()
        size = vnode.size_bytes
        vnode.append(produced(4), now_ms=NOW)
        vnode.roll(NOW)
        vnode.append(produced(5), now_ms=NOW)
        again.claim.release()
        with open(segment, "r+b") as log:  # an unflushed page is lost
            log.seek(size + 65)
            log.write(bytes(8))
        await left.take([T], config_of)
        assert values_of(left.vnodes[T]) == [b"0", b"1", b"2", b"3", b"5"]


async def test_a_folder_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    async with two(tmp_path) as (left, right):
        filled(left)
        with pytest.raises(StorageError, match="has a folder already"):
            right.create_vnode(*T, TOPIC_ID, CONFIG)
        await left.give([T])
        await left.take([T], config_of)
        assert left.vnodes[T].log_end_offset == 20
        new = right.create_vnode(*T, OTHER_ID, CONFIG)  # the next topic of that name, before the deletion is here
        new.append(one(b"new"), now_ms=NOW)
        new.flush()
        left.delete_vnode(*T)
        assert values_of(new) == [b"new"]
        await right.give([T])
        await left.take([T], config_of)
        assert values_of(left.vnodes[T]) == [b"new"]


async def test_deleted_topics_are_not_stated_for_ever(tmp_path: Path) -> None:
    async with two(tmp_path) as (left, right):
        filled(left)
        await left.give([T])
        await right.take([T], config_of)
        right.delete_vnode(*T)
        assert left._node is not None
        await left._node.forget_deleted()
        await left.checkpoint()
        assert read_checkpoints(Io(), str(tmp_path / NODES_FOLDER / "1")).turns == {}


async def test_a_full_disk_costs_a_recovery_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(Io):
        full = False

        def pwritev(self, fd: int, parts: object, position: int) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().pwritev(fd, parts, position)  # type: ignore[arg-type]

    io = Full()
    claim = supervised(tmp_path)
    left, right = await member(tmp_path, 1, io=io), await member(tmp_path, 2)
    filled(left)
    io.full = True
    await left.give([T])
    assert isinstance(left.tell, RecordedEvents)
    assert left.tell.named("partition.not_closed")
    assert not left.tell.named("partition.offline"), "the disk has not failed"
    recovered = recoveries(monkeypatch)
    await right.take([T], config_of)
    assert recovered == ["t-0"]
    assert values_of(right.vnodes[T]) == [b"%d" % number for number in range(20)]
    await right.give([T])
    with pytest.raises(StorageError, match="cannot write checkpoints"):
        await left.take([T], config_of)
    assert T not in left.vnodes
    await right.take([T], config_of)
    for each in (left.claim, right.claim, claim):
        each.release()


@pytest.mark.parametrize("name", [TOPIC_IDS_FILE, RECOVERY_POINTS_FILE, LOG_STARTS_FILE])
async def test_a_damaged_file_of_one_node_costs_only_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with two(tmp_path) as (left, right):
        filled(right)
        right.vnodes[T].truncate_prefix(5)
        await right.checkpoint()
        await right.give([T])
        await left.take([T], config_of)
        left.vnodes[T].truncate_prefix(7)
        left.vnodes[T].append(produced(20), now_ms=NOW)
        left.vnodes[T].flush()
        await left.checkpoint()
        left.claim.release()
        (tmp_path / NODES_FOLDER / "1" / name).write_bytes(b"0\n7\n")
        recovered = recoveries(monkeypatch)
        await right.take([T], config_of)
        assert recovered == ["t-0"]
        vnode = right.vnodes[T]
        assert vnode.log_start_offset == (7 if name == RECOVERY_POINTS_FILE else 5)
        assert vnode.log_end_offset == 21
        assert isinstance(right.tell, RecordedEvents)
        assert right.tell.named("checkpoint.damaged")[0]["file"] == f"nodes/1/{name}"
        filled(left, key=("u", 0), topic_id=OTHER_ID)
        await left.checkpoint()  # as a node would that lived on: its turn was before this one
        vnode.truncate_prefix(9)
        await right.checkpoint()
        right.claim.release()
        again = await member(tmp_path, 2, T)
        assert again.vnodes[T].log_start_offset == 9
        again.claim.release()


async def test_an_offline_partition_is_not_left_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two(tmp_path) as (left, right):
        filled(left)
        left.vnodes[T].fail("append", OSError(errno.EIO, "Input/output error"))
        await left.give([T])
        recovered = recoveries(monkeypatch)
        await right.take([T], config_of)
        assert recovered == ["t-0"]
        assert right.vnodes[T].log_end_offset == 20


async def test_a_flush_that_could_not_begin_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoDescriptors(Io):
        times = 0

        def open(self, path: str, flags: int, mode: int = 0o666) -> int:
            if self.times and flags == os.O_RDONLY:
                self.times -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return super().open(path, flags, mode)

    io = NoDescriptors()
    claim = supervised(tmp_path)
    left, right = await member(tmp_path, 1, io=io), await member(tmp_path, 2)
    left.create_vnode(*T, TOPIC_ID, CONFIG).append(produced(0), now_ms=NOW)
    io.times = 1
    await left.give([T])
    recovered = recoveries(monkeypatch)
    await right.take([T], config_of)
    assert recovered == ["t-0"]
    for each in (left.claim, right.claim, claim):
        each.release()


# -- one process and back ----------------------------------------------------------------------------------------------


def files_of(path: Path) -> set[str]:
    return {each.name for each in path.iterdir()}


async def test_after_a_clean_stop_the_directory_is_as_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DataDir.open(tmp_path, node_id=1) as alone:
        await alone.load(config_of=config_of)
        filled(alone)
        alone.vnodes[T].truncate_prefix(2)
    before = files_of(tmp_path)
    recovered = recoveries(monkeypatch)
    claim = supervised(tmp_path)
    left, right = await member(tmp_path, 1, T), await member(tmp_path, 2)
    filled(right, key=("u", 0), topic_id=OTHER_ID)
    left.vnodes[T].truncate_prefix(4)
    await left.close()
    await right.close()
    claim.fold()
    claim.release()
    assert files_of(tmp_path) == before | {"u-0"}
    assert read_offsets(Io(), str(tmp_path / LOG_STARTS_FILE)) == {T: 4}
    assert read_offsets(Io(), str(tmp_path / RECOVERY_POINTS_FILE)) == {T: 20, ("u", 0): 20}
    async with DataDir.open(tmp_path, node_id=1) as alone:
        await alone.load(config_of=config_of)
        assert alone.claim.was_clean
        assert alone.vnodes[T].log_start_offset == 4
        assert values_of(alone.vnodes["u", 0]) == [b"%d" % number for number in range(20)]
    assert recovered == []


async def test_one_process_after_a_kill_of_all_takes_everybodys_statements(tmp_path: Path) -> None:
    async with two(tmp_path) as (left, right):
        filled(left)
        left.vnodes[T].truncate_prefix(5)
        await left.checkpoint()
        filled(right, key=("u", 0), topic_id=OTHER_ID)
        right.vnodes["u", 0].truncate_prefix(6)
        await right.checkpoint()
    stated = LogDirReader(str(tmp_path)).checkpoints()
    assert stated.of(T, "AAECAwQFBgcICQoLDA0ODw") == (5, 20)
    async with DataDir.open(tmp_path, node_id=1) as alone:
        assert not alone.claim.was_clean
        assert not (tmp_path / NODES_FOLDER).exists()
        await alone.load(config_of=config_of)
        assert [alone.vnodes[key].log_start_offset for key in (T, ("u", 0))] == [5, 6]


async def test_a_partition_that_nobody_has_stated_is_not_clean(tmp_path: Path) -> None:
    """Its topic's name may be that of an earlier topic."""
    async with two(tmp_path) as (left, right):
        filled(left)
        await left.give([T])
        filled(right, topic_id=OTHER_ID)  # killed before any checkpoint
    DataDir.open(tmp_path, node_id=1).claim.release()
    assert not (tmp_path / CLEAN_FILE).exists()
    async with DataDir.open(tmp_path, node_id=1) as alone:
        assert not alone.claim.was_clean


@pytest.mark.parametrize("kind", ["before", "after", "torn"])
async def test_a_kill_anywhere_in_a_fold_changes_nothing_that_counts(tmp_path: Path, kind: str) -> None:
    """A kill during the start of a supervisor does not change it either."""
    for at in range(1, 200):
        path = tmp_path / str(at)
        claim = supervised(path)
        left, right = await member(path, 1), await member(path, 2)
        filled(left)
        filled(right, key=("u", 0), topic_id=OTHER_ID)
        left.vnodes[T].truncate_prefix(5)
        await left.give([T])
        await left.close()
        await right.close()
        claim.release()
        io = FaultyIo(at, kind)
        with suppress(CrashError):
            supervised(path, io).release()
        finished = not io.dead
        async with DataDir.open(path, node_id=1) as alone:
            await alone.load(config_of=config_of)
            assert alone.vnodes[T].log_start_offset == 5
            assert {values_of(each)[-1] for each in alone.vnodes.values()} == {b"19"}
        if finished:
            return
    raise AssertionError("it has no end")


async def test_a_folded_folder_goes_only_when_its_new_name_is_on_disk(tmp_path: Path) -> None:
    """Otherwise it may come back without the checkpoints that say which partitions were left open."""
    done: list[str] = []

    class Order(Io):
        def replace(self, source: str, target: str) -> None:
            super().replace(source, target)
            if source.endswith(NODES_FOLDER):
                done.append("renamed")

        def fsync(self, fd: int) -> None:
            super().fsync(fd)
            if os.path.samestat(os.fstat(fd), os.stat(tmp_path)):
                done.append("synced")

        def rmtree(self, path: str) -> None:
            done.append("removed")
            super().rmtree(path)

    claim = supervised(tmp_path, Order())
    node = await member(tmp_path, 1)
    filled(node)
    await node.close()
    claim.fold()
    claim.release()
    assert done[-3:] == ["renamed", "synced", "removed"]


async def test_kafkas_checkpoints_get_ids_before_nodes_use_them(tmp_path: Path) -> None:
    async with DataDir.open(tmp_path, node_id=1) as alone:
        await alone.load(config_of=config_of)
        filled(alone)
        alone.vnodes[T].truncate_prefix(5)
    (tmp_path / TOPIC_IDS_FILE).unlink()
    claim = supervised(tmp_path)
    assert claim.was_clean
    node = await member(tmp_path, 1, T)
    assert node.vnodes[T].log_start_offset == 5
    node.delete_vnode(*T)
    new = node.create_vnode(*T, OTHER_ID, CONFIG)
    new.append(one(b"new"), now_ms=NOW)
    new.flush()
    node.claim.release()
    node = await member(tmp_path, 1, T)
    assert values_of(node.vnodes[T]) == [b"new"]
    node.claim.release()
    claim.release()


async def test_a_few_of_many_partitions_cost_a_few_syncs(tmp_path: Path) -> None:
    class Counting(Io):
        count = 0

        def fsync(self, fd: int) -> None:
            self.count += 1
            super().fsync(fd)

        def fdatasync(self, fd: int) -> None:
            self.count += 1
            super().fdatasync(fd)

    claim, io = supervised(tmp_path), Counting()
    left, right = await member(tmp_path, 1, io=io), await member(tmp_path, 2)
    for number in range(30):
        filled(left, 3, ("many", number))
    filled(left)
    io.count = 0
    await left.give([T])
    assert io.count <= 20, "it has to do with one partition"
    await right.take([T], config_of)
    for each in (left.claim, right.claim, claim):
        each.release()
