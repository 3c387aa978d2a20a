"""The cost of an append, a read and a flush: `python -m bench.storage_micro [directory]`."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import trio

from barnabas.storage.config import LogConfig
from barnabas.storage.files import FileCache
from barnabas.storage.flusher import Flusher
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.wire import batch
from barnabas.wire.batch import Record


def measure(name: str, act: Callable[[int], object], rounds: int = 20_000) -> None:
    best = []
    for part in range(5):
        start = time.perf_counter()
        for i in range(part * rounds // 5, (part + 1) * rounds // 5):
            act(i)
        best.append((time.perf_counter() - start) * 5e6 / rounds)
    print(f"{name:44} {sorted(best)[2]:9.2f} µs (best {min(best):.2f})")


def vnode_in(directory: str, name: str, config: LogConfig) -> LocalVnode:
    io = Io()
    vnode = LocalVnode(os.path.join(directory, f"{name}-0"), name, 0, config, io=io, cache=FileCache(io))
    vnode.create(bytes(16))
    return vnode


def main(directory: str) -> None:
    page_cache = LogConfig(flush_messages=2**62)
    now = 1_700_000_000_000
    for size in (100, 1000, 16_384):
        data = batch.build_batch([Record(None, b"x" * size, now)])
        vnode = vnode_in(directory, f"append{size}", page_cache)
        fd = os.open(os.path.join(directory, f"raw{size}"), os.O_RDWR | os.O_CREAT)
        view = memoryview(data)
        measure(f"validate, {size} B", lambda _, data=data: batch.validate(data))  # type: ignore[misc]
        measure(
            f"pwritev alone, {size} B",
            lambda i, fd=fd, view=view: os.pwritev(fd, (view[:16], view[16:]), i * len(view)),  # type: ignore[misc]
        )
        os.close(fd)
        measure(f"append, {size} B", lambda _, v=vnode, d=data: v.append(d, now_ms=now))  # type: ignore[misc]
    vnode = vnode_in(directory, "idempotent", page_cache)
    batches = [
        batch.build_batch([Record(None, b"x" * 100, now)], producer_id=5, producer_epoch=0, base_sequence=i)
        for i in range(20_000)
    ]
    measure("append, 100 B, idempotent", lambda i: vnode.append(batches[i], now_ms=now))
    end = vnode.log_end_offset
    measure("read, 1 batch at random", lambda i: vnode.read(i * 7919 % end, 1))
    measure("read, 64 KiB at random", lambda i: vnode.read(i * 7919 % end, 65_536))
    position = 0

    def follow(_: int) -> None:
        nonlocal position
        found = vnode.read(position, 1000)
        position = position + 5 if found.slice else 0

    measure("read, in sequence", follow)

    measure("read, at the end (empty)", lambda _: vnode.read(end, 65_536))
    plain = vnode_in(directory, "tail", page_cache)
    data = batch.build_batch([Record(None, b"x" * 1000, now)])

    def append_and_read(_: int) -> None:
        result = plain.append(data, now_ms=now)
        assert plain.read(result.base_offset, 65_536).slice is not None

    measure("append and read it at the tail, 1000 B", append_and_read)
    trio.run(flushes, directory, data, now)


async def flushes(directory: str, data: bytes, now: int) -> None:
    fd = os.open(os.path.join(directory, "sync"), os.O_RDWR | os.O_CREAT)
    vnode = vnode_in(directory, "flush", LogConfig())
    times: dict[str, list[float]] = {"write + fdatasync": [], "append + flushed": []}
    async with trio.open_nursery() as nursery:
        flusher = Flusher()
        await nursery.start(flusher.run)
        for i in range(500):
            start = time.perf_counter()
            os.pwrite(fd, data, i * len(data))
            os.fdatasync(fd)
            middle = time.perf_counter()
            result = vnode.append(data, now_ms=now)
            await flusher.flushed(vnode, result.last_offset + 1)
            end = time.perf_counter()
            times["write + fdatasync"].append((middle - start) * 1e6)
            times["append + flushed"].append((end - middle) * 1e6)
        for name, values in times.items():
            values.sort()
            print(f"{name:44} {values[250]:9.0f} µs (p99 {values[495]:.0f})")

        before = flusher.flushes
        done = 0

        async def producer() -> None:
            nonlocal done
            for _ in range(100):
                result = vnode.append(data, now_ms=now)
                await flusher.flushed(vnode, result.last_offset + 1)
                done += 1

        start = time.perf_counter()
        async with trio.open_nursery() as producers:
            for _ in range(50):
                producers.start_soon(producer)
        took = time.perf_counter() - start
        print(
            f"50 producers: {done / took:.0f} acknowledged appends/s, {done / (flusher.flushes - before):.1f} a flush"
        )
        nursery.cancel_scope.cancel()
    os.close(fd)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else Path.cwd()) as place:
        main(place)
