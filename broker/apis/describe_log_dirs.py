"""DescribeLogDirs (35), versions 1-5: where the logs are, and how large (KIP-113).

Version 1: directories with the sizes of their partitions. Version 2: only the encoding is new (flexible).
Version 3: an error code for the whole answer. Version 4: size and free space of the disk (KIP-827).
Version 5: whether the directory takes no new partitions; it always takes them.
"""

from __future__ import annotations

import trio

from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.net.order import METADATA, RECORDS
from barnabas.broker.partitions import Partitions
from barnabas.broker.registry import Context, api
from barnabas.storage.data_dir import DataDir
from barnabas.storage.vnode import Vnode
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
    metadata: MetadataImage,
    data_dir: DataDir,
) -> DescribeLogDirsResponse:
    wanted = None if request.topics is None else {(t.topic, index) for t in request.topics for index in t.partitions}
    vnodes = [
        vnode
        for topic in metadata.topics.values()
        for index in sorted(topic.partitions)
        if (wanted is None or (topic.name, index) in wanted) and (vnode := partitions.get(topic.name, index))
    ]
    # A partition that nobody has used since the start is not opened for this: what is stored of it is looked at.
    closed = [vnode for vnode in vnodes if not vnode.loaded]
    stored, (total, usable) = await trio.to_thread.run_sync(_look, data_dir, closed)
    sizes = dict(zip(closed, stored, strict=True))
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
                log_dir=data_dir.path,
                topics=list(topics.values()),
                total_bytes=total,
                usable_bytes=usable,
            )
        ]
    )


def _look(data_dir: DataDir, vnodes: list[Vnode]) -> tuple[list[int | None], tuple[int, int]]:
    """Bytes stored of some partitions, None where one is gone; size and free space of the disk."""
    return [vnode.stored_bytes() for vnode in vnodes], data_dir.disk_space()
