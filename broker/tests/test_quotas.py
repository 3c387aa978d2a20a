"""Client quotas: bounded, in one order, and the same after a restart."""

from __future__ import annotations

import math

import pytest

from barnabas.broker.settings import quotas
from barnabas.broker.tests.client import Client
from barnabas.broker.tests.conftest import Start
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from barnabas.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from barnabas.wire.records.cluster_metadata import ClientQuotaRecord

RATE = "consumer_byte_rate"


def of_user(name: str | None, value: float, *, remove: bool = False) -> EntryData:
    return EntryData([EntityData("user", name)], [OpData(RATE, value, remove)])


async def alter(client: Client, *entries: EntryData) -> list[int]:
    answer = await client.ask(AlterClientQuotasRequest(list(entries)))
    return [entry.error_code for entry in answer.entries]


async def users(client: Client) -> dict[str | None, float]:
    answer = await client.ask(DescribeClientQuotasRequest([ComponentData("user", quotas.ANY, None)]))
    return {entry.entity[0].entity_name: entry.values[0].value for entry in answer.entries}


def test_an_entity_is_the_same_in_any_order_and_goes_with_its_last_quota() -> None:
    image = quotas.ClientQuotas()
    names: list[tuple[str, str | None]] = [("user", "a"), ("client-id", None)]
    image.apply(quotas.record(names, RATE, 1.0))
    image.apply(quotas.record(names[::-1], RATE, 2.0))
    assert image.of == {(("client-id", None), ("user", "a")): {RATE: 2.0}}
    image.apply(quotas.record(names, RATE, None))
    image.apply(quotas.record(names, RATE, None))
    assert image.of == {}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_quota_is_a_number(value: float) -> None:
    with pytest.raises(KafkaError):
        quotas.check_value([("user", "a")], "request_percentage", value)


async def test_what_is_wrong_with_one_entry_does_not_hurt_the_others(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        twice = EntryData([EntityData("user", "b")], [OpData(RATE, 1.0), OpData(RATE, 2.0)])
        both = EntryData([EntityData("user", "c"), EntityData("user", "d")], [OpData(RATE, 1.0)])
        long = of_user("x" * (quotas.MAX_NAME + 1), 1.0)
        entries = (of_user("a", 1.0), of_user("a", 2.0), twice, both, long, of_user(None, 3.0))
        invalid = ErrorCode.INVALID_REQUEST
        assert await alter(client, *entries) == [0, invalid, invalid, invalid, invalid, 0]
        assert await users(client) == {"a": 1.0, None: 3.0}


async def test_entities_with_quotas_are_bounded(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "MAX_ENTITIES", 3)
    async with start() as broker, await broker.client() as client:
        codes = await alter(client, *(of_user(f"u{number}", 1.0) for number in range(5)))
        assert codes == [0, 0, 0, ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION]
        assert await alter(client, of_user("u0", 2.0), of_user("u9", 1.0, remove=True)) == [0, 0]
        assert await alter(client, of_user("u0", 0.0, remove=True)) == [0]
        assert await alter(client, of_user("u4", 4.0)) == [0]
        assert await users(client) == {"u1": 1.0, "u2": 1.0, "u4": 4.0}
    async with start() as broker, await broker.client() as client:
        assert await users(client) == {"u1": 1.0, "u2": 1.0, "u4": 4.0}


async def test_a_large_request_is_cut_and_answered_whole(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        codes = await alter(client, *(of_user(f"user {number}", number + 1.0) for number in range(3000)))
        assert codes == [0] * 3000
        assert len(await users(client)) == 3000


async def test_what_changes_nothing_is_not_written(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        assert await alter(client, of_user("a", 1.0)) == [0]
        log = broker.node.vnodes["__cluster_metadata", 0]
        end = log.log_end_offset
        gone = [OpData(f"key {number}", 0.0, True) for number in range(60)]
        assert await alter(client, of_user("a", 1.0), of_user("b", 0.0, remove=True)) == [0, 0]
        assert await alter(client, EntryData([EntityData("user", "a")], gone[:50])) == [0]
        assert await alter(client, EntryData([EntityData("user", "a")], gone)) == [ErrorCode.INVALID_REQUEST]
        assert log.log_end_offset == end


def test_the_record_is_kafkas() -> None:
    record = quotas.record([("user", None)], RATE, 1.5)
    assert (ClientQuotaRecord.__wire__.key, record.entity[0].entity_name, record.value, record.remove) == (
        14,
        None,
        1.5,
        False,
    )
