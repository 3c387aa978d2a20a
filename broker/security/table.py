"""The rights that each API needs, and the error for a client that does not have them.

There is one table, `NEEDS`, by the names of the APIs. An API without an entry cannot be registered, and a handler that
asks for a right that is not in its entry fails. The table in docs/security.md and the tests of all rights are made from
it.

A need is met by any one of its rights. Its error is that of its last right: the rights before it are shortcuts that
allow everything.

Source: KIP-11 and the KIPs of the APIs; where they do not say, Apache Kafka's answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.broker.security.operations import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC,
    ALTER_TOPIC_CONFIGS,
    CLUSTER_ACTION,
    CREATE_IN_CLUSTER,
    CREATE_TOKENS,
    CREATE_TOPIC,
    DELETE_GROUP,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOKEN,
    DESCRIBE_TOKENS,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    DESCRIBE_TRANSACTIONAL_ID,
    IDEMPOTENT_WRITE,
    READ_GROUP,
    READ_TOPIC,
    TWO_PHASE_COMMIT,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
    Right,
)
from barnabas.wire.errors import ErrorCode

#: The place of a refusal in an answer.
ANSWER, EACH_PARTITION, EACH_TOPIC, EACH_GROUP, EACH_ID, EACH_RESOURCE, EACH_ENTRY, LEFT_OUT = (
    "the answer",
    "each partition",
    "each topic",
    "each group",
    "each id",
    "each resource",
    "each entry",
    "left out",
)


@dataclass(frozen=True, slots=True)
class Need:
    """One need of a client: any one of `rights`. The answer has a refusal at `where`, with the code `refusal`."""

    rights: tuple[Right, ...]
    where: str
    when: str = ""
    refusal: ErrorCode | None = None

    @property
    def code(self) -> ErrorCode:
        """The error code of a refusal; NONE if refused items are left out."""
        if self.where == LEFT_OUT:
            return ErrorCode.NONE
        return self.refusal or self.rights[-1].refusal


def _need(*rights: Right, at: str, when: str = "", refusal: ErrorCode | None = None) -> Need:
    return Need(rights, at, when, refusal)


_JOINED = (_need(READ_GROUP, at=ANSWER),)
_DESCRIBES_CLUSTER = (_need(DESCRIBE_CLUSTER, at=ANSWER),)
_ALTERS_CLUSTER = (_need(ALTER_CLUSTER, at=ANSWER),)
_ALTERS_CONFIGS = (
    _need(ALTER_TOPIC_CONFIGS, at=EACH_RESOURCE, when="of a topic"),
    _need(ALTER_GROUP_CONFIGS, at=EACH_RESOURCE, when="of a group"),
    _need(ALTER_CLUSTER_CONFIGS, at=EACH_RESOURCE, when="of a broker, its loggers, or client metrics"),
)

NEEDS: Mapping[str, tuple[Need, ...]] = {
    "Produce": (
        _need(WRITE_TRANSACTIONAL_ID, at=EACH_PARTITION, when="with transactional records"),
        _need(WRITE_TOPIC, at=EACH_PARTITION),
    ),
    "Fetch": (
        _need(READ_TOPIC, at=EACH_PARTITION, when="by a consumer"),
        _need(
            CLUSTER_ACTION,
            at=EACH_PARTITION,
            when="by a replica",
            refusal=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ),
    ),
    "ListOffsets": (_need(DESCRIBE_TOPIC, at=EACH_PARTITION),),
    "Metadata": (
        _need(DESCRIBE_TOPIC, at=EACH_TOPIC, when="of topics that are named"),
        _need(DESCRIBE_TOPIC, at=LEFT_OUT, when="of all topics"),
        _need(CREATE_IN_CLUSTER, CREATE_TOPIC, at=EACH_TOPIC, when="of topics that would be made"),
        _need(DESCRIBE_CLUSTER, at=LEFT_OUT, when="for the cluster's authorized operations"),
    ),
    "OffsetCommit": (_need(READ_GROUP, at=EACH_PARTITION), _need(READ_TOPIC, at=EACH_PARTITION)),
    "OffsetFetch": (
        _need(DESCRIBE_GROUP, at=EACH_GROUP),
        _need(DESCRIBE_TOPIC, at=EACH_PARTITION, when="of topics that are named"),
        _need(DESCRIBE_TOPIC, at=LEFT_OUT, when="of all topics"),
    ),
    "FindCoordinator": (
        _need(DESCRIBE_GROUP, at=EACH_ID, when="of a group"),
        _need(DESCRIBE_TRANSACTIONAL_ID, at=EACH_ID, when="of a transactional id"),
    ),
    "JoinGroup": _JOINED,
    "Heartbeat": _JOINED,
    "LeaveGroup": _JOINED,
    "SyncGroup": _JOINED,
    "DescribeGroups": (_need(DESCRIBE_GROUP, at=EACH_GROUP),),
    "ListGroups": (_need(DESCRIBE_CLUSTER, DESCRIBE_GROUP, at=LEFT_OUT),),
    "SaslHandshake": (),
    "SaslAuthenticate": (),
    "ApiVersions": (),
    "CreateTopics": (
        _need(CREATE_IN_CLUSTER, CREATE_TOPIC, at=EACH_TOPIC),
        _need(DESCRIBE_TOPIC_CONFIGS, at=EACH_TOPIC, when="for the configuration in the answer"),
    ),
    "DeleteTopics": (
        _need(DELETE_TOPIC, at=EACH_TOPIC),
        _need(DESCRIBE_TOPIC, at=LEFT_OUT, when="for the name of a topic that is refused by id"),
    ),
    "DeleteRecords": (_need(DELETE_TOPIC, at=EACH_PARTITION),),
    "InitProducerId": (
        _need(WRITE_TRANSACTIONAL_ID, at=ANSWER, when="with a transactional id"),
        _need(
            IDEMPOTENT_WRITE,
            WRITE_TOPIC,
            at=ANSWER,
            when="without one; any topic will do",
            refusal=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
        _need(TWO_PHASE_COMMIT, at=ANSWER, when="for two-phase commit, which is not served"),
    ),
    "OffsetForLeaderEpoch": (_need(CLUSTER_ACTION, DESCRIBE_TOPIC, at=EACH_PARTITION),),
    "AddPartitionsToTxn": (
        _need(WRITE_TRANSACTIONAL_ID, at=EACH_PARTITION, when="up to version 3"),
        _need(WRITE_TOPIC, at=EACH_PARTITION, when="up to version 3"),
        _need(CLUSTER_ACTION, at=ANSWER, when="from version 4 on, which brokers use"),
    ),
    "AddOffsetsToTxn": (_need(WRITE_TRANSACTIONAL_ID, at=ANSWER), _need(READ_GROUP, at=ANSWER)),
    "EndTxn": (_need(WRITE_TRANSACTIONAL_ID, at=ANSWER),),
    "WriteTxnMarkers": (_need(ALTER_CLUSTER, CLUSTER_ACTION, at=EACH_PARTITION),),
    "TxnOffsetCommit": (
        _need(WRITE_TRANSACTIONAL_ID, at=EACH_PARTITION),
        _need(READ_GROUP, at=EACH_PARTITION),
        _need(READ_TOPIC, at=EACH_PARTITION),
    ),
    "DescribeAcls": _DESCRIBES_CLUSTER,
    "CreateAcls": (_need(ALTER_CLUSTER, at=EACH_ENTRY),),
    "DeleteAcls": (_need(ALTER_CLUSTER, at=EACH_ENTRY),),
    "DescribeConfigs": (
        _need(DESCRIBE_TOPIC_CONFIGS, at=EACH_RESOURCE, when="of a topic"),
        _need(DESCRIBE_GROUP_CONFIGS, at=EACH_RESOURCE, when="of a group"),
        _need(DESCRIBE_CLUSTER_CONFIGS, at=EACH_RESOURCE, when="of a broker, its loggers, or client metrics"),
    ),
    "AlterConfigs": _ALTERS_CONFIGS,
    "IncrementalAlterConfigs": _ALTERS_CONFIGS,
    "AlterReplicaLogDirs": (_need(ALTER_CLUSTER, at=EACH_PARTITION),),
    "DescribeLogDirs": _DESCRIBES_CLUSTER,
    "CreatePartitions": (_need(ALTER_TOPIC, at=EACH_TOPIC),),
    "CreateDelegationToken": (_need(CREATE_TOKENS, at=ANSWER, when="for another owner"),),
    "RenewDelegationToken": (),
    "ExpireDelegationToken": (),
    "DescribeDelegationToken": (_need(DESCRIBE_TOKEN, DESCRIBE_TOKENS, at=LEFT_OUT, when="of tokens of others"),),
    "DeleteGroups": (_need(DELETE_GROUP, at=EACH_GROUP),),
    "ElectLeaders": _ALTERS_CLUSTER,
    "AlterPartitionReassignments": _ALTERS_CLUSTER,
    "ListPartitionReassignments": _DESCRIBES_CLUSTER,
    "OffsetDelete": (_need(DELETE_GROUP, at=ANSWER), _need(READ_TOPIC, at=EACH_PARTITION)),
    "DescribeClientQuotas": (_need(DESCRIBE_CLUSTER_CONFIGS, at=ANSWER),),
    "AlterClientQuotas": (_need(ALTER_CLUSTER_CONFIGS, at=EACH_ENTRY),),
    "DescribeUserScramCredentials": _DESCRIBES_CLUSTER,
    "AlterUserScramCredentials": (_need(ALTER_CLUSTER, at=EACH_ENTRY),),
    "DescribeQuorum": _DESCRIBES_CLUSTER,
    "UpdateFeatures": _ALTERS_CLUSTER,
    "DescribeCluster": (_need(DESCRIBE_CLUSTER, at=LEFT_OUT, when="for the cluster's authorized operations"),),
    "DescribeProducers": (_need(READ_TOPIC, at=EACH_PARTITION),),
    "UnregisterBroker": _ALTERS_CLUSTER,
    "DescribeTransactions": (
        _need(DESCRIBE_TRANSACTIONAL_ID, at=EACH_ID),
        _need(DESCRIBE_TOPIC, at=LEFT_OUT, when="for the topics of a transaction"),
    ),
    "ListTransactions": (_need(DESCRIBE_TRANSACTIONAL_ID, at=LEFT_OUT),),
    "GetTelemetrySubscriptions": (),
    "PushTelemetry": (),
    "Envelope": (),
    "BrokerHeartbeat": (),
    "BrokerRegistration": (),
    "AllocateProducerIds": (),
    "NodeMetrics": (),
    "FetchSnapshot": (),
    "ListConfigResources": (_need(DESCRIBE_CLUSTER_CONFIGS, at=ANSWER),),
    "DescribeTopicPartitions": (
        _need(DESCRIBE_TOPIC, at=EACH_TOPIC, when="of topics that are named"),
        _need(DESCRIBE_TOPIC, at=LEFT_OUT, when="of all topics"),
    ),
}

#: The rights that the handler of each API may ask for.
RIGHTS: Mapping[str, frozenset[Right]] = {
    name: frozenset(right for need in needs for right in need.rights) for name, needs in NEEDS.items()
}
