"""Every system call of a vnode's life fails once, in every way; acknowledged records are there afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.storage.errors import StorageError
from barnabas.storage.io import Io
from barnabas.storage.recovery import recover_partition
from barnabas.storage.tests.support import (
    NOW,
    SMALL,
    CrashError,
    FaultyIo,
    created,
    flush_alone,
    one,
    produced,
    read_all,
    recovered,
    values_of,
    vnode_at,
)

KINDS = ["eio", "enospc", "short", "before", "after", "torn"]


def live(path: Path, io: FaultyIo, appended: list[bytes], acknowledged: list[bytes], started: list[int]) -> None:
    """Create, append, flush, roll, delete and close; notes each step when it is done."""
    vnode = created(path, io=io)
    for number in range(24):
        value = b"%d" % number
        appended.append(value)
        vnode.leader_epoch = number // 10
        vnode.append(produced(number), now_ms=NOW)
        if number % 3 == 2:
            flush_alone(vnode)
            acknowledged[:] = appended
        if number == 17:
            started.append(8)
            vnode.truncate_prefix(8)
    vnode.close()


def calls_of_a_life(path: Path) -> int:
    counter = FaultyIo(-1, "eio")
    live(path, counter, [], [], [])
    return counter.calls


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_any_call_loses_nothing_acknowledged(tmp_path: Path, kind: str) -> None:
    total = calls_of_a_life(tmp_path / "count")
    assert total > 80
    for at in range(1, total + 1):
        path = tmp_path / f"{at}-0"
        appended: list[bytes] = []
        acknowledged: list[bytes] = []
        started: list[int] = []
        try:
            live(path, FaultyIo(at, kind), appended, acknowledged, started)
        except (StorageError, CrashError):
            pass
        if not path.exists():
            assert not acknowledged
            continue
        vnode = recovered(path)
        found = read_all(vnode)
        first = found[0].offset if found else vnode.log_end_offset
        assert first == 0 or (started and first <= 8)
        assert [r.offset for r in found] == list(range(first, first + len(found)))
        got = [r.value for r in found]
        assert got == appended[first : first + len(got)], "not what was appended"
        assert len(got) + first >= len(acknowledged), f"lost after a fault at call {at}"
        # The vnode goes on: the same producer repeats its last batch and continues.
        end = vnode.log_end_offset
        if end > first:
            assert vnode.append(produced(end - 1), now_ms=NOW).duplicate
        assert vnode.append(produced(end), now_ms=NOW).base_offset == end
        vnode.flush()
        assert values_of(vnode)[-1] == b"%d" % end


@pytest.mark.parametrize("kind", ["before", "after", "torn", "eio"])
def test_a_fault_during_recovery_is_recovered_from(tmp_path: Path, kind: str) -> None:
    for at in range(1, 40):
        path = tmp_path / f"{at}-0"
        vnode = created(path)
        for number in range(20):
            vnode.leader_epoch = number // 10
            vnode.append(produced(number), now_ms=NOW)
        vnode.flush()
        with open(vnode.segments[-1].path(), "ab") as log:
            log.write(b"torn")
        try:
            recover_partition(FaultyIo(at, kind), str(path), 0, SMALL)
        except (OSError, CrashError):
            pass
        assert values_of(recovered(path)) == [b"%d" % number for number in range(20)]


def test_after_a_failed_fsync_nothing_is_acknowledged_any_more(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", io=(io := FaultyIo(-1, "eio")))
    vnode.append(one(b"a"), now_ms=NOW)
    vnode.flush()
    vnode.append(one(b"b"), now_ms=NOW)
    io.at = io.calls + 1
    with pytest.raises(StorageError, match="flush failed"):
        vnode.flush()
    for act in (vnode.flush, lambda: vnode.append(one(b"c"), now_ms=NOW), lambda: vnode.read(0, 100)):
        with pytest.raises(StorageError, match="offline"):
            act()


def test_a_full_disk_leaves_no_torn_batch_in_the_file(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", io=(io := FaultyIo(-1, "short")))
    vnode.append(one(b"a"), now_ms=NOW)
    size = vnode.size_bytes
    path = vnode.segments[0].path()
    io.at = io.calls + 1
    with pytest.raises(StorageError, match="No space left"):
        vnode.append(one(b"b" * 100), now_ms=NOW)
    assert Path(path).stat().st_size == size
    assert values_of(vnode_at(tmp_path / "t-0")) == [b"a"]


def test_no_room_for_zeros_is_no_error(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", io=(io := FaultyIo(-1, "enospc")))
    vnode.append(one(b"a"), now_ms=NOW)
    io.at = io.calls + 1
    flush_alone(vnode)
    assert vnode.high_watermark == 1
    vnode.append(one(b"b"), now_ms=NOW)
    flush_alone(vnode)
    vnode.close()
    assert values_of(vnode_at(tmp_path / "t-0")) == [b"a", b"b"]


def test_zeros_that_cannot_be_cut_off_wait_for_the_next_occasion(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", io=(io := FaultyIo(-1, "eio")))
    vnode.append(one(b"a"), now_ms=NOW)
    flush_alone(vnode)
    path = Path(vnode.segments[0].path())
    io.at = io.calls + 1
    vnode.unreserve()
    assert path.stat().st_size > vnode.size_bytes
    vnode.unreserve()
    assert path.stat().st_size == vnode.size_bytes
    assert values_of(vnode) == [b"a"]


def test_a_short_write_is_completed(tmp_path: Path) -> None:
    class Short(Io):
        def pwritev(self, fd: int, parts: object, position: int) -> int:
            return super().pwritev(fd, (b"".join(parts)[:7],), position)  # type: ignore[arg-type]

    vnode = created(tmp_path / "t-0", io=Short())
    vnode.append(one(b"abc", b"def"), now_ms=NOW)
    vnode.flush()
    assert values_of(vnode) == [b"abc", b"def"]
