"""The size of the metadata log after many topics were created and deleted, and the time that a start reads it.

    python -m bench.metadata_year [--topics 365000] [--kept 1000] [--snapshot-bytes 20971520]

Each topic has four partitions and two settings, and is deleted after the next one is made; each change is a batch, as
the broker writes it. As in the broker, a snapshot is taken whenever the log has grown by `--snapshot-bytes`, and two
are kept; partition folders are not made. The load is the work of a start before it opens its port. With
`--snapshot-bytes 0` there are no snapshots.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import uuid
from pathlib import Path

from barnabas.broker.clock import Clock
from barnabas.broker.metadata.image import METADATA_TOPIC, METADATA_TOPIC_ID, Leader, MetadataImage, TopicImage
from barnabas.broker.metadata.records import encode_snapshot
from barnabas.broker.metadata.snapshots import KEPT
from barnabas.storage.config import LogConfig
from barnabas.storage.files import FileCache
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.snapshots import SnapshotId, Snapshots
from barnabas.wire.records.cluster_metadata import RemoveTopicRecord

CONFIGS = {"cleanup.policy": "compact", "retention.ms": "86400000"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=365_000)
    parser.add_argument("--kept", type=int, default=1_000)
    parser.add_argument("--snapshot-bytes", type=int, default=20 << 20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), args)


def opened(path: Path) -> LocalVnode:
    config = LogConfig(segment_bytes=256 << 20, max_message_bytes=64 << 20, flush_messages=2**62)
    return LocalVnode(str(path), METADATA_TOPIC, 0, config, io=Io(), cache=FileCache(Io(), 512))


def run(folder: Path, args: argparse.Namespace) -> None:
    path = folder / f"{METADATA_TOPIC}-0"
    vnode, snapshots = opened(path), Snapshots(Io(), str(path))
    vnode.create(METADATA_TOPIC_ID)
    image = MetadataImage(1, Clock())
    image.load(vnode)
    gone: bytes | None = None
    taken = 0
    for number in range(args.topics):
        topic_id = uuid.uuid4().bytes
        records = image.topic_records(
            TopicImage(f"topic-{number}", topic_id, dict.fromkeys(range(4), Leader(1, 0)), CONFIGS)
        )
        changes = [records]
        if number >= args.kept:
            changes += [[RemoveTopicRecord(topic_id=gone)]] if gone is not None else []
            gone = topic_id
        for change in changes:
            image.write(image.batch_of(change))
            for record in change:
                image.apply(record)
        if args.snapshot_bytes and image.bytes_since_snapshot >= args.snapshot_bytes:
            taken += 1
            snapshot = SnapshotId(vnode.log_end_offset, 0)
            snapshots.write(snapshot, b"".join(encode_snapshot(image.records(), 0, image.newest_ms)))
            image.snapshot_taken()
            vnode.roll(0)
            snapshots.prune(KEPT)
            vnode.truncate_prefix(snapshots.ids()[-1].offset)
    vnode.flush()
    on_disk = sum(file.stat().st_size for file in path.iterdir() if not file.name.endswith(".deleted"))
    again = MetadataImage(1, Clock())
    began = time.perf_counter()
    again.load(vnode, snapshots)
    seconds = time.perf_counter() - began
    assert again.topics.keys() == image.topics.keys()
    print(
        f"{args.topics} topics made, {len(again.topics)} left, {taken} snapshots: {on_disk / 1e6:.1f} MB on disk, "
        f"read in {seconds:.2f} s"
    )


if __name__ == "__main__":
    main()
