"""Every announced API answers in every announced version, and the answer decodes down to its last byte."""

from __future__ import annotations

import time

import pytest

from barnabas.broker.node import Node
from barnabas.broker.registry import APIS
from barnabas.broker.tests.client import Client, batch_of
from barnabas.broker.tests.conftest import Start
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, OpData
from barnabas.wire.messages.alter_client_quotas import EntryData as QuotaEntry
from barnabas.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from barnabas.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.describe_acls import DescribeAclsRequest
from barnabas.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.wire.messages.describe_producers import DescribeProducersRequest
from barnabas.wire.messages.describe_producers import TopicRequest as ProducersTopic
from barnabas.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from barnabas.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from barnabas.wire.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from barnabas.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.wire.messages.end_txn import EndTxnRequest
from barnabas.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.incremental_alter_configs import AlterableConfig as Change
from barnabas.wire.messages.incremental_alter_configs import AlterConfigsResource as Changed
from barnabas.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.wire.messages.list_groups import ListGroupsRequest
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.wire.messages.list_transactions import ListTransactionsRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_delete import OffsetDeleteRequest
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.push_telemetry import PushTelemetryRequest
from barnabas.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.wire.messages.sync_group import SyncGroupRequest
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.wire.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from barnabas.wire.types import ZERO_UUID, Message


def request_of(key: int, version: int, topic_id: bytes) -> Message:
    """A request about topic `t` that should succeed, in the form of that version."""
    name, number = "t", f"{key}-{version}"
    by_id = topic_id
    if key == 0:
        data = PartitionProduceData(0, batch_of(b"v"))
        named = TopicProduceData(topic_id=by_id) if version >= 13 else TopicProduceData(name)
        return ProduceRequest(acks=-1, topic_data=[TopicProduceData(named.name, named.topic_id, [data])])
    if key == 1:
        part = FetchPartition(partition=0, partition_max_bytes=1000)
        topic = FetchTopic(topic_id=by_id, partitions=[part]) if version >= 13 else FetchTopic(name, partitions=[part])
        return FetchRequest(session_epoch=-1, topics=[topic])
    if key == 3:
        topics = [MetadataRequestTopic(topic_id=by_id, name=None) if version >= 12 else MetadataRequestTopic(name=name)]
        return MetadataRequest(topics=topics)
    if key == 8:
        parts = [OffsetCommitRequestPartition(0, 1)]
        commit = OffsetCommitRequestTopic("" if version >= 10 else name, by_id if version >= 10 else ZERO_UUID, parts)
        return OffsetCommitRequest("committed", topics=[commit])
    if key == 9:
        if version < 8:
            return OffsetFetchRequest("committed", [OffsetFetchRequestTopic(name, [0])])
        asked = OffsetFetchRequestTopics("" if version >= 10 else name, by_id if version >= 10 else ZERO_UUID, [0])
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup("committed", topics=[asked])])
    if key == 10:
        return FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g"])
    if key == 13:
        leaving = [MemberIdentity(member_id="m")]
        return LeaveGroupRequest("absent", "m") if version < 3 else LeaveGroupRequest("absent", members=leaving)
    if key == 20:
        if version < 6:
            return DeleteTopicsRequest(topic_names=["absent"])
        return DeleteTopicsRequest(topics=[DeleteTopicState("absent")])
    if key == 24:
        parts_of = [AddPartitionsToTxnTopic(name, [0])]
        if version < 4:
            return AddPartitionsToTxnRequest([], "absent", 7, 0, parts_of)
        return AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction("absent", 7, 0, topics=parts_of)])
    fixed: dict[int, Message] = {
        17: SaslHandshakeRequest("PLAIN"),
        36: SaslAuthenticateRequest(b"\0alice\0secret"),
        38: CreateDelegationTokenRequest(),
        39: RenewDelegationTokenRequest(b"h"),
        40: ExpireDelegationTokenRequest(b"h"),
        41: DescribeDelegationTokenRequest(owners=None),
        2: ListOffsetsRequest(-1, topics=[ListOffsetsTopic(name, [ListOffsetsPartition(0, timestamp=-1)])]),
        11: JoinGroupRequest(
            f"g{number}", 10000, 10000, protocol_type="consumer", protocols=[JoinGroupRequestProtocol("range")]
        ),
        12: HeartbeatRequest("absent", 1, "m"),
        14: SyncGroupRequest("absent", 1, "m"),
        15: DescribeGroupsRequest(["absent"]),
        16: ListGroupsRequest(),
        18: ApiVersionsRequest("test", "1"),
        19: CreateTopicsRequest([CreatableTopic(f"new.{number}", 1, 1)]),
        21: DeleteRecordsRequest([DeleteRecordsTopic(name, [DeleteRecordsPartition(0, 0)])]),
        22: InitProducerIdRequest(transactional_id=None),
        23: OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(name, [OffsetForLeaderPartition(0)])]),
        25: AddOffsetsToTxnRequest("absent", 7, 0, "g"),
        26: EndTxnRequest("absent", 7, 0, True),
        27: WriteTxnMarkersRequest([WritableTxnMarker(7, 0, False, [WritableTxnMarkerTopic(name, [0])])]),
        28: TxnOffsetCommitRequest(
            "absent", "g", 7, 0, topics=[TxnOffsetCommitRequestTopic(name, [TxnOffsetCommitRequestPartition(0, 1)])]
        ),
        29: DescribeAclsRequest(1, None, 1 if version else 3, None, None, 1, 1),
        30: CreateAclsRequest([AclCreation(2, name, 3, "User:a", "*", 3, 3)]),
        31: DeleteAclsRequest([DeleteAclsFilter(2, name, 3, None, None, 1, 1)]),
        32: DescribeConfigsRequest([DescribeConfigsResource(2, name, None)]),
        33: AlterConfigsRequest([AlterConfigsResource(2, name, [AlterableConfig("segment.ms", "1000")])]),
        34: AlterReplicaLogDirsRequest([AlterReplicaLogDir("/elsewhere", [AlterReplicaLogDirTopic(name, [0])])]),
        35: DescribeLogDirsRequest(None),
        37: CreatePartitionsRequest([CreatePartitionsTopic("grows", version + 2, None)]),
        42: DeleteGroupsRequest(["absent"]),
        43: ElectLeadersRequest(topic_partitions=[TopicPartitions(name, [0])]),
        44: IncrementalAlterConfigsRequest([Changed(2, name, [Change("segment.ms", 0, "1000")])]),
        47: OffsetDeleteRequest("committed"),
        45: AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name, [ReassignablePartition(0, [1])])]),
        46: ListPartitionReassignmentsRequest(),
        48: DescribeClientQuotasRequest([ComponentData("user", 2, None)]),
        49: AlterClientQuotasRequest([QuotaEntry([EntityData("user", "a")], [OpData("consumer_byte_rate", 1.0)])]),
        50: DescribeUserScramCredentialsRequest([UserName("a")]),
        51: AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion("a", 1)]),
        55: DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])]),
        57: UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("metadata.version", 7)]),
        60: DescribeClusterRequest(),
        61: DescribeProducersRequest([ProducersTopic(name, [0])]),
        64: UnregisterBrokerRequest(7),
        65: DescribeTransactionsRequest(["absent"]),
        66: ListTransactionsRequest(),
        71: GetTelemetrySubscriptionsRequest(),
        72: PushTelemetryRequest(),
        74: ListConfigResourcesRequest(),
        75: DescribeTopicPartitionsRequest([TopicRequest(name)]),
    }
    return fixed[key]


# The error codes of the answers to these requests; all others succeed.
EXPECTED = {
    11: {0, 79},  # the first join returns the member id (KIP-394)
    12: {25},
    13: {0, 25},
    14: {25},
    15: {0, 69},
    20: {3},
    42: {69},
    24: {0, 49},
    25: {49},
    26: {49},
    28: {49},  # no producer has the transactional id
    65: {105},
    29: {54},
    30: {54},
    31: {54},  # there is no authorizer
    17: {34},
    36: {34},  # a PLAINTEXT listener has no logins
    38: {64},
    39: {64},
    40: {64},
    41: {64},  # nor delegation tokens
    34: {57},
    43: {0, 84},
    50: {0, 91},
    51: {91},
    64: {102},
    72: {42},  # a client without an id
}


def codes(value: object) -> set[int]:
    """Every error code in a response."""
    if isinstance(value, list):
        return set().union(*map(codes, value)) if value else set()
    if not isinstance(value, Message) and not hasattr(value, "__struct_fields__"):
        return set()
    found: set[int] = set()
    for field in value.__struct_fields__:
        inner = getattr(value, field)
        found |= {inner} if field == "error_code" else codes(inner)
    return found


@pytest.mark.parametrize("key", sorted(k for k in APIS if not APIS[k].for_nodes), ids=lambda key: APIS[key].name)
async def test_every_version_is_served(start: Start, key: int) -> None:
    watched = {"barnabas.http.listen": "127.0.0.1:0"}  # so that clients can push their metrics
    async with start(more=watched) as broker, await broker.client() as client:
        topic_id = await prepare(client, broker.node)
        first, last = APIS[key].versions
        for version in range(first, last + 1):
            answer = await client.ask(request_of(key, version, topic_id), version)
            assert codes(answer) <= EXPECTED.get(key, {0}), f"version {version}: {answer}"


async def prepare(client: Client, node: Node) -> bytes:
    """Create two topics, one with a record, the coordinators' topics, and a commit. Returns the first topic's id."""
    await client.create_topic("t")
    await client.create_topic("grows")
    await client.ask(FindCoordinatorRequest(key="g"), 3)
    await client.ask(FindCoordinatorRequest(key="absent", key_type=1), 3)
    assert (await client.produce("t", batch_of(b"v%d" % time.time_ns()))).error_code == 0
    commit = OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 1)])
    await client.ask(OffsetCommitRequest("committed", topics=[commit]), 9)
    return node.metadata.topics["t"].topic_id
