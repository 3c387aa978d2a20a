"""Partitions are kept out of garbage collections, however they come."""

from __future__ import annotations

import gc

import pytest

from barnabas.broker import node
from barnabas.broker.tests.conftest import Start, until


async def test_many_new_partitions_are_kept_out_of_garbage_collections(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "FREEZE_SECONDS", 0.01)
    monkeypatch.setattr(node, "FREEZE_EVERY", 50)
    calls: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(1))
    async with start() as running, await running.client() as client:
        await client.create_topic("few", 10)
        await client.create_topic("many", 60)
        await until(lambda: bool(calls))
        weight = await running.node._weight()
        assert weight >= 70
        assert len(calls) <= weight // 50  # once for each 50
