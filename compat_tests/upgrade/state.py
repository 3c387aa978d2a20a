"""The state of a broker as clients see it, as a value that can be stored and compared."""

from __future__ import annotations

import base64
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from barnabas.client.cluster import Cluster
from barnabas.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from barnabas.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_SET_BY_SOMEBODY = (1, 2)  # a topic's own value, a broker's dynamic one


def state(server: str) -> dict[str, Any]:
    """Topics with configs, offsets and committed records; groups, ACLs, users, quotas, settings."""
    admin = AdminClient({"bootstrap.servers": server})
    metadata = admin.list_topics(timeout=60)
    topics = {name: len(topic.partitions) for name, topic in metadata.topics.items() if not name.startswith("__")}
    return {
        "cluster": metadata.cluster_id,
        "topics": {name: _topic(server, admin, name, count) for name, count in sorted(topics.items())},
        "groups": _groups(admin),
        "acls": _acls(admin),
        "users": _users(admin),
        "quotas": _quotas(server),
        "broker": _configs(admin, ConfigResource.Type.BROKER, str(next(iter(metadata.brokers)))),
    }


def _topic(server: str, admin: AdminClient, name: str, count: int) -> dict[str, Any]:
    places = [(name, number) for number in range(count)]
    with Cluster(server) as cluster:
        first, last = (
            list_offsets(cluster, places, EARLIEST),
            list_offsets(cluster, places, LATEST, isolation=READ_UNCOMMITTED),
        )
        stable = list_offsets(cluster, places, LATEST, isolation=READ_COMMITTED)
    return {
        "configs": _configs(admin, ConfigResource.Type.TOPIC, name),
        "offsets": [[first[place], stable[place], last[place]] for place in places],
        "records": [records(server, name, number) for number in range(count)],
    }


def records(server: str, topic: str, partition: int) -> list[list[Any]]:
    """(offset, timestamp, key, value, headers) of each committed record."""
    settings = {"bootstrap.servers": server, "group.id": "none", "enable.partition.eof": True, "fetch.wait.max.ms": 10}
    consumer = Consumer({**settings, "enable.auto.commit": False, "isolation.level": "read_committed"})
    found: list[list[Any]] = []
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(60)
            assert message is not None, f"nothing more of {topic}-{partition}"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            headers = [[name, _text(value)] for name, value in message.headers() or []]
            found.append(
                [message.offset(), message.timestamp()[1], _text(message.key()), _text(message.value()), headers]
            )
    finally:
        consumer.close()


def _text(value: bytes | str | None) -> str | None:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode() if value is not None else None


def _configs(admin: AdminClient, kind: ConfigResource.Type, name: str) -> dict[str, str]:
    ((_, future),) = admin.describe_configs([ConfigResource(kind, name)]).items()
    return {key: entry.value for key, entry in sorted(future.result().items()) if entry.source in _SET_BY_SOMEBODY}


def _groups(admin: AdminClient) -> dict[str, list[list[Any]]]:
    found = {}
    for listed in admin.list_consumer_groups().result().valid:
        ((_, future),) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(listed.group_id)]).items()
        found[listed.group_id] = sorted(
            [p.topic, p.partition, p.offset, p.metadata] for p in future.result().topic_partitions
        )
    return found


def _acls(admin: AdminClient) -> list[str]:
    anything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    return sorted(str(acl) for acl in admin.describe_acls(anything).result())


def _users(admin: AdminClient) -> dict[str, list[list[Any]]]:
    described = admin.describe_user_scram_credentials().result()
    return {
        name: sorted([each.mechanism.name, each.iterations] for each in one.scram_credential_infos)
        for name, one in described.items()
    }


def _quotas(server: str) -> list[list[Any]]:
    with Cluster(server) as cluster:
        asked = DescribeClientQuotasRequest(components=[ComponentData("user", 2, None)], strict=False)
        answer = cluster.any(asked, DescribeClientQuotasResponse)
    return sorted(
        [[[part.entity_type, part.entity_name] for part in entry.entity], [[v.key, v.value] for v in entry.values]]
        for entry in answer.entries or ()
    )
