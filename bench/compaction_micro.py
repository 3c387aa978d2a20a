"""The speed of the log cleaner: megabytes of log per second of CPU, in this process, without a broker.

    python -m bench.compaction_micro [--megabytes 2048] [--record-bytes 1024] [--batch 16] [--codec none]

It writes a log of keyed records, each key twice, so that half of them are dead, and runs one pass of the cleaner. It
also prints the longest time for which the plan and each replacement of segments would hold the event loop.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from barnabas.storage.compaction_terms import CompactionLimits
from barnabas.storage.config import LogConfig
from barnabas.storage.files import FileCache
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.vnode import Origin
from barnabas.wire import batch
from barnabas.wire.batch import Record
from barnabas.wire.compression import CompressionType

NOW = 1_700_000_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--record-bytes", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--segments", type=int, default=0, help="so many segments, instead of those of 100 MB")
    parser.add_argument("--codec", default="none", choices=[each.name.lower() for each in CompressionType])
    parser.add_argument("--dir", default=None)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        run(Path(folder) / "t-0", args)


def run(path: Path, args: argparse.Namespace) -> None:
    total = args.megabytes << 20
    segment = total // args.segments if args.segments else 100 << 20
    config = LogConfig(segment_bytes=max(segment, 1024), cleanup_policy="compact", flush_messages=2**62)
    doomed: list[str] = []  # in a broker, a thread deletes these files
    vnode = LocalVnode(str(path), "t", 0, config, io=Io(), cache=FileCache(Io(), 512), discard=doomed.extend)
    vnode.create(bytes(16))
    fill(vnode, total, args)
    vnode.roll(NOW)
    vnode.flush()
    holds: list[float] = []

    def held(act: Callable[[], object]) -> object:
        began = time.perf_counter()
        result = act()
        holds.append(time.perf_counter() - began)
        return result

    vnode.config = LogConfig(cleanup_policy="compact", flush_messages=2**62)
    size, count = vnode.size_bytes, len(vnode.segments)
    held(lambda: vnode.compaction_need(NOW))
    began, cpu = time.perf_counter(), os.times()
    job = vnode.begin_compaction(NOW, CompactionLimits())
    holds.append(time.perf_counter() - began)
    assert job is not None
    goes_on = True
    while goes_on:
        job.run()
        goes_on = bool(held(lambda: vnode.end_compaction(job)))
    seconds, after = time.perf_counter() - began, os.times()
    spent = after.user + after.system - cpu.user - cpu.system
    print(
        f"{size / 1e6:.0f} MB in {count} segments, {job.figures.records_before} records, {job.figures.keys} keys: "
        f"{vnode.size_bytes / 1e6:.0f} MB in {len(vnode.segments)} segments after {seconds:.2f} s, {spent:.2f} CPU s "
        f"({after.user - cpu.user:.2f} user); {size / 1e6 / spent:.0f} MB per CPU second; "
        f"longest hold {1000 * max(holds):.1f} ms"
    )


def fill(vnode: LocalVnode, total: int, args: argparse.Namespace) -> None:
    codec = CompressionType[args.codec.upper()]
    records = total // args.record_bytes
    keys = records // 2
    value = random.Random(1).randbytes(args.record_bytes)
    pending: list[bytes] = []
    size = 0
    for first in range(0, records, args.batch):
        made = [
            Record(b"key-%012d" % ((number * 7919) % keys), value[: max(args.record_bytes - 30, 1)], NOW + number)
            for number in range(first, min(first + args.batch, records))
        ]
        data = batch.build_batch(made, base_offset=first, compression=codec, leader_epoch=0)
        pending.append(data)
        size += len(data)
        if size > 1 << 20:
            vnode.append(b"".join(pending), now_ms=NOW, origin=Origin.REPLICATION)
            pending, size = [], 0
    if pending:
        vnode.append(b"".join(pending), now_ms=NOW, origin=Origin.REPLICATION)


if __name__ == "__main__":
    main()
