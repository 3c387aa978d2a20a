"""The size and load time of `__consumer_offsets` after many commits, with and without compaction.

    python -m bench.offsets_year [--commits 2000000] [--keys 5000]

There is one partition, with one batch for each commit, as the coordinator writes it, and segments of
`offsets.topic.segment.bytes`. The load is the work of a broker's start before it answers for the groups of that
partition.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from barnabas.groupcoord.log.image import PartitionImage
from barnabas.groupcoord.log.log_store import Replay
from barnabas.groupcoord.log.records import offset_record
from barnabas.storage.compaction_terms import CompactionLimits
from barnabas.storage.config import LogConfig
from barnabas.storage.files import FileCache
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.vnode import Origin
from barnabas.wire import batch
from barnabas.wire.batch import Record
from barnabas.wire.records.offset_commit import OffsetCommitValue

NOW = 1_700_000_000_000
STEP_MS = 10  # between two commits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=5_000)
    parser.add_argument("--segment-bytes", type=int, default=100 << 20)
    args = parser.parse_args()
    for policy in ("delete", "compact"):
        with tempfile.TemporaryDirectory() as folder:
            run(Path(folder), policy, args)


def opened(path: Path, policy: str, segment_bytes: int) -> LocalVnode:
    config = LogConfig(segment_bytes=segment_bytes, cleanup_policy=policy, flush_messages=2**62)
    return LocalVnode(str(path / "o-0"), "__consumer_offsets", 0, config, io=Io(), cache=FileCache(Io(), 512))


def run(path: Path, policy: str, args: argparse.Namespace) -> None:
    vnode = opened(path, policy, args.segment_bytes)
    vnode.create(bytes(16))
    cleaning, passes, largest = 0.0, 0, 0
    for number in range(args.commits):
        now = NOW + number * STEP_MS
        key = number % args.keys
        value = OffsetCommitValue(offset=number, leader_epoch=0, metadata="", commit_timestamp=now)
        made = offset_record(f"group-{key // 50}", "orders", key % 50, value)
        data = batch.build_batch([Record(made.key, made.value, now)])
        vnode.append(data, now_ms=now, origin=Origin.COORDINATOR)
        if number % 10_000 == 0:
            largest = max(largest, vnode.size_bytes)
            if vnode.compaction_need(now).dirty_ratio > 0.5:
                began = time.process_time()
                clean(vnode, now)
                cleaning, passes = cleaning + time.process_time() - began, passes + 1
    vnode.flush()
    vnode.close()
    again = opened(path, policy, args.segment_bytes)
    again.load()
    began = time.perf_counter()
    replay = Replay(again, PartitionImage())
    while (piece := replay.next()) is not None:
        replay.take(piece)
    seconds = time.perf_counter() - began
    assert len(replay.image.offsets) == args.keys
    print(
        f"cleanup.policy={policy}: {args.commits} commits of {args.keys} positions: {again.size_bytes / 1e6:.1f} MB "
        f"(at most {largest / 1e6:.1f} MB), loaded in {seconds:.2f} s; {passes} passes took {cleaning:.2f} CPU s"
    )


def clean(vnode: LocalVnode, now: int) -> None:
    job = vnode.begin_compaction(now, CompactionLimits())
    goes_on = job is not None
    while job is not None and goes_on:
        job.run()
        goes_on = vnode.end_compaction(job)


if __name__ == "__main__":
    main()
