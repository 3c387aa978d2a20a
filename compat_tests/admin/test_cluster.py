"""The APIs about a cluster, sent to one node: rights, reassignments, elections, the quorum, features, quotas."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import alter_client_quotas as quotas
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
    ScramCredentialUpsertion,
)
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.wire.messages.describe_acls import DescribeAclsRequest
from barnabas.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from barnabas.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from barnabas.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from barnabas.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from compat_tests.broker_process import Barnabas, Server
from compat_tests.pipe import Pipe
from compat_tests.waiting import until

NOT_ASKED = -(2**31)
OK, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
EXACT, DEFAULT, ANY = range(3)


def create(pipe: Pipe, name: str, partitions: int = 2) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = pipe.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    assert answer.topics[0].error_code in (OK, ErrorCode.TOPIC_ALREADY_EXISTS), answer
    asked = DescribeTopicPartitionsRequest([TopicRequest(name)])
    until(lambda: len(pipe.ask(asked).topics[0].partitions) == partitions, f"{name} is there")


@pytest.fixture
def pipe(server: Server) -> Any:
    with Pipe(server.port) as opened:
        create(opened, "t")
        yield opened


@pytest.mark.one_node("it asks one node by one connection, which need not lead or coordinate what it asks for")
def test_authorized_operations_are_all_where_they_are_asked_for(pipe: Pipe) -> None:
    def metadata(version: int, asked: bool) -> tuple[int, list[int]]:
        answer = pipe.ask(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in ("t", "nosuch")],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=asked,
                include_cluster_authorized_operations=asked and version <= 10,
            ),
            version,
        )
        return answer.cluster_authorized_operations, [topic.topic_authorized_operations for topic in answer.topics]

    assert metadata(8, True) == (8096, [3576, 3576])
    assert metadata(12, True) == (NOT_ASKED, [3576, 3576])
    assert metadata(8, False) == (NOT_ASKED, [NOT_ASKED, NOT_ASKED])
    for asked, told in ((True, 8096), (False, NOT_ASKED)):
        assert pipe.ask(DescribeClusterRequest(asked), 1).cluster_authorized_operations == told
    described = pipe.ask(DescribeTopicPartitionsRequest([TopicRequest("t"), TopicRequest("nosuch")]))
    assert {topic.topic_authorized_operations for topic in described.topics} == {3576}

    until(lambda: pipe.ask(FindCoordinatorRequest(key="g"), 3).error_code == 0, "the topic of the offsets is there")
    commit = OffsetCommitRequest(
        "g", topics=[OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition()])]
    )
    until(lambda: pipe.ask(commit, 9).topics[0].partitions[0].error_code == 0, "the group is there")
    for asked, told in ((True, 3400), (False, NOT_ASKED)):
        (group,) = pipe.ask(DescribeGroupsRequest(["g"], asked), 6).groups
        assert (group.error_code, group.authorized_operations) == (0, told)


@pytest.mark.one_node("with several there is a node to which a partition can go")
def test_nothing_is_reassigned(pipe: Pipe) -> None:
    def moved(topic: str, index: int, replicas: list[int] | None) -> ErrorCode:
        asked = ReassignableTopic(topic, [ReassignablePartition(index, replicas)])
        answer = pipe.ask(AlterPartitionReassignmentsRequest(topics=[asked]))
        assert answer.error_code == OK
        return ErrorCode(answer.responses[0].partitions[0].error_code)

    assert moved("t", 0, [1]) is OK
    assert moved("t", 1, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    for replicas in ([2], [1, 2], [1, 1], [], [-1]):
        assert moved("t", 0, replicas) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert moved("t", 9, [1]) is UNKNOWN
    assert moved("nosuch", 0, None) is UNKNOWN
    answer = pipe.ask(ListPartitionReassignmentsRequest())
    assert (answer.error_code, answer.topics) == (OK, [])


@pytest.mark.parametrize("kind", [0, 1, 7])
def test_nothing_is_elected(kind: int, pipe: Pipe) -> None:
    asked = [TopicPartitions("t", [0, 9]), TopicPartitions("nosuch", [0])]
    answer = pipe.ask(ElectLeadersRequest(kind, asked))
    found = {
        (each.topic, part.partition_id): ErrorCode(part.error_code)
        for each in answer.replica_election_results
        for part in each.partition_result
    }
    if kind == 7:
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert set(found.values()) == {ErrorCode.INVALID_REQUEST}
    else:
        assert answer.error_code == OK
        needless = ErrorCode.ELECTION_NOT_NEEDED
        assert found == {("t", 0): needless, ("t", 9): UNKNOWN, ("nosuch", 0): UNKNOWN}
        everything = pipe.ask(ElectLeadersRequest(kind, None))
        assert not any(each.partition_result for each in everything.replica_election_results)


@pytest.mark.one_node("it asks one node by one connection, which need not lead or coordinate what it asks for")
def test_logs_move_to_no_other_directory(pipe: Pipe, server: Server) -> None:
    def moved(path: str, topic: str, index: int) -> ErrorCode:
        asked = AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, [index])])])
        (answer,) = pipe.ask(asked).results
        return ErrorCode(answer.partitions[0].error_code)

    assert moved(str(server.data_dir), "t", 0) is OK
    assert moved(str(server.data_dir), "t", 9) is UNKNOWN
    assert moved("/elsewhere", "t", 0) is ErrorCode.LOG_DIR_NOT_FOUND


@pytest.mark.one_node("the other nodes are observers")
@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_is_one_voter(version: int, pipe: Pipe) -> None:
    answer = pipe.ask(DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])]), version)
    (part,) = answer.topics[0].partitions
    (voter,) = part.current_voters
    assert (answer.error_code, part.error_code, part.leader_id, part.observers) == (OK, OK, 1, [])
    assert (voter.replica_id, voter.log_end_offset >= part.high_watermark > 0) == (1, True)
    assert (voter.last_fetch_timestamp > 0) == (version >= 1)
    assert [node.node_id for node in answer.nodes] == ([1] if version == 2 else [])
    answer = pipe.ask(DescribeQuorumRequest([TopicData("t", [PartitionData(0)])]), version)
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (OK, UNKNOWN)


def test_features_are_what_they_are(pipe: Pipe) -> None:
    def update(name: str, level: int, kind: int = 1) -> ErrorCode:
        return ErrorCode(
            pipe.ask(UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(name, level, False, kind)])).error_code
        )

    told = pipe.ask(ApiVersionsRequest("test", "1"), 4)
    final = {feature.name: feature.max_version_level for feature in told.finalized_features}
    supported = {feature.name: (feature.min_version, feature.max_version) for feature in told.supported_features}
    assert told.finalized_features_epoch >= 0
    assert all(supported[name][0] <= level <= supported[name][1] for name, level in final.items())
    assert update("metadata.version", final["metadata.version"]) is OK
    assert update("metadata.version", supported["metadata.version"][1] + 1) is ErrorCode.INVALID_UPDATE_VERSION
    assert update("metadata.version", final["metadata.version"], 9) is ErrorCode.INVALID_UPDATE_VERSION
    assert update("nosuch.version", 1) is ErrorCode.INVALID_UPDATE_VERSION
    assert pipe.ask(UpdateFeaturesRequest()).error_code == OK


def test_what_has_a_configuration_is_listed(pipe: Pipe, server: Server) -> None:
    def listed(*kinds: int) -> set[tuple[int, str]]:
        answer = pipe.ask(ListConfigResourcesRequest(list(kinds)))
        assert answer.error_code == OK
        return {(each.resource_type, each.resource_name) for each in answer.config_resources}

    assert {(2, "t"), (4, "1"), (8, "1")} <= listed()
    assert listed(4) == {(4, str(1 + index)) for index in range(server.processes)}
    assert listed(16, 32) == set()
    assert pipe.ask(ListConfigResourcesRequest(), 0).config_resources == []
    assert pipe.ask(ListConfigResourcesRequest([99])).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_broker_that_is_not_there_cannot_be_unregistered(pipe: Pipe) -> None:
    assert pipe.ask(UnregisterBrokerRequest(7)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_the_only_broker_stays(pipe: Pipe, server: Server) -> None:
    if not isinstance(server, Barnabas):
        pytest.skip("Apache Kafka takes its last broker out")
    assert pipe.ask(UnregisterBrokerRequest(1)).error_code == ErrorCode.INVALID_REQUEST


def test_there_are_no_acls(pipe: Pipe) -> None:
    disabled = ErrorCode.SECURITY_DISABLED
    assert pipe.ask(DescribeAclsRequest(1, None, 1, None, None, 1, 1)).error_code == disabled
    creations = [AclCreation(2, "x", 3, "User:a", "*", 3, 3)] * 2
    assert [each.error_code for each in pipe.ask(CreateAclsRequest(creations)).results] == [disabled] * 2
    filters = [DeleteAclsFilter(2, "x", 3, None, None, 1, 1)] * 2
    assert [each.error_code for each in pipe.ask(DeleteAclsRequest(filters)).filter_results] == [disabled] * 2


def test_credentials_for_scram(pipe: Pipe) -> None:
    answer = pipe.ask(DescribeUserScramCredentialsRequest(None))
    assert (answer.error_code, answer.results) == (OK, [])
    answer = pipe.ask(DescribeUserScramCredentialsRequest([UserName("a"), UserName("a"), UserName("b")]))
    assert {each.user: ErrorCode(each.error_code) for each in answer.results} == {
        "a": ErrorCode.DUPLICATE_RESOURCE,
        "b": ErrorCode.RESOURCE_NOT_FOUND,
    }
    deletions = [ScramCredentialDeletion(*each) for each in (("a", 1), ("b", 9), ("", 1))]
    answer = pipe.ask(AlterUserScramCredentialsRequest(deletions=deletions))
    assert {each.user: ErrorCode(each.error_code) for each in answer.results} == {
        "a": ErrorCode.RESOURCE_NOT_FOUND,
        "b": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
    }
    wanted = [
        ScramCredentialUpsertion("a", 1, 4096, b"salt", b"password"),
        ScramCredentialUpsertion("few", 1, 4095, b"salt", b"password"),
        ScramCredentialUpsertion("many", 1, 16385, b"salt", b"password"),
    ]
    answer = pipe.ask(AlterUserScramCredentialsRequest(upsertions=wanted))
    assert {each.user: ErrorCode(each.error_code) for each in answer.results} == {
        "a": OK,
        "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
    }
    until(lambda: pipe.ask(DescribeUserScramCredentialsRequest(None)).results, "the credential is seen")
    (user,) = pipe.ask(DescribeUserScramCredentialsRequest(None)).results
    assert (user.user, [(each.mechanism, each.iterations) for each in user.credential_infos]) == ("a", [(1, 4096)])
    assert pipe.ask(AlterUserScramCredentialsRequest([ScramCredentialDeletion("a", 1)])).results[0].error_code == OK


# --- client quotas ----------------------------------------------------------------------------------------------------

Names = dict[str, str | None]


def entry(entity: Names, values: dict[str, float | None]) -> quotas.EntryData:
    ops = [quotas.OpData(key, value or 0.0, value is None) for key, value in values.items()]
    return quotas.EntryData([quotas.EntityData(*each) for each in entity.items()], ops)


def alter(pipe: Pipe, entity: Names, values: dict[str, float | None], *, validate_only: bool = False) -> ErrorCode:
    (answer,) = pipe.ask(quotas.AlterClientQuotasRequest([entry(entity, values)], validate_only)).entries
    assert {each.entity_type: each.entity_name for each in answer.entity} == entity
    return ErrorCode(answer.error_code)


def described(
    pipe: Pipe, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[Any, dict[str, float]]:
    answer = pipe.ask(DescribeClientQuotasRequest([ComponentData(*each) for each in components], strict))
    assert answer.error_code == OK, answer
    return {
        frozenset((e.entity_type, e.entity_name) for e in each.entity): {v.key: v.value for v in each.values}
        for each in answer.entries
    }


def test_client_quotas_are_kept_and_found(pipe: Pipe, server: Server) -> None:
    alone, both = frozenset({("user", "kept")}), frozenset({("user", "kept"), ("client-id", "c")})
    all_users, address = frozenset({("user", None)}), frozenset({("ip", "127.0.0.1")})
    assert alter(pipe, {"user": "kept"}, {"producer_byte_rate": 1000.0, "request_percentage": 12.5}) is OK
    assert alter(pipe, {"user": "kept", "client-id": "c"}, {"consumer_byte_rate": 2000.0}) is OK
    assert alter(pipe, {"user": None}, {"controller_mutation_rate": 5.5}) is OK
    assert alter(pipe, {"ip": "127.0.0.1"}, {"connection_creation_rate": 10.0}) is OK
    assert alter(pipe, {"user": "only asked"}, {"consumer_byte_rate": 1.0}, validate_only=True) is OK
    assert alter(pipe, {"user": "never set"}, {"consumer_byte_rate": None}) is OK
    until(lambda: len(described(pipe)) == 4, "all is there")
    server.stop()
    server.start()
    with Pipe(server.port) as again:
        until(lambda: len(described(again)) == 4, "all is there again")
        assert described(again) == {
            alone: {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
            both: {"consumer_byte_rate": 2000.0},
            all_users: {"controller_mutation_rate": 5.5},
            address: {"connection_creation_rate": 10.0},
        }
        assert described(again, ("user", EXACT, "kept")).keys() == {alone, both}
        assert described(again, ("user", EXACT, "kept"), strict=True).keys() == {alone}
        assert described(again, ("user", ANY, None)).keys() == {alone, both, all_users}
        assert described(again, ("user", DEFAULT, None)).keys() == {all_users}
        assert described(again, ("user", ANY, None), ("client-id", ANY, None), strict=True).keys() == {both}
        assert described(again, strict=True) == {}
        assert alter(again, {"user": "kept"}, {"producer_byte_rate": None, "request_percentage": None}) is OK
        until(lambda: described(again, ("user", EXACT, "kept")).keys() == {both}, "what was removed is gone")


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ({}, "producer_byte_rate", 1.0),
        ({"robot": "a"}, "producer_byte_rate", 1.0),
        ({"user": ""}, "producer_byte_rate", 1.0),
        ({"user": "a", "ip": "127.0.0.1"}, "producer_byte_rate", 1.0),
        ({"ip": "no address!"}, "connection_creation_rate", 1.0),
        ({"ip": "127.0.0.1"}, "producer_byte_rate", 1.0),
        ({"ip": "127.0.0.1"}, "connection_creation_rate", 1.5),
        ({"user": "a"}, "connection_creation_rate", 1.0),
        ({"user": "a"}, "no_such_rate", 1.0),
        ({"user": "a"}, "producer_byte_rate", 0.0),
        ({"user": "a"}, "request_percentage", -1.0),
        ({"user": "a"}, "consumer_byte_rate", 1.5),
        ({"user": "a"}, "consumer_byte_rate", 1e300),
    ],
)
def test_quotas_that_make_no_sense_are_refused(entity: Names, key: str, value: float, pipe: Pipe) -> None:
    assert alter(pipe, entity, {key: value}) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("robot", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "a"), ("user", EXACT, "b")], ErrorCode.INVALID_REQUEST),
        ([("user", 7, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_of_quotas_that_make_no_sense_are_refused(components: Any, code: ErrorCode, pipe: Pipe) -> None:
    answer = pipe.ask(DescribeClientQuotasRequest([ComponentData(*each) for each in components]))
    assert (ErrorCode(answer.error_code), answer.entries) == (code, None)
