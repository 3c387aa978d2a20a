"""Partitions are kept out of garbage collections, however they come."""

from __future__ import annotations

import gc

import pytest

from barnabas.broker.tests.conftest import Start
from barnabas.storage import garbage


async def test_many_new_partitions_and_open_logs_are_kept_out_of_garbage_collections(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "EVERY", 50)
    calls: list[int] = []
    async with start() as running, await running.client() as client:
        await client.create_topic("few", 10)
        gc.collect(1)
        monkeypatch.setattr(gc, "freeze", lambda: calls.append(1))
        await client.create_topic("many", 60)
        gc.collect(1)
        assert calls == [1]
        gc.collect(1)
        gc.collect()
        assert calls == [1]  # there are not many more
    async with start() as running:
        gc.collect(1)
        before = len(calls)
        for vnode in running.node.vnodes.values():
            vnode.log_end_offset  # noqa: B018  the log is opened
        gc.collect(1)
        assert len(calls) == before + 1
    gc.collect(1)
    assert len(calls) == before + 1
