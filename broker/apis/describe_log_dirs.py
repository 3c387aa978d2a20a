"""DescribeLogDirs (35), versions 1-5: where the logs are, and how large (KIP-113).

Version 1: directories with the sizes of their partitions. Version 2: only the encoding is new (flexible).
Version 3: an error code for the whole answer. Version 4: size and free space of the disk (KIP-827).
Version 5: whether the directory takes no new partitions; it always takes them.
"""

from __future__ import annotations

import trio

from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.net.large import LargeResponse
from barnabas.broker.net.order import METADATA, RECORDS
from barnabas.broker.partitions import Partitions
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_CLUSTER
from barnabas.broker.workers import Yielder
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
) -> LargeResponse:
    if not context.may(DESCRIBE_CLUSTER):
        return LargeResponse(DescribeLogDirsResponse(error_code=DESCRIBE_CLUSTER.refusal, results=[]))
    wanted: dict[str, set[int]] = {}
    for asked in request.topics or ():
        wanted.setdefault(asked.topic, set()).update(asked.partitions)
    yielder = Yielder()
    vnodes = []
    for name in list(metadata.topics) if request.topics is None else wanted:
        topic = metadata.topics.get(name)
        found = set(topic.partitions) if topic is not None else set()
        for index in sorted(found if request.topics is None else found & wanted[name]):
            vnode = partitions.get(name, index)
            if vnode is not None:
                vnodes.append(vnode)
            await yielder()
    # A partition that was not used since the start is not opened for this: the size of its files counts.
    closed = []
    for vnode in vnodes:
        if not vnode.loaded:
            closed.append(vnode)
        await yielder()
    stored, (total, usable) = await trio.to_thread.run_sync(_look, data_dir, closed)
    sizes: dict[Vnode, int | None] = {}
    for vnode, size in zip(closed, stored, strict=True):
        sizes[vnode] = size
        await yielder()
    topics: dict[str, DescribeLogDirsTopic] = {}
    for vnode in vnodes:
        size = vnode.size_bytes if vnode.loaded else sizes.get(vnode)
        if size is not None:
            answer = topics.setdefault(vnode.topic, DescribeLogDirsTopic(name=vnode.topic, partitions=[]))
            answer.partitions.append(DescribeLogDirsPartition(partition_index=vnode.partition, partition_size=size))
        await yielder()
    result = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=data_dir.path,
        topics=list(topics.values()),
        total_bytes=total,
        usable_bytes=usable,
    )
    return LargeResponse(DescribeLogDirsResponse(results=[result]), owned=[result.topics])


def _look(data_dir: DataDir, vnodes: list[Vnode]) -> tuple[list[int | None], tuple[int, int]]:
    """The stored bytes of some partitions, None for one that is gone; and size and free space of the disk."""
    return [vnode.stored_bytes() for vnode in vnodes], data_dir.disk_space()
