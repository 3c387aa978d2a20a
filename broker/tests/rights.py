"""Requests for the table of rights: each of its needs is asked with and without the ACLs that meet it.

Each question has a user of its own, who has the rights for all needs of the request but one. The same ACLs and requests
can be sent to a node of barnabas and to Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from barnabas.broker.registry import APIS
from barnabas.broker.security.operations import Right
from barnabas.broker.security.table import LEFT_OUT, NEEDS, Need
from barnabas.broker.tests.client import NOW, Client, batch_of, frame_of
from barnabas.wire.acls import CLUSTER_NAME, PatternType, Permission, ResourceType
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import ZERO_UUID, Message, Struct, replace

TOPIC, ABSENT, GROUP, ID = "t", "absent", "g", "x"
#: The resource of each type to which the rights apply.
NAMES = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: GROUP,
    ResourceType.CLUSTER: CLUSTER_NAME,
    ResourceType.TRANSACTIONAL_ID: ID,
}
#: Needs without a question: two-phase commit is not served, and the others require a login (`test_login.py`).
NOT_ASKED = {("InitProducerId", 2), ("CreateDelegationToken", 0), ("DescribeDelegationToken", 0)}
#: A user without rights, and one who may describe all topics.
OUTSIDERS = "outsider", "watcher"
WATCHES = create_acls.AclCreation(2, "*", 3, "User:watcher", "*", 8, 3)


class World(NamedTuple):
    """The objects that exist when the questions are asked."""

    topic_id: bytes
    producer_id: int
    epoch: int


class Question(NamedTuple):
    """A request for one need of its API. `sees` tells whether an answer has the part that needs the right."""

    request: Callable[[World], Message]
    version: int | None = None
    sees: Callable[[Any], bool] | None = None
    #: The topic to which the rights apply.
    topic: str = TOPIC
    #: Whether the user has the rights for the other needs.
    others: bool = True


class Case(NamedTuple):
    """A question from a user with some rights, and whether these meet the need."""

    id: str
    api: str
    need: Need
    question: Question
    rights: frozenset[Right]
    is_met: bool

    @property
    def user(self) -> str:
        return self.id


def _transactional(world: World) -> bytes:
    return build_batch(
        [Record(None, b"v", NOW)],
        producer_id=world.producer_id,
        producer_epoch=world.epoch,
        base_sequence=0,
        is_transactional=True,
    )


def _produce(data: bytes, transactional_id: str | None = None) -> Message:
    part = produce.PartitionProduceData(0, data)
    return produce.ProduceRequest(transactional_id, -1, 30000, [produce.TopicProduceData(TOPIC, partition_data=[part])])


def _fetch(replica: int = -1) -> Message:
    part = fetch.FetchPartition(partition=0, partition_max_bytes=1000)
    return fetch.FetchRequest(
        replica_id=replica, session_epoch=-1, topics=[fetch.FetchTopic(topic=TOPIC, partitions=[part])]
    )


def _fetch_by_id(world: World) -> Message:
    part = fetch.FetchPartition(partition=0, partition_max_bytes=1000)
    return fetch.FetchRequest(session_epoch=-1, topics=[fetch.FetchTopic(topic_id=world.topic_id, partitions=[part])])


def _metadata(*names: str, **settings: Any) -> Message:
    return metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name) for name in names], **settings)


def _offsets(*topics: str) -> Message:
    asked = [offset_fetch.OffsetFetchRequestTopics(name, partition_indexes=[0]) for name in topics]
    return offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(GROUP, topics=asked or None)])


def _commit() -> Message:
    part = offset_commit.OffsetCommitRequestPartition(0, 1)
    return offset_commit.OffsetCommitRequest(
        GROUP, topics=[offset_commit.OffsetCommitRequestTopic(TOPIC, partitions=[part])]
    )


def _commit_in_transaction(world: World) -> Message:
    part = txn_offset_commit.TxnOffsetCommitRequestPartition(0, 1)
    topics = [txn_offset_commit.TxnOffsetCommitRequestTopic(TOPIC, [part])]
    return txn_offset_commit.TxnOffsetCommitRequest(ID, GROUP, world.producer_id, world.epoch, topics=topics)


def _alter(kind: int, name: str) -> Message:
    return alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(kind, name, [])], validate_only=True)


def _alter_some(kind: int, name: str) -> Message:
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(kind, name, [])], validate_only=True
    )


def _describe_configs(kind: int, name: str) -> Message:
    return describe_configs.DescribeConfigsRequest(
        [describe_configs.DescribeConfigsResource(kind, name, ["segment.bytes"])]
    )


def _add_partitions(world: World) -> Message:
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(TOPIC, [0])]
    return add_partitions_to_txn.AddPartitionsToTxnRequest([], ID, world.producer_id, world.epoch, topics)


def _verify_partitions(world: World) -> Message:
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(TOPIC, [0])]
    asked = add_partitions_to_txn.AddPartitionsToTxnTransaction(ID, world.producer_id, world.epoch, True, topics)
    return add_partitions_to_txn.AddPartitionsToTxnRequest([asked])


def _create(name: str) -> Message:
    return create_topics.CreateTopicsRequest([create_topics.CreatableTopic(name, 1, 1)], validate_only=True)


def _delete(name: str | None, topic_id: bytes = ZERO_UUID) -> Message:
    return delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(name, topic_id)], timeout_ms=30000)


def _joins() -> Message:
    return join_group.JoinGroupRequest(
        GROUP, 10000, 10000, protocol_type="consumer", protocols=[join_group.JoinGroupRequestProtocol("range")]
    )


def _fixed(request: Message, version: int | None = None, **settings: Any) -> Question:
    return Question(lambda world: request, version, **settings)


#: The questions of each API, in the order of its needs in the table of rights.
QUESTIONS: dict[str, tuple[Question, ...]] = {
    "Produce": (
        Question(lambda world: _produce(_transactional(world), ID), 9),
        _fixed(_produce(batch_of(b"v")), 9),
    ),
    "Fetch": (Question(_fetch_by_id), _fixed(_fetch(replica=1), 12)),
    "ListOffsets": (
        _fixed(
            list_offsets.ListOffsetsRequest(
                -1, topics=[list_offsets.ListOffsetsTopic(TOPIC, [list_offsets.ListOffsetsPartition(0, timestamp=-1)])]
            )
        ),
    ),
    "Metadata": (
        _fixed(_metadata(TOPIC, include_topic_authorized_operations=True)),
        _fixed(metadata.MetadataRequest(None), sees=lambda a: TOPIC in {t.name for t in a.topics}),
        _fixed(_metadata("made-{user}"), topic="made-{user}"),
        _fixed(
            _metadata(include_cluster_authorized_operations=True),
            10,
            sees=lambda a: a.cluster_authorized_operations > 0,
        ),
    ),
    "OffsetCommit": (_fixed(_commit(), 9), _fixed(_commit(), 9)),
    "OffsetFetch": (
        _fixed(_offsets(TOPIC), 9),
        _fixed(_offsets(TOPIC), 9),
        _fixed(_offsets(), 9, sees=lambda a: TOPIC in {t.name for t in a.groups[0].topics}),
    ),
    "FindCoordinator": (
        _fixed(find_coordinator.FindCoordinatorRequest(coordinator_keys=[GROUP]), 4),
        _fixed(find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=[ID]), 4),
    ),
    "JoinGroup": (_fixed(_joins()),),
    "Heartbeat": (_fixed(heartbeat.HeartbeatRequest(GROUP, 1, "m")),),
    "LeaveGroup": (_fixed(leave_group.LeaveGroupRequest(GROUP, members=[leave_group.MemberIdentity("m")])),),
    "SyncGroup": (_fixed(sync_group.SyncGroupRequest(GROUP, 1, "m", protocol_type="consumer", protocol_name="range")),),
    "DescribeGroups": (_fixed(describe_groups.DescribeGroupsRequest([GROUP], True)),),
    "ListGroups": (_fixed(list_groups.ListGroupsRequest(), sees=lambda a: GROUP in {g.group_id for g in a.groups}),),
    "CreateTopics": (
        _fixed(_create(ABSENT), topic=ABSENT),
        _fixed(_create(ABSENT), topic=ABSENT),
    ),
    "DeleteTopics": (
        _fixed(_delete(ABSENT), topic=ABSENT, others=False),
        Question(
            lambda world: _delete(None, world.topic_id),
            sees=lambda a: a.responses[0].name == TOPIC,
            others=False,
        ),
    ),
    "DeleteRecords": (
        _fixed(
            delete_records.DeleteRecordsRequest(
                [delete_records.DeleteRecordsTopic(TOPIC, [delete_records.DeleteRecordsPartition(0, 0)])], 30000
            )
        ),
    ),
    "InitProducerId": (
        _fixed(init_producer_id.InitProducerIdRequest("other", 60000), 4, topic="other"),
        _fixed(init_producer_id.InitProducerIdRequest(None), 4),
    ),
    "OffsetForLeaderEpoch": (
        _fixed(
            offset_for_leader_epoch.OffsetForLeaderEpochRequest(
                topics=[
                    offset_for_leader_epoch.OffsetForLeaderTopic(
                        TOPIC, [offset_for_leader_epoch.OffsetForLeaderPartition(0)]
                    )
                ]
            )
        ),
    ),
    "AddPartitionsToTxn": (
        Question(_add_partitions, 3),
        Question(_add_partitions, 3),
        Question(_verify_partitions, 5),
    ),
    "AddOffsetsToTxn": (
        Question(lambda world: add_offsets_to_txn.AddOffsetsToTxnRequest(ID, world.producer_id, world.epoch, GROUP)),
        Question(lambda world: add_offsets_to_txn.AddOffsetsToTxnRequest(ID, world.producer_id, world.epoch, GROUP)),
    ),
    "EndTxn": (Question(lambda world: end_txn.EndTxnRequest(ID, 2**40, 0, True), 3),),
    "WriteTxnMarkers": (
        _fixed(
            write_txn_markers.WriteTxnMarkersRequest(
                [
                    write_txn_markers.WritableTxnMarker(
                        7, 0, False, [write_txn_markers.WritableTxnMarkerTopic(ABSENT, [0])]
                    )
                ]
            ),
            1,
        ),
    ),
    "TxnOffsetCommit": tuple(Question(_commit_in_transaction, 3) for _ in range(3)),
    "DescribeAcls": (_fixed(describe_acls.DescribeAclsRequest(2, ABSENT, 3, "User:nobody", None, 1, 1)),),
    "CreateAcls": (
        _fixed(create_acls.CreateAclsRequest([create_acls.AclCreation(2, ABSENT, 3, "User:b", "*", 3, 3)])),
    ),
    "DeleteAcls": (
        _fixed(delete_acls.DeleteAclsRequest([delete_acls.DeleteAclsFilter(2, "no", 3, None, None, 1, 1)])),
    ),
    "DescribeConfigs": (
        _fixed(_describe_configs(2, TOPIC)),
        _fixed(_describe_configs(32, GROUP)),
        _fixed(_describe_configs(4, "1")),
    ),
    "AlterConfigs": (_fixed(_alter(2, TOPIC)), _fixed(_alter(32, GROUP)), _fixed(_alter(4, "1"))),
    "IncrementalAlterConfigs": (
        _fixed(_alter_some(2, TOPIC)),
        _fixed(_alter_some(32, GROUP)),
        _fixed(_alter_some(4, "1")),
    ),
    "AlterReplicaLogDirs": (
        _fixed(
            alter_replica_log_dirs.AlterReplicaLogDirsRequest(
                [
                    alter_replica_log_dirs.AlterReplicaLogDir(
                        "/nowhere", [alter_replica_log_dirs.AlterReplicaLogDirTopic(TOPIC, [0])]
                    )
                ]
            )
        ),
    ),
    "DescribeLogDirs": (_fixed(describe_log_dirs.DescribeLogDirsRequest([]), 4),),
    "CreatePartitions": (
        _fixed(
            create_partitions.CreatePartitionsRequest(
                [create_partitions.CreatePartitionsTopic(TOPIC, 9, None)], 30000, validate_only=True
            )
        ),
    ),
    "DeleteGroups": (_fixed(delete_groups.DeleteGroupsRequest(["absent"]), topic="absent"),),
    "ElectLeaders": (
        _fixed(elect_leaders.ElectLeadersRequest(topic_partitions=[elect_leaders.TopicPartitions(TOPIC, [0])])),
    ),
    "AlterPartitionReassignments": (
        _fixed(
            alter_partition_reassignments.AlterPartitionReassignmentsRequest(
                topics=[
                    alter_partition_reassignments.ReassignableTopic(
                        TOPIC, [alter_partition_reassignments.ReassignablePartition(0, None)]
                    )
                ]
            )
        ),
    ),
    "ListPartitionReassignments": (_fixed(list_partition_reassignments.ListPartitionReassignmentsRequest()),),
    "OffsetDelete": tuple(
        _fixed(
            offset_delete.OffsetDeleteRequest(
                GROUP,
                [offset_delete.OffsetDeleteRequestTopic(TOPIC, [offset_delete.OffsetDeleteRequestPartition(0)])],
            )
        )
        for _ in range(2)
    ),
    "DescribeClientQuotas": (
        _fixed(
            describe_client_quotas.DescribeClientQuotasRequest([describe_client_quotas.ComponentData("user", 2, None)])
        ),
    ),
    "AlterClientQuotas": (
        _fixed(
            alter_client_quotas.AlterClientQuotasRequest(
                [
                    alter_client_quotas.EntryData(
                        [alter_client_quotas.EntityData("user", "a")],
                        [alter_client_quotas.OpData("consumer_byte_rate", 1.0)],
                    )
                ],
                True,
            )
        ),
    ),
    "DescribeUserScramCredentials": (_fixed(describe_user_scram_credentials.DescribeUserScramCredentialsRequest([])),),
    "AlterUserScramCredentials": (
        _fixed(
            alter_user_scram_credentials.AlterUserScramCredentialsRequest(
                [alter_user_scram_credentials.ScramCredentialDeletion("nobody", 1)]
            )
        ),
    ),
    "DescribeQuorum": (
        _fixed(
            describe_quorum.DescribeQuorumRequest(
                [describe_quorum.TopicData("__cluster_metadata", [describe_quorum.PartitionData(0)])]
            )
        ),
    ),
    "UpdateFeatures": (_fixed(update_features.UpdateFeaturesRequest(feature_updates=[], validate_only=True)),),
    "DescribeCluster": (
        _fixed(describe_cluster.DescribeClusterRequest(True), sees=lambda a: a.cluster_authorized_operations > 0),
    ),
    "DescribeProducers": (
        _fixed(describe_producers.DescribeProducersRequest([describe_producers.TopicRequest(TOPIC, [0])])),
    ),
    "UnregisterBroker": (_fixed(unregister_broker.UnregisterBrokerRequest(7)),),
    "DescribeTransactions": (
        _fixed(describe_transactions.DescribeTransactionsRequest([ID])),
        _fixed(
            describe_transactions.DescribeTransactionsRequest([ID]),
            sees=lambda a: TOPIC in {t.topic for t in a.transaction_states[0].topics},
        ),
    ),
    "ListTransactions": (
        _fixed(
            list_transactions.ListTransactionsRequest(),
            sees=lambda a: ID in {t.transactional_id for t in a.transaction_states},
        ),
    ),
    "ListConfigResources": (_fixed(list_config_resources.ListConfigResourcesRequest([4])),),
    "DescribeTopicPartitions": (
        _fixed(
            describe_topic_partitions.DescribeTopicPartitionsRequest([describe_topic_partitions.TopicRequest(TOPIC)])
        ),
        _fixed(
            describe_topic_partitions.DescribeTopicPartitionsRequest([]),
            sees=lambda a: TOPIC in {t.name for t in a.topics},
        ),
    ),
}


def cases() -> Iterator[Case]:
    """For each need of each served API: a case without its rights, and one with each of them."""
    for key in sorted(APIS):
        api = APIS[key].name
        for number, need in enumerate(NEEDS[api]):
            if (api, number) in NOT_ASKED:
                continue
            question = QUESTIONS[api][number]
            others = {right for each in NEEDS[api] for right in each.rights} - set(need.rights)
            if not question.others:
                others = set()
            yield Case(f"{api}-{number}-denied", api, need, question, frozenset(others), False)
            for right in need.rights:
                what = f"{right.type.name}-{right.operation.name}"
                yield Case(f"{api}-{number}-{what}", api, need, question, frozenset(others | {right}), True)


def without_rights(world: World) -> Iterator[tuple[str, int, Message]]:
    """Every question in every version that can ask it, from a user without rights and from one who may describe topics.

    Each is asked about an existing topic and about a missing one: without the right, nobody may learn which it is.
    """
    done = set()
    for case in cases():
        first, last = APIS[case.question.request(world).__wire__.key].versions
        for version in range(first, last + 1):
            for name, topic_id in ((TOPIC, world.topic_id), (ABSENT, b"0123456789abcdef")):
                request = about(case.question.request(world), name, topic_id)
                try:
                    asked = frame_of(request, version)
                except ProtocolError:
                    continue
                for user in OUTSIDERS:
                    if (user, asked) not in done:
                        done.add((user, asked))
                        yield f"{user} {case.api} {version} {name} {case.id}", version, request


def acls_of(case: Case) -> Iterator[create_acls.AclCreation]:
    """The ACLs that give the user of a case the rights."""
    for right in case.rights:
        name = NAMES[right.type]
        if right.type != ResourceType.CLUSTER and case.question.topic != TOPIC:
            name = case.question.topic.format(user=case.user)
        yield create_acls.AclCreation(
            right.type, name, PatternType.LITERAL, f"User:{case.user}", "*", right.operation, Permission.ALLOW
        )


def request_of(case: Case, world: World) -> Message:
    """The request. If it creates a topic, the topic is one of the user's own."""
    request = case.question.request(world)
    if "{user}" in case.question.topic:
        return _metadata(case.question.topic.format(user=case.user))
    return request


def about(value: Any, name: str, topic_id: bytes) -> Any:
    """A copy of a request that names another topic."""
    if isinstance(value, list):
        return [about(each, name, topic_id) for each in value]
    if not isinstance(value, Struct):
        return value
    changes: dict[str, Any] = {}
    for field in value.__struct_fields__:
        inner = getattr(value, field)
        if field in _NAMES and inner in (TOPIC, ABSENT):
            changes[field] = name
        elif field == "topic_id" and inner != ZERO_UUID:
            changes[field] = topic_id
        else:
            changes[field] = about(inner, name, topic_id)
    return replace(value, **changes)


def names_ids(value: Any) -> bool:
    """Whether a request names topics by id, which is not secret."""
    if isinstance(value, list):
        return any(map(names_ids, value))
    if not isinstance(value, Struct):
        return False
    fields = [(field, getattr(value, field)) for field in value.__struct_fields__]
    return any((field == "topic_id" and inner != ZERO_UUID) or names_ids(inner) for field, inner in fields)


def shown(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The parts of an answer that depend on the client's rights: error codes, names, and authorized operations."""
    if isinstance(value, list):
        for each in value:
            yield from shown(each, path)
    elif hasattr(value, "__struct_fields__"):
        for field in value.__struct_fields__:
            inner, where = getattr(value, field), f"{path}.{field}"
            if field.endswith(("error_code", "authorized_operations")):
                yield where, int(inner)
            elif field in _NAMES:
                yield where, inner
            elif not isinstance(inner, bytes | str | int | float):
                yield from shown(inner, where)


_NAMES = {"name", "topic", "topic_name", "group_id", "transactional_id", "resource_name", "key"}


def codes(answer: Any) -> set[int]:
    """All error codes in an answer."""
    return {value for path, value in shown(answer) if path.endswith("error_code")}


async def prepare(admin: Client, every: Iterable[Case]) -> World:
    """Create the topic, group and transactional id, and give the users their rights. `admin` is a super user."""
    await admin.create_topic(TOPIC)
    for key, kind in ((GROUP, 0), (ID, 1)):
        found = None
        while found != 0:
            answer = await admin.ask(find_coordinator.FindCoordinatorRequest(key=key, key_type=kind), 3)
            found = answer.error_code
    answer = await admin.ask(init_producer_id.InitProducerIdRequest(ID, 60000), 3)
    while answer.error_code:
        answer = await admin.ask(init_producer_id.InitProducerIdRequest(ID, 60000), 3)
    described = await admin.ask(_metadata(TOPIC))
    world = World(described.topics[0].topic_id, answer.producer_id, answer.producer_epoch)
    answer = None
    while answer is None or codes(answer) != {0}:
        answer = await admin.ask(_add_partitions(world), 3)
    answer = None
    while answer is None or codes(answer) != {0}:
        answer = await admin.ask(_commit(), 9)
    acls = [WATCHES, *(acl for case in every for acl in acls_of(case))]
    answer = await admin.ask(create_acls.CreateAclsRequest(acls))
    assert codes(answer) == {0}, answer
    return world


def judge(case: Case, answer: Any) -> None:
    """Check that an answer fits a client who has the right, or does not have it."""
    if case.need.where == LEFT_OUT:
        assert case.question.sees is not None
        assert case.question.sees(answer) == case.is_met, answer
    else:
        assert (case.need.code in codes(answer)) != case.is_met, answer
