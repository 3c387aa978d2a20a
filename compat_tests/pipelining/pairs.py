"""Every request that changes something, and every request that may see the change.

A pair runs on topics and groups of its own, whose names end with its number: topic `t` (2 partitions, 3 records in the
first) and topic `new`, which does not exist; group `g` with a committed offset, group `k` with a member, and groups `h`
and `m`, which do not exist.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

import msgspec

from barnabas.wire.batch import Record, build_batch
from barnabas.wire.messages import alter_client_quotas, alter_configs, describe_client_quotas, incremental_alter_configs
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from barnabas.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.leave_group import LeaveGroupRequest
from barnabas.wire.messages.list_groups import ListGroupsRequest
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from barnabas.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.wire.types import Message
from compat_tests.pipe import Pipe
from compat_tests.waiting import until

NOW = 1_700_000_000_000
TOPIC = 2
LATEST, EARLIEST = -1, -2
# A subscription and an assignment without topics, which make `k` a group of consumers.
NO_TOPICS = struct.pack(">hii", 0, 0, -1)

VersionedRequest = Message | tuple[Message, int]
Versioned = tuple[Message, int]


class Names:
    """The names of one run of a pair, and the member of its group `k`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.t, self.new, self.g, self.h, self.m, self.k = (
            f"{word}-{number:05}" for word in ("t", "new", "g", "h", "m", "k")
        )
        self.member = ""
        self.generation = 0


def batch(*values: bytes) -> bytes:
    """One record batch."""
    return build_batch([Record(b"k", value, NOW + number) for number, value in enumerate(values)])


def produce(topics: dict[str, int], data: bytes, acks: int = -1) -> Versioned:
    """One batch to a partition of each topic, in the last version with names."""
    named = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=index, records=data)])
        for name, index in topics.items()
    ]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=named), 12


def commit(group: str, topic: str, offset: int) -> Versioned:
    """A commit for the first partition, by a group without members."""
    part = OffsetCommitRequestPartition(committed_offset=offset)
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])]), 9


def join(group: str) -> Versioned:
    """A join of a new member, in the last version that needs no second request for a member id."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=NO_TOPICS)],
    ), 3


def sync(names: Names) -> VersionedRequest:
    """The assignment of the one member of `k`."""
    return SyncGroupRequest(
        group_id=names.k,
        generation_id=names.generation,
        member_id=names.member,
        assignments=[SyncGroupRequestAssignment(member_id=names.member, assignment=NO_TOPICS)],
    ), 3


def set_config(names: Names) -> VersionedRequest:
    """IncrementalAlterConfigs: the topic then refuses batches above 100 bytes."""
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                TOPIC, names.t, [incremental_alter_configs.AlterableConfig("max.message.bytes", 0, "100")]
            )
        ]
    )


def replace_configs(names: Names) -> VersionedRequest:
    """AlterConfigs."""
    return alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                TOPIC, names.t, [alter_configs.AlterableConfig("retention.ms", "77000000")]
            )
        ]
    )


def delete_records(names: Names, offset: int) -> VersionedRequest:
    """DeleteRecords for the first partition of `t`."""
    part = DeleteRecordsPartition(0, offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(names.t, [part])], timeout_ms=10_000)


def metadata(names: Names, *, create: bool) -> VersionedRequest:
    """Metadata of both topics, in the last version that needs no topic ids."""
    topics = [MetadataRequestTopic(name=name) for name in (names.t, names.new)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create), 9


def list_offsets(names: Names, timestamp: int) -> VersionedRequest:
    """ListOffsets for `t`, including a partition that does not exist yet, and for `new`."""
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(names.t, [ListOffsetsPartition(index, timestamp=timestamp) for index in (0, 3)]),
            ListOffsetsTopic(names.new, [ListOffsetsPartition(0, timestamp=timestamp)]),
        ],
    ), 7


def fetch(names: Names) -> VersionedRequest:
    """Fetch without waiting."""
    parts = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in (0, 3)]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=names.t, partitions=parts), FetchTopic(topic=names.new, partitions=parts[:1])],
    ), 12


def offset_fetch(names: Names) -> VersionedRequest:
    """OffsetFetch for groups `g` and `h`: topic `t`, and all topics."""
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(names.g, topics=[OffsetFetchRequestTopics(name=names.t, partition_indexes=[0])]),
            OffsetFetchRequestGroup(names.h, topics=None),
        ]
    ), 9


def offset_delete(names: Names) -> VersionedRequest:
    """OffsetDelete for group `g` and the first partition of `t`."""
    part = OffsetDeleteRequestTopic(names.t, [OffsetDeleteRequestPartition(0)])
    return OffsetDeleteRequest(names.g, [part])


def epochs(names: Names) -> VersionedRequest:
    """OffsetForLeaderEpoch: the end of epoch 0."""
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(names.t, [OffsetForLeaderPartition(0)])]), 4


def create(names: Names) -> VersionedRequest:
    """CreateTopics for `new`."""
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=names.new, num_partitions=2, replication_factor=1)], timeout_ms=10_000
    ), 5


def grow(names: Names) -> VersionedRequest:
    """CreatePartitions: `t` gets 4 partitions."""
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(names.t, 4, None)], timeout_ms=10_000)


def delete(names: Names) -> VersionedRequest:
    """DeleteTopics for `t`."""
    return DeleteTopicsRequest(topic_names=[names.t], timeout_ms=10_000), 5


def describe_configs(names: Names) -> VersionedRequest:
    """Of both topics."""
    keys = ["retention.ms", "max.message.bytes"]
    return DescribeConfigsRequest(resources=[DescribeConfigsResource(TOPIC, n, keys) for n in (names.t, names.new)])


def set_quota(names: Names) -> VersionedRequest:
    """Of a user of this run."""
    entity = [alter_client_quotas.EntityData("user", names.t)]
    rate = [alter_client_quotas.OpData("consumer_byte_rate", 1000.0)]
    return alter_client_quotas.AlterClientQuotasRequest([alter_client_quotas.EntryData(entity, rate)])


def describe_quotas(names: Names) -> VersionedRequest:
    """Of a user of this run."""
    return describe_client_quotas.DescribeClientQuotasRequest(
        [describe_client_quotas.ComponentData("user", 0, names.t)]
    )


CHANGES: dict[str, Callable[[Names], VersionedRequest]] = {
    "CreateTopics": create,
    "Metadata, creating": lambda names: metadata(names, create=True),
    "DeleteTopics": delete,
    "CreatePartitions": grow,
    "AlterConfigs": replace_configs,
    "IncrementalAlterConfigs": set_config,
    "AlterClientQuotas": set_quota,
    "DeleteRecords": lambda names: delete_records(names, 2),
    "Produce, acks=all": lambda names: produce({names.t: 0}, batch(b"x", b"y")),
    "Produce, acks=1": lambda names: produce({names.t: 0}, batch(b"x", b"y"), 1),
    "Produce, acks=0": lambda names: produce({names.t: 0}, batch(b"x", b"y"), 0),
    "OffsetCommit": lambda names: commit(names.g, names.t, 2),
    "OffsetCommit, new group": lambda names: commit(names.h, names.t, 1),
    "OffsetDelete": offset_delete,
    "DeleteGroups": lambda names: DeleteGroupsRequest([names.g]),
    "JoinGroup": lambda names: join(names.m),
    "SyncGroup": sync,
    "LeaveGroup": lambda names: (LeaveGroupRequest(group_id=names.k, member_id=names.member), 1),
}

LOOKS: dict[str, Callable[[Names], VersionedRequest]] = {
    "Metadata": lambda names: metadata(names, create=False),
    "DescribeTopicPartitions": lambda names: DescribeTopicPartitionsRequest(
        [TopicRequest(names.t), TopicRequest(names.new)]
    ),
    "DescribeConfigs": describe_configs,
    "DescribeClientQuotas": describe_quotas,
    "ElectLeaders": lambda names: ElectLeadersRequest(
        topic_partitions=[TopicPartitions(names.t, [0, 3]), TopicPartitions(names.new, [0])]
    ),
    "ListOffsets, latest": lambda names: list_offsets(names, LATEST),
    "ListOffsets, earliest": lambda names: list_offsets(names, EARLIEST),
    "ListOffsets, by time": lambda names: list_offsets(names, NOW + 1),
    "Fetch": fetch,
    "OffsetForLeaderEpoch": epochs,
    "DescribeLogDirs": lambda names: DescribeLogDirsRequest(
        [DescribableLogDirTopic(names.t, [0, 3]), DescribableLogDirTopic(names.new, [0])]
    ),
    "OffsetFetch": offset_fetch,
    "ListGroups": lambda names: ListGroupsRequest(),
    "DescribeGroups": lambda names: (DescribeGroupsRequest(groups=[names.g, names.h, names.m, names.k]), 5),
    "Produce": lambda names: produce({names.t: 0, names.new: 1}, batch(b"v" * 200)),
    "Produce to a new partition": lambda names: produce({names.t: 3}, batch(b"z")),
    "DeleteRecords": lambda names: delete_records(names, -1),
    "OffsetCommit": lambda names: commit(names.g, names.new, 1),
    "OffsetDelete": offset_delete,
    "DeleteGroups": lambda names: DeleteGroupsRequest([names.g, names.h, names.k]),
    "Heartbeat": lambda names: (HeartbeatRequest(names.k, names.generation, names.member), 3),
    "CreateTopics": create,
    "CreatePartitions": grow,
    "DeleteTopics": delete,
}


def joined(names: Names, answer: Any) -> bool:
    """Note the member of group `k`; returns whether the group has one."""
    names.member, names.generation = answer.member_id, answer.generation_id
    return bool(answer.error_code == 0)


def ask_all(pipe: Pipe, requests: list[Versioned]) -> list[Any]:
    """The answers to requests that are sent at once."""
    pipe.send(*requests)
    return [pipe.receive() for _ in requests]


def prepare(pipe: Pipe, count: int) -> list[Names]:
    """Create topics and groups for `count` runs."""
    runs = [Names(number) for number in range(count)]
    for start in range(0, count, 100):
        some = runs[start : start + 100]
        made = pipe.ask(
            CreateTopicsRequest(
                topics=[CreatableTopic(name=names.t, num_partitions=2, replication_factor=1) for names in some],
                timeout_ms=60_000,
            )
        )
        assert all(topic.error_code == 0 for topic in made.topics), made
    until(lambda: pipe.ask(FindCoordinatorRequest(key="g"), 3).error_code == 0, "the topic of the offsets is there")
    for start in range(0, count, 50):
        some = runs[start : start + 50]
        pipe.ask(*produce({names.t: 0 for names in some}, batch(b"a", b"b", b"c")))
        # The requests are sent at once, as each waits for a sync. While Kafka's coordinators are loading, they are
        # repeated.
        ask_all(pipe, [commit(names.g, names.t, 1) for names in some])
        for names, answer in zip(some, ask_all(pipe, [join(names.k) for names in some]), strict=True):
            if not joined(names, answer):
                until(lambda names=names: joined(names, pipe.ask(*join(names.k))), f"{names.k} has a member")  # type: ignore[misc]
        ask_all(pipe, [commit(names.g, names.t, 1) for names in some])
    return runs


def plain(answer: Any, names: Names) -> Any:
    """An answer without the values that differ between runs."""
    if isinstance(answer, msgspec.Struct):
        return {
            field: plain(getattr(answer, field), names)
            for field in answer.__struct_fields__
            if field not in ("topic_id", "total_bytes", "usable_bytes", "log_append_time_ms", "throttle_time_ms")
        }
    if isinstance(answer, list):
        told = [plain(each, names) for each in answer]
        # Only the groups of this run. The order within an answer does not matter.
        return sorted(
            (each for each in told if not isinstance(each, dict) or "N" in each.get("group_id", "N")), key=str
        )
    if isinstance(answer, str):
        return re.sub(r"pipe-[0-9a-f-]{36}", "MEMBER", answer.replace(f"-{names.number:05}", "-N"))
    return answer
