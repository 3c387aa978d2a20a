"""Client metrics (KIP-714): what clients are asked for, what they push, and the limits for clients that lie."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from barnabas.broker.metrics import telemetry
from barnabas.broker.metrics.tests.test_exposition import WATCHED, told
from barnabas.broker.tests.client import Client
from barnabas.broker.tests.conftest import Start
from barnabas.wire.compression import CompressionType, compress
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.wire.messages.push_telemetry import PushTelemetryRequest

CLIENT_METRICS = 16
NAME = "org.apache.kafka.producer.record.send.total"


async def subscribe(client: Client, name: str = "all", **configs: str | None) -> ErrorCode:
    """Set keys of a client-metrics resource; None deletes one."""
    changes = [
        AlterableConfig(key.replace("_", "."), 1 if value is None else 0, value) for key, value in configs.items()
    ]
    resource = AlterConfigsResource(CLIENT_METRICS, name, changes)
    answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))
    return ErrorCode(answer.responses[0].error_code)


def metrics(**values: float) -> bytes:
    """A push with a sum for each value."""
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    for name, value in values.items():
        metric = scope.metrics.add(name=name.replace("_", "."))
        point = metric.sum.data_points.add(as_double=value)
        point.attributes.add(key="node").value.string_value = "1"
    made: bytes = data.SerializeToString()
    return made


async def push(client: Client, told: Any, data: bytes, codec: int = 0, *, last: bool = False) -> ErrorCode:
    request = PushTelemetryRequest(told.client_instance_id, told.subscription_id, last, codec, data)
    return ErrorCode((await client.ask(request)).error_code)


async def asks(client: Client, instance: bytes = bytes(16)) -> Any:
    return await client.ask(GetTelemetrySubscriptionsRequest(instance))


async def test_without_somebody_who_reads_it_is_not_advertised(start: Start) -> None:
    async with start() as running, await running.client() as client:
        keys = {each.api_key for each in (await client.ask(ApiVersionsRequest("x", "1"), 3)).api_keys}
        assert keys.isdisjoint({71, 72})
        assert (await asks(client)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_client_pushes_what_it_is_asked_for(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client:
        keys = {each.api_key for each in (await client.ask(ApiVersionsRequest("lib", "1.2"), 3)).api_keys}
        assert {71, 72} <= keys
        assert await subscribe(client, metrics="org.apache.kafka.producer.", interval_ms="1000") == 0
        wanted = await asks(client)
        assert wanted.client_instance_id != bytes(16)
        assert wanted.requested_metrics == ["org.apache.kafka.producer."]
        assert wanted.push_interval_ms == 1000
        assert wanted.accepted_compression_types[0] == CompressionType.ZSTD
        data = compress(CompressionType.ZSTD, metrics(**{NAME.replace(".", "_"): 7}))
        assert await push(client, wanted, data, CompressionType.ZSTD) == 0
        shown = await told(running.node)
        labels = {
            "metric": NAME,
            "client_id": "test",
            "client_software": "lib 1.2",
            "labels": "node=1",
            "client_instance_id": str(uuid.UUID(bytes=wanted.client_instance_id)),
        }
        assert shown.of("barnabas_client_metric", **labels) == 7
        assert await push(client, wanted, data, CompressionType.ZSTD) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert await push(client, wanted, metrics(), last=True) == 0
        assert await push(client, wanted, metrics()) == ErrorCode.INVALID_REQUEST
        assert (await told(running.node)).of("barnabas_client_instances") == 0


async def test_subscriptions_are_for_the_clients_that_they_name(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client, await running.client() as other:
        other.client_id = "billing-7"
        assert await subscribe(client, "one", metrics="a.,b.", match="client_id=billing-.*", interval_ms="200") == 0
        assert await subscribe(client, "two", metrics="c.", interval_ms="500") == 0
        mine, its = await asks(client), await asks(other)
        assert (mine.requested_metrics, mine.push_interval_ms) == (["c."], 500)
        assert (its.requested_metrics, its.push_interval_ms) == (["a.", "b.", "c."], 200)
        assert mine.subscription_id != its.subscription_id
        assert await subscribe(client, "two", metrics=None, interval_ms=None) == 0
        assert await push(client, mine, metrics()) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        again = await asks(client, mine.client_instance_id)
        assert again.client_instance_id == mine.client_instance_id
        assert again.requested_metrics == []
        assert again.push_interval_ms == 300_000
        assert (await asks(client, mine.client_instance_id)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_subscriptions_are_kept_described_and_listed(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client:
        assert await subscribe(client, "x", metrics="*", match="client_software_name=lib") == 0
    async with start(more=WATCHED) as running, await running.client() as client:
        listed = await client.ask(ListConfigResourcesRequest(), 0)
        assert [each.resource_name for each in listed.config_resources] == ["x"]
        asked = DescribeConfigsRequest(resources=[DescribeConfigsResource(CLIENT_METRICS, "x", None)])
        (result,) = (await client.ask(asked)).results
        found = {each.name: (each.value, each.config_source) for each in result.configs}
        assert found == {
            "metrics": ("*", 7),
            "match": ("client_software_name=lib", 7),
            "interval.ms": ("300000", 5),
        }
        await client.ask(ApiVersionsRequest("lib", "1"), 3)
        assert (await asks(client)).requested_metrics == [""]  # the prefix of all names
        assert await subscribe(client, "x", metrics=None, match=None) == 0
        assert not running.node.metadata.client_metrics


@pytest.mark.parametrize(
    "configs",
    [
        {"interval_ms": "99"},
        {"interval_ms": "x"},
        {"match": "client_id=("},
        {"match": "shoe_size=9"},
        {"match": "client_id"},
        {"nothing": "1"},
    ],
)
async def test_a_subscription_that_cannot_be_is_refused(start: Start, configs: dict[str, str]) -> None:
    async with start(more=WATCHED) as running, await running.client() as client:
        assert await subscribe(client, **configs) == ErrorCode.INVALID_CONFIG
        assert not running.node.metadata.client_metrics


async def test_what_are_no_metrics_is_refused(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client:
        await subscribe(client, metrics="*", interval_ms="100")
        wrong = [
            (b"\xff\xff\xff", 0, ErrorCode.INVALID_RECORD),
            (b"not zstd", CompressionType.ZSTD, ErrorCode.INVALID_RECORD),
            (b"", 9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
            (bytes(telemetry.MOST_BYTES + 1), 0, ErrorCode.TELEMETRY_TOO_LARGE),
            (compress(CompressionType.GZIP, bytes(64 << 20)), CompressionType.GZIP, ErrorCode.INVALID_RECORD),  # a bomb
        ]
        for data, codec, code in wrong:
            assert await push(client, await asks(client), data, codec) == code
        unknown = GetTelemetrySubscriptionsRequest(uuid.uuid4().bytes)
        answer = await client.ask(unknown)
        answer = type(answer)(client_instance_id=uuid.uuid4().bytes, subscription_id=answer.subscription_id)
        assert await push(client, answer, metrics()) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        nobody = type(answer)(client_instance_id=bytes(16), subscription_id=1)
        assert await push(client, nobody, metrics()) == ErrorCode.INVALID_REQUEST


async def test_instances_and_their_values_are_bounded(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "MOST_INSTANCES", 3)
    monkeypatch.setattr(telemetry, "MOST_SERIES", 5)
    async with start(more=WATCHED) as running, await running.client("127.0.0.1") as one:
        other = await running.client("127.0.0.2")
        await subscribe(one, metrics="*", interval_ms="100")
        kept = await asks(other)
        for _ in range(10):  # a client with many instances only displaces its own
            last = await asks(one)
        assert await push(one, last, metrics(**{f"m{number}": 1 for number in range(50)})) == 0
        assert await push(other, kept, metrics(a=1)) == 0
        shown = await told(running.node)
        assert shown.of("barnabas_client_instances") == 2
        assert len(shown.labels("barnabas_client_metric")) == 6
        await other.stream.aclose()


def test_a_client_that_is_silent_is_forgotten() -> None:
    class Image:
        client_metrics = {"all": {"metrics": "*", "interval.ms": "20000"}}

    clients = telemetry.ClientTelemetry(Image())  # type: ignore[arg-type]
    instance_id, wanted = clients.asked(bytes(16), "h", {"client_id": "c"}, 0.0)
    clients.may_push(instance_id, wanted.id, 1, 1.0, is_last=False).take([telemetry.Value("a", (), 1.0)])
    assert len(clients.current(60.0)) == 1
    assert clients.current(62.0) == []
    assert clients.current(63.0) == []
