"""DescribeLogDirs (35), versions 1-5: where the logs are, and how large (KIP-113, KIP-827)."""

from __future__ import annotations

import os
from collections.abc import Iterable

import trio

from barnabas.broker.config import BrokerConfig
from barnabas.broker.metadata import Metadata
from barnabas.broker.order import METADATA, RECORDS
from barnabas.broker.partitions import Partitions
from barnabas.broker.registry import Context, api
from barnabas.storage.io import Io
from barnabas.storage.recovery import list_segments
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


@api(DescribeLogDirsRequest, DescribeLogDirsResponse, uses=METADATA | RECORDS)
async def handle(
    context: Context,
    request: DescribeLogDirsRequest,
    partitions: Partitions,
    metadata: Metadata,
    config: BrokerConfig,
    io: Io,
) -> DescribeLogDirsResponse:
    wanted = None if request.topics is None else {(t.topic, index) for t in request.topics for index in t.partitions}
    vnodes = [
        vnode
        for topic in metadata.topics.values()
        for index in sorted(topic.partitions)
        if (wanted is None or (topic.name, index) in wanted) and (vnode := partitions.get(topic.name, index))
    ]
    path = os.path.abspath(config.data_dir)
    # A partition that nobody has used since the start is not opened for this: its files are looked at.
    closed = [vnode for vnode in vnodes if not vnode.loaded]
    on_disk, total, usable = await trio.to_thread.run_sync(_look, io, path, [vnode.directory for vnode in closed])
    sizes = dict(zip(closed, on_disk, strict=True))
    topics: dict[str, DescribeLogDirsTopic] = {}
    for vnode in vnodes:
        size = vnode.size_bytes if vnode.loaded else sizes.get(vnode)
        if size is not None:
            topic = topics.setdefault(vnode.topic, DescribeLogDirsTopic(name=vnode.topic, partitions=[]))
            topic.partitions.append(DescribeLogDirsPartition(partition_index=vnode.partition, partition_size=size))
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                error_code=ErrorCode.NONE,
                log_dir=path,
                topics=list(topics.values()),
                total_bytes=total,
                usable_bytes=usable,
            )
        ]
    )


def _look(io: Io, path: str, directories: Iterable[str]) -> tuple[list[int | None], int, int]:
    """Bytes of log in each of some partitions' folders, None where one is gone; size and free space of the disk."""
    sizes: list[int | None] = []
    for directory in directories:
        try:
            sizes.append(sum(segment.size for segment in list_segments(io, directory)))
        except FileNotFoundError:
            sizes.append(None)
    disk = os.statvfs(path)
    return sizes, disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
