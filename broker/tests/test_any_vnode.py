"""Nothing above storage needs files: the handlers work with a vnode that has none."""

from __future__ import annotations

import trio

from barnabas.broker.tests.client import batch_of
from barnabas.broker.tests.conftest import Start
from barnabas.storage.config import LogConfig
from barnabas.storage.tests.memory import MemoryVnode
from barnabas.wire.batch import iter_batches, iter_records
from barnabas.wire.errors import ErrorCode


async def test_produce_and_fetch_over_a_vnode_without_files(start: Start) -> None:
    async with start() as running, await running.client() as client:
        await client.create_topic("t")
        partitions = running.node.partitions
        local = partitions._vnodes
        memory = MemoryVnode("t", 0, running.node.metadata.topics["t"].topic_id, LogConfig())
        partitions._vnodes = {**local, ("t", 0): memory}
        first = await client.produce("t", batch_of(b"a", b"b"))
        assert (first.error_code, first.base_offset) == (0, 0)
        assert memory.high_watermark == 2  # the flusher has flushed it
        large = batch_of(bytes(300_000))
        assert (await client.produce("t", large)).base_offset == 2
        found = await client.fetch("t")
        records = [r.value for _, view in iter_batches(bytes(found.records)) for r in iter_records(view)]
        assert [len(value or b"") for value in records] == [1, 1, 300_000]
        assert found.high_watermark == 3
        assert (await client.fetch("t", offset=4)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        seen: list[bytes | None] = []

        async def wait_for_more() -> None:
            more = await client.fetch("t", offset=3, max_wait_ms=10_000)
            seen.extend(r.value for _, view in iter_batches(bytes(more.records)) for r in iter_records(view))

        async with trio.open_nursery() as nursery, await running.client() as other:
            nursery.start_soon(wait_for_more)
            assert (await other.produce("t", batch_of(b"c"))).base_offset == 3
        assert seen == [b"c"]
        memory.fail("flush", OSError(5, "Input/output error"))
        assert (await client.produce("t", batch_of(b"d"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.fetch("t")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert local["t", 0].log_end_offset == 0
