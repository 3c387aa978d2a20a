"""Requests about topics that several packages need: create, delete, configure, and find the logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.client.cluster import Cluster
from barnabas.client.errors import check, only
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse

RESOURCE_TOPIC, RESOURCE_BROKER = 2, 4
_SOURCE_TOPIC = 1
_SET, _DELETE = 0, 1
_CREATE_MS = 90_000
_ADMIN_MS = 30_000
_DELETE_BY_STATE_SINCE = 6


def cluster_id(cluster: Cluster) -> str | None:
    """The cluster's id. Raises ClientError."""
    return cluster.any(MetadataRequest(topics=[]), MetadataResponse).cluster_id


def log_dir(cluster: Cluster) -> str:
    """The broker's log directory: a path on its machine. Raises ClientError."""
    told = only(cluster.any(DescribeLogDirsRequest(topics=[]), DescribeLogDirsResponse).results, "the broker's log.dir")
    check(told.error_code, "the broker's log.dir")
    return told.log_dir


def topic_configs(
    cluster: Cluster, names: Iterable[str], keys: list[str] | None = None, *, defaults: bool = False
) -> dict[str, dict[str, str]]:
    """The topics' own configuration, or with `defaults` the effective one; only `keys` if given.

    Missing topics are left out.
    """
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(RESOURCE_TOPIC, n, keys) for n in names])
    found = {}
    for result in cluster.any(request, DescribeConfigsResponse).results:
        if result.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            continue
        check(result.error_code, f"configuration of {result.resource_name}", result.error_message)
        found[result.resource_name] = {
            c.name: c.value
            for c in result.configs
            if c.value is not None and (defaults or c.config_source == _SOURCE_TOPIC)
        }
    return found


def create_topic(
    cluster: Cluster, name: str, configs: Mapping[str, str], *, partitions: int = -1, replication_factor: int = -1
) -> CreatableTopicResult:
    """Create a topic; a query topic takes as long as the streams driver needs. The response has the error code."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(key, value) for key, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=_CREATE_MS)
    answer = cluster.controller(request, CreateTopicsResponse, wait=_CREATE_MS / 1000)
    return only(answer.topics, f"Topic {name}")


def create_partitions(cluster: Cluster, name: str, count: int) -> None:
    """Grow a topic to `count` partitions. Raises ClientError."""
    grown = CreatePartitionsTopic(name=name, count=count, assignments=None)
    more = CreatePartitionsRequest(topics=[grown], timeout_ms=_ADMIN_MS)
    result = only(cluster.controller(more, CreatePartitionsResponse).results, f"Topic {name}")
    check(result.error_code, f"Topic {name}", result.error_message)


def delete_topic(cluster: Cluster, name: str) -> tuple[int, str | None]:
    """Delete a topic. Returns the error code and its message."""

    def attempt() -> DeleteTopicsResponse:
        connection = cluster.find_controller()
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[], timeout_ms=_ADMIN_MS)
        if connection.version_of(DeleteTopicsRequest) < _DELETE_BY_STATE_SINCE:
            request = DeleteTopicsRequest(topic_names=[name], timeout_ms=_ADMIN_MS)
        return connection.ask(request, DeleteTopicsResponse)

    answer = only(cluster.again(attempt).responses, f"Topic {name}")
    return answer.error_code, answer.error_message


def set_topic_config(cluster: Cluster, name: str, configs: Mapping[str, str], *, unset: Iterable[str] = ()) -> None:
    """Set keys of a topic, and `unset` others; a new query takes as long as the streams driver needs.

    Raises ClientError.
    """
    changes = [AlterableConfig(key, _SET, value) for key, value in configs.items()]
    changes += [AlterableConfig(key, _DELETE, None) for key in unset]
    request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(RESOURCE_TOPIC, name, changes)])
    said = cluster.controller(request, IncrementalAlterConfigsResponse, wait=_CREATE_MS / 1000)
    answer = only(said.responses, f"Topic {name}")
    check(answer.error_code, f"Topic {name}", answer.error_message)


def broker_configs(cluster: Cluster) -> dict[int, dict[str, str | None]]:
    """The settings in force of each broker, by its id; a secret is None. Raises ClientError."""
    return {node: _configs_of(cluster, node) for node in cluster.node_ids()}


def _configs_of(cluster: Cluster, node: int) -> dict[str, str | None]:
    """Ask a broker for its own settings."""
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(RESOURCE_BROKER, str(node), None)])
    answer = cluster.ask(lambda: cluster.broker(node), request, DescribeConfigsResponse)
    result = only(answer.results, f"Broker {node}")
    check(result.error_code, f"configuration of broker {node}", result.error_message)
    return {each.name: each.value for each in result.configs}


def set_broker_config(cluster: Cluster, configs: Mapping[str, str]) -> None:
    """Set keys of the first broker at run time. Raises ClientError."""
    name = str(min(cluster.node_ids()))
    changes = [AlterableConfig(key, _SET, value) for key, value in configs.items()]
    request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(RESOURCE_BROKER, name, changes)])
    answer = only(cluster.controller(request, IncrementalAlterConfigsResponse).responses, f"Broker {name}")
    check(answer.error_code, f"Broker {name}", answer.error_message)
