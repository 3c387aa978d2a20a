"""Metrics of the subscriptions to binary logs, from what they report in a topic that any client may write to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.metrics import subscriptions
from barnabas.broker.metrics.subscriptions import MOST, MOST_BATCH, MOST_NAME, Subscriptions
from barnabas.broker.metrics.tests.test_exposition import WATCHED, told
from barnabas.broker.tests.client import Client
from barnabas.broker.tests.conftest import Running, Start
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.compression import CompressionType
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.subscription_reports import MOST_ERROR, STALE_SECONDS, TOPIC, Report, report_in


def written(name: str, report: Report | bytes | None) -> Record:
    return Record(name.encode(), msgspec.json.encode(report) if isinstance(report, Report) else report, 0)


async def write(client: Client, *records: Record, **options: Any) -> None:
    assert (await client.produce(TOPIC, build_batch(list(records), **options))).error_code == 0


def noted(broker: Running) -> Subscriptions:
    return broker.node._parts.find(Subscriptions)


async def test_the_last_report_of_each_subscription_is_told(start: Start) -> None:
    async with start(more=WATCHED) as broker, await broker.client() as client:
        await client.create_topic(TOPIC)
        now = broker.node.clock.wall_ms() // 1000
        await write(client, written("shop", Report(state="COPYING", at=now)))
        await write(client, written("shop", Report(state="READING", at=now, per_second=2.5, behind=7)))
        await write(client, written("old", Report(state="READING", at=now - STALE_SECONDS - 100)))
        await write(client, written("gone", Report(state="ENDED", at=now)), written("gone", None))
        await noted(broker).note()
        found = await told(broker.node)
        assert found.of("barnabas_binlog_lag_seconds", subscription="shop") == 7
        assert found.of("barnabas_binlog_messages_per_second", subscription="shop") == 2.5
        assert found.of("barnabas_binlog_state", subscription="shop", state="READING") == 1
        assert found.of("barnabas_binlog_state", subscription="old", state="SILENT") == 1
        assert found.of("barnabas_binlog_report_age_seconds", subscription="old") >= STALE_SECONDS + 100
        assert {labels["subscription"] for labels in found.labels("barnabas_binlog_state")} == {"shop", "old"}


async def test_a_topic_that_is_deleted_and_made_again_begins_anew(start: Start) -> None:
    async with start(more=WATCHED) as broker, await broker.client() as client:
        for name in ("first", "second"):
            await client.create_topic(TOPIC)
            await write(client, written(name, Report(state="READING", at=1)))
            await noted(broker).note()
            assert list(noted(broker).reports) == [name]
            deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=60_000)
            assert (await client.ask(deleted)).responses[0].error_code == 0
            await noted(broker).note()
            assert noted(broker).reports == {}


async def test_what_strangers_write_costs_little_and_hides_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MOST_BYTES", 2 * MOST_BATCH)
    report = Report(state="READING", at=1)
    async with start(more=WATCHED) as broker, await broker.client() as client:
        await client.create_topic(TOPIC)
        await write(client, written("bomb", b"{" + b" " * 900_000), compression=CompressionType.GZIP)
        await write(client, written("large", b"x" * (3 * MOST_BATCH)))  # more than is read at a time
        await write(client, written("larger", b"x" * (MOST_BATCH + 1)))
        await write(client, written("text", b"\xff no report"), written("n" * 1000, report))
        await write(client, *(written(f"many {number}", report) for number in range(100)))
        await write(client, written("honest", report))
        for _ in range(9):
            await noted(broker).note()
        names = list(noted(broker).reports)
        assert names[0] == "n" * MOST_NAME
        assert names[1:] == [*(f"many {number}" for number in range(100)), "honest"]
        for hundred in range(1, MOST // 100 + 1):
            await write(client, *(written(f"more {hundred} {number}", report) for number in range(100)))
            await noted(broker).note()
        assert len(noted(broker).reports) <= MOST


@given(st.binary() | st.builds(lambda value: msgspec.json.encode(value), st.from_type(Report)))
def test_any_value_is_a_bounded_report_or_none(value: bytes) -> None:
    found = report_in(value)
    assert found is None or len(found.error) <= MOST_ERROR
