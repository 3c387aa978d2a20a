"""Settings that are accepted for Kafka's tools, and the messages in the log about them."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.config import BROKER, TOPIC, BrokerConfig
from barnabas.broker.settings.keys import ConfigError, ConfigKey
from barnabas.broker.settings.resource_configs import DELETE, MAX_UNKNOWN_KEYS, SET
from barnabas.broker.tests.client import Client
from barnabas.broker.tests.conftest import Start
from barnabas.broker.tests.test_queries import BY_HAND, create, driver_of
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import alter_configs as legacy
from barnabas.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.metadata import MetadataRequest

OF_TOPIC, OF_BROKER = 2, 4


async def change(client: Client, kind: int, name: str, *changes: tuple[str, int, str | None]) -> tuple[int, str | None]:
    asked = AlterConfigsResource(kind, name, [AlterableConfig(*each) for each in changes])
    (answer,) = (await client.ask(IncrementalAlterConfigsRequest([asked]))).responses
    return answer.error_code, answer.error_message


async def described(client: Client, kind: int, name: str) -> dict[str, str | None]:
    (answer,) = (await client.ask(DescribeConfigsRequest([DescribeConfigsResource(kind, name, None)]))).results
    assert answer.error_code == 0
    return {entry.name: entry.value for entry in answer.configs}


async def replace(client: Client, name: str, values: dict[str, str | None]) -> tuple[int, str | None]:
    given = [legacy.AlterableConfig(*item) for item in values.items()]
    asked = legacy.AlterConfigsRequest([legacy.AlterConfigsResource(OF_TOPIC, name, given)])
    (answer,) = (await client.ask(asked)).responses
    return answer.error_code, answer.error_message


@pytest.mark.parametrize("key", [*BROKER.values(), *TOPIC.values()], ids=lambda key: key.name)
def test_a_default_is_read_as_it_is_shown(key: ConfigKey) -> None:
    shown = key.show(key.default)
    if shown is not None:
        assert key.parse(shown) == key.default


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"controller.quorum.voters": "1@a:9093,2@b:9093"}, "there is no quorum of controllers"),
        ({"transaction.state.log.replication.factor": "3"}, "each partition has one replica"),
        ({"max.connections.per.ip.overrides": "127.0.0.1"}, "expected HOST:COUNT"),
        ({"max.connections.per.ip.overrides": "[::1]:5,here:-1"}, "expected HOST:COUNT"),
        ({"metadata.log.dir": "/elsewhere"}, "the metadata log is in log.dirs"),
        ({"create.topic.policy.class.name": "a.b.C"}, "classes of Java cannot be run"),
        ({"num.io.threads": "0"}, "Invalid value 0 for num.io.threads: must be at least 1"),
        ({"log.dirs": "/a,/b"}, "must name one data directory"),
    ],
)
def test_a_value_that_asks_for_what_is_missing_is_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        _ = BrokerConfig(settings).data_dir


def test_the_cleaner_takes_up_another_limit_while_it_waits_for_the_one_before() -> None:
    config = BrokerConfig({"log.cleaner.io.max.bytes.per.second": "1"})
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        config.set_dynamic({"log.cleaner.io.max.bytes.per.second": "1e300"})

    config.cleaner_throttle().spend(1 << 30, wait)
    assert len(waited) == 1


def test_keys_of_the_file_without_effect_are_told() -> None:
    config = BrokerConfig(
        {"num.io.threads": "8", "controller.quorum.voters": "1@localhost:9093", "num.partitions": "2"}
    )
    assert (config.unused(), config.unknown) == (["controller.quorum.voters", "num.io.threads"], [])


async def test_a_key_without_effect_is_told_once(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t", local_retention_ms="1000", segment_jitter_ms="0")
        assert await change(client, OF_TOPIC, "t", ("local.retention.ms", SET, "2000")) == (0, None)
        assert await change(client, OF_BROKER, "1", ("num.io.threads", SET, "4")) == (0, None)
        assert await change(client, OF_BROKER, "", ("num.io.threads", SET, "5")) == (0, None)
        given = [CreatableTopicConfig("delete.retention.ms", "7")]
        await client.ask(CreateTopicsRequest([CreatableTopic("u", 1, 1, configs=given)], validate_only=True))
        told = [line.split("keys=")[1].split()[0] for line in broker.log.splitlines() if "config.unused" in line]
        assert told == ["local.retention.ms", "num.io.threads"]


async def test_what_the_broker_set_may_be_named_as_it_is(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t", barnabas_value_format="json", barnabas_value_schema="a INT")
        before = await described(client, OF_TOPIC, "t")
        assert before["barnabas.value.schema"] == "a INT"
        assert "barnabas.query" not in before
        assert await replace(client, "t", before) == (0, None)
        assert await described(client, OF_TOPIC, "t") == before
        assert (await replace(client, "t", before | {"barnabas.query.start": "latest"}))[0] == ErrorCode.INVALID_CONFIG
        assert await described(client, OF_TOPIC, "t") == before


async def test_unknown_keys_of_a_broker_are_bounded_and_outlive_a_restart(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        some = [(f"plugin.{number}", SET, "x") for number in range(MAX_UNKNOWN_KEYS)]
        assert await change(client, OF_BROKER, "1", *some) == (0, None)
        assert (await change(client, OF_BROKER, "1", ("one.more", SET, "x")))[0] == ErrorCode.INVALID_REQUEST
        assert await change(client, OF_BROKER, "1", ("plugin.0", DELETE, None), ("one.more", SET, "x")) == (0, None)
    async with start() as broker, await broker.client() as client:
        found = await described(client, OF_BROKER, "1")
        assert "one.more" in found
        assert "plugin.0" not in found


async def test_a_level_that_is_set_holds_at_once(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        assert await change(client, 8, "1", ("ROOT", SET, "ERROR")) == (0, None)
        await client.create_topic("unsaid")
        assert await change(client, 8, "1", ("root", SET, "TRACE")) == (0, None)
        await client.create_topic("said")
        assert "topic=unsaid" not in broker.log
        assert "topic=said" in broker.log
        assert await described(client, 8, "1") == {"root": "DEBUG"}


async def test_clients_are_told_where_the_broker_stands(start: Start) -> None:
    async with start(broker_rack="r1") as broker, await broker.client() as client:
        assert (await client.ask(MetadataRequest(topics=[]))).brokers[0].rack == "r1"
        assert (await client.ask(DescribeClusterRequest())).brokers[0].rack == "r1"


async def test_many_topics_are_described_in_turns_with_others(start: Start) -> None:
    async with start() as broker, await broker.client() as client, await broker.client() as other:
        names = [f"t{number}" for number in range(100)]
        await client.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in names]))
        asked = DescribeConfigsRequest([DescribeConfigsResource(OF_TOPIC, name, None) for name in [*names, "nosuch"]])
        await client.send(asked)
        answered = await other.ask(DescribeClusterRequest())
        assert answered.error_code == 0
        results = (await client.receive()).results
        assert [each.resource_name for each in results] == [*names, "nosuch"]
        assert [each.error_code for each in results] == [0] * 100 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_query_topic_keeps_what_is_described_of_it(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running), await running.client() as client:
        await client.create_topic("src")
        assert (await create(client, "out", barnabas_query="SELECT * FROM src")).error_code == 0
        await client.create_topic("plain")
        before = await described(client, OF_TOPIC, "out")
        assert before["barnabas.query.plan"]
        assert await replace(client, "out", before) == (0, None)
        assert await described(client, OF_TOPIC, "out") == before
        refused = ErrorCode.INVALID_CONFIG
        assert (await replace(client, "out", before | {"barnabas.query.plan": "{}"}))[0] == refused
        assert (await replace(client, "plain", {"barnabas.query.plan": before["barnabas.query.plan"]}))[0] == refused
        assert await described(client, OF_TOPIC, "out") == before
