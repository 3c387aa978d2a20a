"""The data directory: identity, lock, restart, deletion."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.storage.checkpoints import Checkpoints, Line, read_offsets
from barnabas.storage.config import LogConfig
from barnabas.storage.data_dir import DataDir
from barnabas.storage.errors import StorageError
from barnabas.storage.io import Io
from barnabas.storage.layout import CLEAN_FILE, LOG_STARTS_FILE, RECOVERY_POINTS_FILE, parse_partition_name
from barnabas.storage.recovery import recover_partition, untouched_end
from barnabas.storage.tests.support import NOW, TOPIC_ID, FaultyIo, created, one, produced, values_of
from barnabas.wire.errors import ErrorCode, KafkaError

CONFIG = LogConfig(segment_bytes=400)


async def opened(path: Path) -> DataDir:
    data_dir = DataDir.open(path, node_id=1)
    await data_dir.load(config_of=lambda topic: CONFIG)
    return data_dir


async def test_partitions_come_back_after_a_clean_stop_without_being_opened(tmp_path: Path) -> None:
    async with await opened(tmp_path) as data_dir:
        vnode = data_dir.create_vnode("t-x", 3, TOPIC_ID, CONFIG)
        data_dir.create_vnode("empty", 0, TOPIC_ID, CONFIG)
        for i in range(20):
            vnode.append(one(b"%d" % i), now_ms=NOW)
        cluster = data_dir.claim.cluster_id
    heard: list[str] = []
    again = DataDir.open(tmp_path, node_id=1, cluster_id=cluster)
    await again.load(lambda done, total, name: heard.append(name))
    async with again:
        assert again.claim.was_clean
        assert heard == []
        assert sorted(again.vnodes) == [("empty", 0), ("t-x", 3)]
        assert not any(vnode.loaded for vnode in again.vnodes.values())
        vnode = again.vnodes[("t-x", 3)]
        assert vnode.topic_id == TOPIC_ID
        assert values_of(vnode) == [b"%d" % i for i in range(20)]


async def test_after_a_crash_every_partition_is_recovered_with_progress(tmp_path: Path) -> None:
    data_dir = await opened(tmp_path)
    for number in range(5):
        vnode = data_dir.create_vnode("t", number, TOPIC_ID, CONFIG)
        for i in range(10):
            vnode.append(produced(i), now_ms=NOW)
        vnode.flush()
        with open(vnode.segments[-1].path(), "ab") as log:
            log.write(b"torn")
    await data_dir.checkpoint()
    data_dir.claim.release()  # as the end of the process does
    heard: list[tuple[int, int]] = []
    again = DataDir.open(tmp_path, node_id=1)
    await again.load(lambda done, total, name: heard.append((done, total)))
    async with again:
        assert not again.claim.was_clean
        assert heard == [(i, 5) for i in range(1, 6)]
        for vnode in again.vnodes.values():
            assert values_of(vnode) == [b"%d" % i for i in range(10)]
            assert vnode.append(produced(9), now_ms=NOW).duplicate


async def test_nothing_new_is_stated_of_an_offline_partition(tmp_path: Path) -> None:
    """Its index entries that were only in memory are lost."""
    async with await opened(tmp_path) as data_dir:
        vnode = data_dir.create_vnode("t", 0, TOPIC_ID, CONFIG)
        vnode.append(one(b"x"), now_ms=NOW)
        vnode.flush()
        vnode.fail("append", OSError(errno.EIO, "Input/output error"))
        await data_dir.checkpoint()
        assert read_offsets(Io(), str(tmp_path / RECOVERY_POINTS_FILE)) == {("t", 0): 0}


async def test_recovery_says_how_far_it_is_in_a_large_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = await opened(tmp_path)
    data_dir.create_vnode("t", 0, TOPIC_ID, CONFIG).append(one(b"x"), now_ms=NOW)
    data_dir.claim.release()
    told = threading.Event()
    heard: list[tuple[int, int, str]] = []

    def slow(*args: Any) -> int:
        args[-1](5 << 20, 9 << 20)
        assert told.wait(60)
        return recover_partition(*args)

    def progress(*what: Any) -> None:
        heard.append(what)
        told.set()

    monkeypatch.setattr("barnabas.storage.starting.recover_partition", slow)
    monkeypatch.setattr("barnabas.storage.starting._TELL_SECONDS", 0)
    async with DataDir.open(tmp_path, node_id=1) as again:
        await again.load(progress)
        assert (heard[0], heard[-1]) == ((0, 1, "t-0, 5 of 9 MiB"), (1, 1, "t-0"))
        assert values_of(again.vnodes["t", 0]) == [b"x"]


def test_recovery_tells_of_every_byte_that_it_has_read(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", CONFIG)
    for number in range(30):
        vnode.append(one(b"%d" % number), now_ms=NOW)
    heard: list[tuple[int, int]] = []
    recover_partition(Io(), vnode.directory, 0, CONFIG, progress=lambda done, total: heard.append((done, total)))
    assert len(vnode.segments) > 3
    assert len(heard) == 30
    assert heard == sorted(set(heard))
    assert {total for _, total in heard} == {vnode.size_bytes}


async def test_partitions_that_nothing_was_written_to_are_not_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = await opened(tmp_path)
    for number in range(20):
        data_dir.create_vnode("empty", number, TOPIC_ID, CONFIG, first_offset=number)
    data_dir.create_vnode("used", 0, TOPIC_ID, CONFIG).append(one(b"x"), now_ms=NOW)
    data_dir.create_vnode("stray", 0, TOPIC_ID, CONFIG)
    (tmp_path / "stray-0" / "00000000000000000000.timeindex").write_bytes(b"stray bytes")
    data_dir.claim.release()
    recovered: list[str] = []

    def noted(io: Io, directory: str, *args: Any) -> int:
        recovered.append(os.path.basename(directory))
        return recover_partition(io, directory, *args)

    monkeypatch.setattr("barnabas.storage.starting.recover_partition", noted)
    async with await opened(tmp_path) as again:
        assert sorted(recovered) == ["stray-0", "used-0"]
        assert [again.vnodes["empty", number].log_end_offset for number in range(20)] == list(range(20))
        assert [again.vnodes["empty", number].recovery_point for number in range(20)] == list(range(20))
        again.vnodes["empty", 7].append(one(b"y"), now_ms=NOW)
        again.vnodes["empty", 7].flush()
        assert values_of(again.vnodes["empty", 7]) == [b"y"]


async def test_an_empty_log_below_its_recovery_point_is_recovered(tmp_path: Path) -> None:
    """It is not as it was left. Offsets below the recovery point must not be assigned again."""
    data_dir = await opened(tmp_path)
    vnode = data_dir.create_vnode("t", 0, TOPIC_ID, LogConfig())
    vnode.append(one(b"x"), now_ms=NOW)
    vnode.flush()
    await data_dir.checkpoint()
    data_dir.claim.release()
    (tmp_path / "t-0" / "leader-epoch-checkpoint").unlink()
    for suffix in (".log", ".index", ".timeindex"):
        os.truncate(tmp_path / "t-0" / f"{0:020d}{suffix}", 0)
    assert untouched_end(Io(), str(tmp_path / "t-0"), 1) is None
    assert untouched_end(Io(), str(tmp_path / "t-0"), 0) == 0


async def test_the_log_start_survives_a_crash_once_checkpointed(tmp_path: Path) -> None:
    data_dir = await opened(tmp_path)
    vnode = data_dir.create_vnode("t", 0, TOPIC_ID, LogConfig())
    for i in range(10):
        vnode.append(one(b"%d" % i), now_ms=NOW)
    vnode.flush()
    vnode.truncate_prefix(4)
    await data_dir.checkpoint()
    data_dir.claim.release()
    async with await opened(tmp_path) as again:
        assert again.vnodes[("t", 0)].log_start_offset == 4
    async with await opened(tmp_path) as again:
        assert again.claim.was_clean
        assert again.vnodes[("t", 0)].log_start_offset == 4


async def test_a_crowd_that_wants_a_checkpoint_shares_one_or_two_and_each_is_covered(tmp_path: Path) -> None:
    class Counting(Io):
        written = 0

        def replace(self, source: str, target: str) -> None:
            Counting.written += target.endswith(LOG_STARTS_FILE)
            super().replace(source, target)

    async def delete_below(offset: int) -> None:
        vnode.truncate_prefix(offset)
        await data_dir.checkpoint()
        assert read_offsets(Io(), str(tmp_path / LOG_STARTS_FILE))["t", 0] >= offset

    data_dir = DataDir.open(tmp_path, node_id=1, io=Counting())
    await data_dir.load(config_of=lambda topic: CONFIG)
    async with data_dir:
        vnode = data_dir.create_vnode("t", 0, TOPIC_ID, LogConfig())
        for i in range(100):
            vnode.append(one(b"%d" % i), now_ms=NOW)
        vnode.flush()
        async with trio.open_nursery() as nursery:
            for offset in range(1, 101):
                nursery.start_soon(delete_below, offset)
        assert 1 <= Counting.written <= 2


async def test_a_checkpoint_costs_nothing_for_partitions_that_were_not_flushed_since(tmp_path: Path) -> None:
    class Noting(Io):
        def __init__(self) -> None:
            self.touched: list[str] = []

        def open(self, path: str, flags: int, mode: int = 0o644) -> int:
            self.touched.append(path)
            return super().open(path, flags, mode)

    io = Noting()
    data_dir = DataDir.open(tmp_path, node_id=1, io=io)
    await data_dir.load(config_of=lambda topic: CONFIG)
    async with data_dir:
        vnodes = [data_dir.create_vnode("t", number, TOPIC_ID, CONFIG) for number in range(20)]
        for vnode in vnodes:
            vnode.append(one(b"a"), now_ms=NOW)
            vnode.flush()
        await data_dir.checkpoint()
        io.touched.clear()
        await data_dir.checkpoint()
        assert io.touched == [], "nothing is new"
        vnodes[7].append(one(b"b"), now_ms=NOW)
        vnodes[7].flush()
        io.touched.clear()
        await data_dir.checkpoint()
        indexes = {Path(path).parent.name for path in io.touched if path.endswith("index")}
        assert indexes == {"t-7"}
        data_dir.delete_vnode("t", 3)
        await data_dir.checkpoint()
        assert ("t", 3) not in read_offsets(Io(), str(tmp_path / RECOVERY_POINTS_FILE))
    assert read_offsets(Io(), str(tmp_path / RECOVERY_POINTS_FILE))["t", 7] == 2


def test_checkpoints_with_other_lines_share_what_stays_the_same() -> None:
    a, b, gone = ("t", 0), ("t", 1), ("gone", 0)
    before = Checkpoints({a: 5, b: 7, gone: 1}, {b: 3}, {a: "id", b: "id", gone: "old"})
    assert before.line(b) == Line("id", None, 7, 3)
    assert before.line(("never", 0)) is None
    after = before.with_lines({a: Line("id", None, 6), b: before.line(b)})
    assert after == Checkpoints({a: 6, b: 7, gone: 1}, {b: 3}, {a: "id", b: "id", gone: "old"})
    assert after.starts is before.starts
    assert after.ids is before.ids
    assert before.points[a] == 5
    after = before.with_lines({gone: None, b: Line("id", None, 7, 0, 2)})
    assert after == Checkpoints({a: 5, b: 7}, {}, {a: "id", b: "id"}, {b: 2})


async def test_a_stop_syncs_nothing_of_logs_that_were_opened_only_to_be_read(tmp_path: Path) -> None:
    class Noting(Io):
        def __init__(self) -> None:
            self.opened: list[str] = []

        def open(self, path: str, flags: int, mode: int = 0o644) -> int:
            self.opened.append(path)
            return super().open(path, flags, mode)

    async with await opened(tmp_path) as data_dir:
        for number in range(3):
            vnode = data_dir.create_vnode("t", number, TOPIC_ID, CONFIG)
            for i in range(10 * number):
                vnode.append(produced(i), now_ms=NOW)
    io = Noting()
    data_dir = DataDir.open(tmp_path, node_id=1, io=io)
    await data_dir.load(config_of=lambda topic: CONFIG)
    async with data_dir:
        assert [len(values_of(vnode)) for _, vnode in sorted(data_dir.vnodes.items())] == [0, 10, 20]
        data_dir.vnodes["t", 1].append(produced(10), now_ms=NOW)
        io.opened.clear()
    folders = {Path(path).name if Path(path).is_dir() else Path(path).parent.name for path in io.opened}
    assert "t-1" in folders
    assert not folders & {"t-0", "t-2"}
    async with await opened(tmp_path) as again:
        assert again.claim.was_clean
        assert [len(values_of(vnode)) for _, vnode in sorted(again.vnodes.items())] == [0, 11, 20]


async def test_a_checkpoint_that_could_not_be_written_is_written_next_time(tmp_path: Path) -> None:
    class Full(Io):
        full = False

        def replace(self, source: str, target: str) -> None:
            if Full.full and target.endswith(RECOVERY_POINTS_FILE):
                raise OSError(28, "No space left on device")
            super().replace(source, target)

    data_dir = DataDir.open(tmp_path, node_id=1, io=Full())
    await data_dir.load(config_of=lambda topic: CONFIG)
    async with data_dir:
        vnode = data_dir.create_vnode("t", 0, TOPIC_ID, CONFIG)
        vnode.append(one(b"a"), now_ms=NOW)
        vnode.flush()
        Full.full = True
        with pytest.raises(StorageError, match="cannot write checkpoints"):
            await data_dir.checkpoint()
        Full.full = False
        await data_dir.checkpoint()
        assert read_offsets(Io(), str(tmp_path / RECOVERY_POINTS_FILE)) == {("t", 0): 1}


async def test_a_partition_whose_indexes_cannot_be_written_keeps_its_start(tmp_path: Path) -> None:
    class Broken(Io):
        broken = False

        def open(self, path: str, flags: int, mode: int = 0o644) -> int:
            if Broken.broken and path.endswith(".index"):
                raise OSError(5, "Input/output error")
            return super().open(path, flags, mode)

    data_dir = DataDir.open(tmp_path, node_id=1, io=Broken())
    await data_dir.load(config_of=lambda topic: CONFIG)
    vnode = data_dir.create_vnode("t", 0, TOPIC_ID, LogConfig(index_interval_bytes=1))
    for i in range(10):
        vnode.append(one(b"%d" % i), now_ms=NOW)
    vnode.flush()
    vnode.truncate_prefix(4)
    Broken.broken = True
    await data_dir.checkpoint()
    assert vnode.error is not None
    data_dir.claim.release()
    async with await opened(tmp_path) as again:
        assert again.vnodes[("t", 0)].log_start_offset == 4


async def test_many_partitions_are_synced_at_the_close_and_one_that_fails_makes_it_unclean(
    tmp_path: Path,
) -> None:
    class OneBad(Io):
        def __init__(self) -> None:
            self.bad = ""
            self.synced: set[str] = set()

        def fdatasync(self, fd: int) -> None:
            partition = Path(os.readlink(f"/proc/self/fd/{fd}")).parent.name
            self.synced.add(partition)
            if partition == self.bad:
                raise OSError(5, "bad block")

    for bad in ("t-77", ""):
        io = OneBad()
        data_dir = DataDir.open(tmp_path, node_id=1, io=io)
        await data_dir.load(config_of=lambda topic: CONFIG)
        if bad:
            for number in range(100):
                data_dir.create_vnode("t", number, TOPIC_ID, CONFIG)
        for vnode in data_dir.vnodes.values():
            vnode.append(one(b"v"), now_ms=NOW)
        io.bad, io.synced = bad, set()
        await data_dir.close()
        assert io.synced == {f"t-{number}" for number in range(100)}
        offline = {key for key, vnode in data_dir.vnodes.items() if vnode.error}
        assert offline == ({("t", 77)} if bad else set())
        assert (tmp_path / CLEAN_FILE).exists() == (not bad)


async def test_another_process_a_cluster_or_a_node_is_told_so_in_one_line(tmp_path: Path) -> None:
    async with await opened(tmp_path):
        code = f"from barnabas.storage.data_dir import DataDir; DataDir.open({str(tmp_path)!r}, node_id=1)"
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "is in use by another process" in ran.stderr
    with pytest.raises(StorageError, match=r"belongs to cluster .* not other: .*use another directory"):
        DataDir.open(tmp_path, node_id=1, cluster_id="other")
    with pytest.raises(StorageError, match=r"belongs to node 1, not 2: set node\.id=1"):
        DataDir.open(tmp_path, node_id=2)
    async with await opened(tmp_path):
        pass  # the refusals have released the lock


async def test_deleting_takes_the_partition_away_at_once_and_its_files_soon(tmp_path: Path) -> None:
    async with await opened(tmp_path) as data_dir:
        name = "x" * 249
        vnode = data_dir.create_vnode(name, 0, TOPIC_ID, LogConfig(flush_messages=99))
        vnode.append(one(b"v"), now_ms=NOW)
        held = vnode.read(0, 100).slice
        assert held is not None
        data_dir.delete_vnode(name, 0)
        with pytest.raises(StorageError, match="deleted"):
            vnode.read(0, 100)
        assert data_dir.vnodes == {}
        data_dir.create_vnode(name, 0, TOPIC_ID, CONFIG)
        assert any(n.endswith("-delete") for n in os.listdir(tmp_path))
        await data_dir.upkeep.delete_discarded()
        assert not any(n.endswith("-delete") for n in os.listdir(tmp_path))
        assert len(held.read()) == len(held)
        with pytest.raises(KafkaError) as caught:
            data_dir.create_vnode(name, 0, TOPIC_ID, CONFIG)
        assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_deletion_cut_short_is_finished_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "t-0.0123-delete").mkdir()
    (tmp_path / "t-0.0123-delete" / "00000000000000000000.log").write_bytes(b"")
    async with await opened(tmp_path) as data_dir:
        assert data_dir.vnodes == {}
    assert not (tmp_path / "t-0.0123-delete").exists()


async def test_a_creation_that_fails_anywhere_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    for kind in ("enospc", "short"):
        for at in range(1, 10):
            path = tmp_path / f"{kind}{at}"
            data_dir = await opened(path)
            data_dir.io = FaultyIo(at, kind)

            def create_three(data_dir: DataDir = data_dir) -> None:
                for partition in range(3):
                    data_dir.create_vnode("t", partition, TOPIC_ID, CONFIG)

            with pytest.raises(StorageError):
                create_three()
            data_dir.io = Io()
            data_dir.vnodes.clear()
            created = {n for n in os.listdir(path) if n.startswith("t-")}
            assert len(created) < 3
            vnode = data_dir.create_vnode("t", 2, TOPIC_ID, CONFIG)
            assert vnode.append(one(b"v"), now_ms=NOW).base_offset == 0
            await data_dir.close()


async def test_one_bad_partition_does_not_stop_the_others(tmp_path: Path) -> None:
    data_dir = await opened(tmp_path)
    for number in range(2):
        data_dir.create_vnode("t", number, TOPIC_ID, CONFIG).append(one(b"v"), now_ms=NOW)
    data_dir.vnodes[("t", 0)].fail("append", OSError("the disk is gone"))
    data_dir.vnodes[("t", 1)].flush()
    assert values_of(data_dir.vnodes[("t", 1)]) == [b"v"]
    await data_dir.close()
    async with await opened(tmp_path) as again:
        assert not again.claim.was_clean  # the offline one was not closed cleanly
        assert values_of(again.vnodes[("t", 0)]) == [b"v"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("t-0", ("t", 0)), ("a-b-12", ("a-b", 12)), ("t", None), ("-1", None), ("t-x", None), ("t-0.abc-delete", None)],
)
def test_partition_folder_names(name: str, expected: tuple[str, int] | None) -> None:
    assert parse_partition_name(name) == expected


async def test_a_stop_in_the_middle_of_recovery_leaves_it_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = await opened(tmp_path)
    for number in range(3):
        vnode = data_dir.create_vnode("t", number, TOPIC_ID, CONFIG)
        for i in range(10):
            vnode.append(produced(i), now_ms=NOW)
        vnode.flush()
        vnode.truncate_prefix(4)
        with open(vnode.segments[-1].path(), "ab") as log:
            log.write(b"torn")
    await data_dir.checkpoint()
    data_dir.claim.release()
    scope = trio.CancelScope()

    def last_is_never_recovered(io: Io, directory: str, *rest: Any) -> int:
        trio.from_thread.run_sync(scope.cancel)
        return recover_partition(io, directory, *rest)

    monkeypatch.setattr("barnabas.storage.starting.recover_partition", last_is_never_recovered)
    again = DataDir.open(tmp_path, node_id=1)
    async with again:
        with scope:
            again._limiter.total_tokens = 1
            await again.load(config_of=lambda topic: CONFIG)
    monkeypatch.undo()
    assert scope.cancelled_caught
    async with await opened(tmp_path) as third:
        assert not third.claim.was_clean
        for number in range(3):
            assert third.vnodes["t", number].log_start_offset == 4
            assert values_of(third.vnodes["t", number]) == [b"%d" % i for i in range(4, 10)]
            third.vnodes["t", number].append(produced(10), now_ms=NOW)


async def test_a_stop_before_all_partitions_are_looked_at_forgets_nothing_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await opened(tmp_path) as data_dir:
        for number in range(4):
            vnode = data_dir.create_vnode("t", number, TOPIC_ID, CONFIG)
            for i in range(10):
                vnode.append(one(b"%d" % i), now_ms=NOW)
            vnode.flush()
            vnode.truncate_prefix(4)
    monkeypatch.setattr("barnabas.storage.data_dir._LOOKS_AT_ONCE", 1)
    scope = trio.CancelScope()
    async with DataDir.open(tmp_path, node_id=1) as again:
        with scope:
            await again.load(lambda *_: scope.cancel(), config_of=lambda topic: CONFIG)
    assert scope.cancelled_caught
    async with await opened(tmp_path) as third:
        assert [third.vnodes["t", number].log_start_offset for number in range(4)] == [4] * 4


async def test_a_partition_that_could_not_be_recovered_for_now_is_recovered_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = await opened(tmp_path)
    vnode = data_dir.create_vnode("t", 0, TOPIC_ID, CONFIG)
    vnode.append(produced(0), now_ms=NOW)
    vnode.flush()
    with open(vnode.segments[-1].path(), "ab") as log:
        log.write(b"torn")
    data_dir.claim.release()

    def refused(*_: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("barnabas.storage.starting.recover_partition", refused)
    async with await opened(tmp_path) as again:
        assert again.vnodes["t", 0].needs_recovery
    monkeypatch.undo()
    async with await opened(tmp_path) as third:
        assert not third.claim.was_clean
        assert values_of(third.vnodes["t", 0]) == [b"0"]
