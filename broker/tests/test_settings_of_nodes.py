"""Settings of a broker with several nodes: those of all nodes, and those of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.settings import resource_configs
from barnabas.broker.settings.keys import ConfigError
from barnabas.broker.tests.several import OWNER, Several, several
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.list_config_resources import ListConfigResourcesRequest

TOPIC, BROKER, LOGGER = 2, 4, 8
NODES = (1, 2, 3)


async def altered(nodes: Several, by: int, *resources: AlterConfigsResource) -> list[tuple[int, str | None]]:
    """The answers of a node to changes of settings."""
    answer = await (await nodes.client(by)).ask(IncrementalAlterConfigsRequest(resources=list(resources)))
    assert [(each.resource_type, each.resource_name) for each in answer.responses] == [
        (each.resource_type, each.resource_name) for each in resources
    ]
    return [(each.error_code, each.error_message) for each in answer.responses]


def set_to(name: str, key: str, value: str, kind: int = BROKER) -> AlterConfigsResource:
    return AlterConfigsResource(kind, name, [AlterableConfig(key, 0, value)])


async def described(nodes: Several, node: int, name: str, key: str, kind: int = BROKER) -> Any:
    asked = DescribeConfigsRequest(resources=[DescribeConfigsResource(kind, name, [key])])
    return (await (await nodes.client(node)).ask(asked)).results[0]


async def test_a_setting_of_one_node_is_made_at_any_and_holds_at_that_one(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        for by, node, value in ((2, 2, "5"), (1, 3, "6"), (3, 1, "7")):
            assert await altered(nodes, by, set_to(str(node), "background.threads", value)) == [(0, None)]
        assert await altered(nodes, 2, set_to("", "message.max.bytes", "12345")) == [(0, None)]
        for node, value in ((1, "7"), (2, "5"), (3, "6")):
            found = await described(nodes, node, str(node), "background.threads")
            assert [each.value for each in found.configs] == [value]
            assert nodes[node].node.config["message.max.bytes"] == 12345
        await nodes.stop(3)
        await nodes.start(3)
        found = await described(nodes, 3, "3", "background.threads")
        assert [each.value for each in found.configs] == ["6"]
        nodes.no_errors()


async def test_a_node_that_there_is_not_is_refused_and_a_node_describes_itself_alone(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        for by in NODES:
            ((code, why),) = await altered(nodes, by, set_to("4", "background.threads", "5"))
            assert code == ErrorCode.INVALID_REQUEST
            assert why == "Unexpected broker id, expected 1 or empty string, but got 4"
        found = await described(nodes, 1, "2", "background.threads")  # as with Kafka's brokers
        assert found.error_code == ErrorCode.INVALID_REQUEST


async def test_loggers_are_a_nodes_own_also_beside_what_the_owner_alters(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        levels = set_to("2", "root", "ERROR", LOGGER)
        both = (set_to("2", "background.threads", "9"), levels, set_to("", "message.max.bytes", "54321"))
        assert await altered(nodes, 2, *both) == [(0, None)] * 3
        assert (await described(nodes, 2, "2", "root", LOGGER)).configs[0].value == "ERROR"
        assert (await described(nodes, 1, "1", "root", LOGGER)).configs[0].value != "ERROR"
        assert nodes[2].node.config["background.threads"] == 9
        assert nodes[3].node.config["message.max.bytes"] == 54321
        ((code, _),) = await altered(nodes, 3, levels)
        assert code != 0


async def test_all_nodes_are_listed_by_each(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        for node in NODES:
            answer = await (await nodes.client(node)).ask(ListConfigResourcesRequest(resource_types=[BROKER, LOGGER]))
            assert [(each.resource_type, each.resource_name) for each in answer.config_resources] == [
                (kind, str(each)) for kind in (BROKER, LOGGER) for each in NODES
            ]


async def test_a_node_that_is_away_has_its_say_before_its_settings_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with several(tmp_path) as nodes:
        await nodes.cut_off(2)
        with monkeypatch.context() as impatient:
            impatient.setattr(resource_configs, "_NODE_SECONDS", 0.1)
            ((code, why),) = await altered(nodes, OWNER, set_to("2", "background.threads", "5"))
        assert code == ErrorCode.REQUEST_TIMED_OUT
        assert why == "Node 2, to which this applies, does not answer: try again when all nodes serve."
        assert await altered(nodes, OWNER, set_to("", "message.max.bytes", "12345")) == [(0, None)]
        await nodes.start(2)
        assert nodes[2].node.config["message.max.bytes"] == 12345
        assert await altered(nodes, OWNER, set_to("2", "background.threads", "5")) == [(0, None)]


async def test_where_offsets_are_is_one_setting_in_which_each_node_has_a_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(after: object) -> None:
        raise ConfigError("what is on its way has not arrived")

    async with several(tmp_path, zookeeper_connect="127.0.0.1:1/nobody") as nodes:
        both = set_to("1", "dual.commit.enabled", "false")
        assert all(nodes[node].node.groups.elsewhere is not None for node in NODES)
        ((code, why),) = await altered(nodes, 3, set_to("2", "dual.commit.enabled", "false"))
        assert code == ErrorCode.INVALID_REQUEST
        assert why == "dual.commit.enabled applies to all nodes: set it for broker 1, or as the default"
        with monkeypatch.context() as patched:
            patched.setattr(nodes[2].node.groups, "check_offset_stores", refuses)
            ((code, why),) = await altered(nodes, 3, both)
        assert (code, why) == (ErrorCode.INVALID_REQUEST, "node 2: what is on its way has not arrived")
        assert all(nodes[node].node.groups.elsewhere is not None for node in NODES)
        assert await altered(nodes, 3, both) == [(0, None)]
        assert all(nodes[node].node.groups.elsewhere is None for node in NODES)
        found = await described(nodes, 3, "3", "dual.commit.enabled")
        assert [each.value for each in found.configs] == ["false"]
