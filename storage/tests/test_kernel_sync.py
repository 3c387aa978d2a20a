"""fdatasync by the kernel, alone and under the flusher."""

from __future__ import annotations

import errno
import os
import platform
import resource
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.storage import kernel_sync
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import StorageError
from barnabas.storage.flusher import Flusher
from barnabas.storage.io import Io
from barnabas.storage.kernel_sync import DEPTH, KernelSync
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.tests.support import NOW, created, one


def available() -> bool:
    try:
        KernelSync[int]().close()
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not available(), reason="this system has no asynchronous fsync")


@pytest.fixture
def syncs() -> Iterator[KernelSync[int]]:
    made: KernelSync[int] = KernelSync()
    yield made
    made.close()


def test_where_the_system_refuses_no_descriptor_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_sync, "_NUMBERS", {platform.machine(): (1 << 20, 0, 0, 0)})
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="not implemented"):
        KernelSync[int]()
    assert os.listdir("/proc/self/fd") == before


def test_without_a_free_descriptor_it_is_an_os_error() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        with pytest.raises(OSError, match="Too many open files") as refused:
            KernelSync[int]()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert refused.value.errno == errno.EMFILE


def wait_for_all(syncs: KernelSync[Any]) -> list[tuple[Any, OSError | None]]:
    found = []
    while len(syncs):
        assert select.select([syncs], [], [], 20)[0]
        found += syncs.completed()
    return found


def test_each_sync_is_told_once_with_its_token(syncs: KernelSync[int], tmp_path: Path) -> None:
    files = [(tmp_path / str(number)).open("wb", buffering=0) for number in range(3)]
    for number, file in enumerate(files):
        file.write(b"x")
        syncs.add(file.fileno(), number)
    assert len(syncs) == 3
    syncs.submit()
    assert sorted(wait_for_all(syncs)) == [(0, None), (1, None), (2, None)]
    assert syncs.completed() == []
    for file in files:
        file.close()


def test_more_than_fit_wait_for_their_turn(syncs: KernelSync[int], tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb", buffering=0) as file:
        for number in range(2 * DEPTH + 3):
            syncs.add(file.fileno(), number)
        syncs.submit()
        assert sorted(number for number, _ in wait_for_all(syncs)) == list(range(2 * DEPTH + 3))


def test_what_cannot_be_synced_has_its_error_and_the_others_do_not_suffer(
    syncs: KernelSync[int], tmp_path: Path
) -> None:
    read_end, write_end = os.pipe()
    with (tmp_path / "file").open("wb", buffering=0) as file:
        for number, fd in enumerate((file.fileno(), write_end, file.fileno())):
            syncs.add(fd, number)
        syncs.submit()
        found = dict(wait_for_all(syncs))
    os.close(read_end)
    os.close(write_end)
    assert found[0] is None
    assert found[2] is None
    assert found[1] is not None
    assert found[1].errno == errno.EINVAL


class Watched(KernelSync[Any]):
    """Counts submissions that had something to begin; fails the sync of chosen files."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[int] = []
        self.fails: set[object] = set()

    def submit(self) -> None:
        if self._waiting:
            self.begun.append(len(self._waiting))
        super().submit()

    def completed(self) -> list[tuple[Any, OSError | None]]:
        broken = OSError(errno.EIO, "Input/output error")
        return [(token, broken if token[0] in self.fails else error) for token, error in super().completed()]


class WatchedIo(Io):
    """An Io whose kernel syncs can be inspected."""

    def __init__(self) -> None:
        self.kernel = Watched()

    def kernel_sync(self) -> Watched:
        return self.kernel


def used(folder: Path, io: Io) -> list[LocalVnode]:
    """Three vnodes with one record each, with everything synced, also their files' names and epochs."""
    vnodes = [created(folder / f"t-{number}", LogConfig(), io=io) for number in range(3)]
    for vnode in vnodes:
        vnode.append(one(b"v"), now_ms=NOW)
        vnode.flush()
    return vnodes


async def test_several_vnodes_are_synced_together_and_a_lone_one_on_the_spot(tmp_path: Path) -> None:
    io = WatchedIo()
    vnodes = used(tmp_path, io)
    flusher = Flusher(io)
    async with trio.open_nursery() as nursery:
        await nursery.start(flusher.run)
        with trio.fail_after(60):
            async with trio.open_nursery() as producers:
                for vnode in vnodes:
                    vnode.append(one(b"v"), now_ms=NOW)
                    producers.start_soon(flusher.flushed, vnode, 2)
            assert io.kernel.begun == [3]
            assert [vnode.high_watermark for vnode in vnodes] == [2, 2, 2]
            vnodes[0].append(one(b"v"), now_ms=NOW)
            await flusher.flushed(vnodes[0], 3)
        assert io.kernel.begun == [3]
        assert flusher.flushes == 4
        nursery.cancel_scope.cancel()


async def test_a_sync_that_failed_in_the_kernel_refuses_those_who_wait(tmp_path: Path) -> None:
    io = WatchedIo()
    vnodes = used(tmp_path, io)
    io.kernel.fails.add(vnodes[1])
    flusher = Flusher(io)
    ended: dict[int, str] = {}

    async def producer(number: int) -> None:
        vnodes[number].append(one(b"v"), now_ms=NOW)
        try:
            await flusher.flushed(vnodes[number], 2)
            ended[number] = "kept"
        except StorageError:
            ended[number] = "refused"

    async with trio.open_nursery() as nursery:
        await nursery.start(flusher.run)
        with trio.fail_after(60):
            async with trio.open_nursery() as producers:
                for number in range(3):
                    producers.start_soon(producer, number)
        nursery.cancel_scope.cancel()
    assert ended == {0: "kept", 1: "refused", 2: "kept"}
    assert vnodes[1].error is not None


async def test_the_end_of_the_flusher_waits_for_the_kernel(tmp_path: Path) -> None:
    io = WatchedIo()
    vnodes = used(tmp_path, io)
    flusher = Flusher(io)
    served: list[int] = []
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(flusher.run)
            for number, vnode in enumerate(vnodes):
                vnode.append(one(b"v"), now_ms=NOW)
                flusher.when_flushed(vnode, 2, lambda number=number: served.append(number))  # type: ignore[misc]
            while not io.kernel.begun:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert sorted(served) == [0, 1, 2]
    assert [vnode.high_watermark for vnode in vnodes] == [2, 2, 2]


def test_who_intercepts_fdatasync_sees_them_all() -> None:
    class Intercepts(Io):
        def fdatasync(self, fd: int) -> None:
            raise NotImplementedError

    assert Intercepts().kernel_sync() is None


class OtherLibc:
    """A libc without the functions that are called here."""

    def __init__(self, *_: object, **__: object) -> None:
        """Takes what CDLL takes."""


@pytest.mark.door
@pytest.mark.parametrize("upstream", ["no syscall()", "no libc", "forbidden", "another machine"])
async def test_where_the_kernel_cannot_be_asked_flushes_are_done_all_the_same(
    upstream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "seccomp")

    vnodes = used(tmp_path, Io())
    if upstream == "no syscall()":
        monkeypatch.setattr("ctypes.CDLL", OtherLibc)
    elif upstream == "no libc":
        monkeypatch.setattr("ctypes.CDLL", refuse)
    elif upstream == "forbidden":
        monkeypatch.setattr(KernelSync, "_call", refuse)
    else:
        monkeypatch.setattr("platform.machine", lambda: "sparc")
    assert Io().kernel_sync() is None
    flusher = Flusher(Io())
    async with trio.open_nursery() as nursery:
        await nursery.start(flusher.run)
        for vnode in vnodes:
            vnode.append(one(b"v"), now_ms=NOW)
        with trio.fail_after(60):
            for vnode in vnodes:
                await flusher.flushed(vnode, 2)
        nursery.cancel_scope.cancel()
    assert [vnode.high_watermark for vnode in vnodes] == [2, 2, 2]
