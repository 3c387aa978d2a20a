"""The longest time that one giant request makes others wait: `python -m bench.holds [--elements 190000]`.

One client sends ApiVersions in a loop and measures the time of each answer. Meanwhile another client sends one request
with as many elements as the broker takes. The output is the slowest answer of the first client.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from barnabas.broker.tests.client import Closed, frame_of
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
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
from bench.servers import POLICIES, make
from compat_tests.pipe import Pipe

Made = tuple[Message, int]
BATCH = build_batch([Record(None, b"v", 1_700_000_000_000)])
PARTITIONS = 1000


def _produce(topic: str, partitions: list[PartitionProduceData]) -> ProduceRequest:
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(topic, partition_data=partitions)])


GIANTS: dict[str, Callable[[int], Made]] = {
    "Metadata, names": lambda n: (
        MetadataRequest([MetadataRequestTopic(name=f"{i:x}") for i in range(n)], False),
        9,
    ),
    "Metadata, all": lambda n: (MetadataRequest(topics=None), 9),
    "ListOffsets": lambda n: (
        ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(i, timestamp=-1) for i in range(n)])]
        ),
        7,
    ),
    "Fetch": lambda n: (
        FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic("t", partitions=[FetchPartition(partition=i, partition_max_bytes=1) for i in range(n)])],
        ),
        11,
    ),
    "Produce": lambda n: (_produce("t", [PartitionProduceData(index=i % 100, records=BATCH) for i in range(n)]), 9),
    "Produce to nowhere": lambda n: (
        _produce("nosuch", [PartitionProduceData(index=i, records=b"") for i in range(n)]),
        9,
    ),
    "OffsetFetch": lambda n: (
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=list(range(n)))])
            ]
        ),
        9,
    ),
    "OffsetCommit": lambda n: (
        OffsetCommitRequest(
            "g",
            topics=[OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(i, 1) for i in range(n)])],
        ),
        8,
    ),
    "OffsetDelete": lambda n: (
        OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(i) for i in range(n)])]),
        0,
    ),
    "DescribeConfigs": lambda n: (
        DescribeConfigsRequest([DescribeConfigsResource(2, f"{i:x}", None) for i in range(n)]),
        4,
    ),
    "DescribeGroups": lambda n: (DescribeGroupsRequest([f"{i:x}" for i in range(n)]), 5),
    "DeleteGroups": lambda n: (DeleteGroupsRequest([f"{i:x}" for i in range(n)]), 2),
    "ListGroups": lambda n: (ListGroupsRequest([f"{i:x}" for i in range(n)]), 4),
    "FindCoordinator": lambda n: (FindCoordinatorRequest(coordinator_keys=[f"{i:x}" for i in range(n)]), 4),
    "JoinGroup": lambda n: (
        JoinGroupRequest(
            "j", 30_000, 30_000, "", None, "consumer", [JoinGroupRequestProtocol(f"{i:x}", b"m") for i in range(n)]
        ),
        3,
    ),
    "SyncGroup": lambda n: (
        SyncGroupRequest("j", 1, "m", None, None, None, [SyncGroupRequestAssignment(f"{i:x}", b"a") for i in range(n)]),
        3,
    ),
    "LeaveGroup": lambda n: (LeaveGroupRequest("j", members=[MemberIdentity(f"{i:x}") for i in range(n)]), 4),
    "CreateTopics": lambda n: (
        CreateTopicsRequest([CreatableTopic(f"x{i:x}", 0, 1) for i in range(n)], 1000),
        5,
    ),
    "CreateTopics, settings": lambda n: (
        CreateTopicsRequest(
            [CreatableTopic("x", 1, 1, [], [CreatableTopicConfig(f"{i:x}", "v") for i in range(n)])], 1000, True
        ),
        5,
    ),
    "CreatePartitions": lambda n: (
        CreatePartitionsRequest([CreatePartitionsTopic(f"{i:x}", 5, None) for i in range(n)], 1000),
        3,
    ),
    "DeleteTopics": lambda n: (DeleteTopicsRequest(topic_names=[f"{i:x}" for i in range(n)], timeout_ms=1000), 5),
    "DeleteRecords": lambda n: (
        DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(i, 0) for i in range(n)])], 1000),
        2,
    ),
    "DescribeLogDirs": lambda n: (DescribeLogDirsRequest([DescribableLogDirTopic("t", list(range(n)))]), 4),
    "DescribeTopicPartitions": lambda n: (
        DescribeTopicPartitionsRequest([TopicRequest(f"{i:x}") for i in range(n)], n),
        0,
    ),
    "OffsetForLeaderEpoch": lambda n: (
        OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic("t", [OffsetForLeaderPartition(i) for i in range(n)])]
        ),
        4,
    ),
    "IncrementalAlterConfigs": lambda n: (
        IncrementalAlterConfigsRequest(
            [AlterConfigsResource(2, "t", [AlterableConfig(f"{i:x}", 0, "v") for i in range(n)])], True
        ),
        1,
    ),
}


def slowest(port: int, stop: threading.Event, times: list[float]) -> None:
    """Ask in a loop, and add the times of the answers, in seconds, to `times`."""
    with Pipe(port) as pipe:
        while not stop.is_set():
            began = time.perf_counter()
            pipe.ask(ApiVersionsRequest("bench", "1"), 3)
            times.append(time.perf_counter() - began)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--elements", type=int, default=190_000)
    parser.add_argument("--policy", default="page-cache", choices=POLICIES)
    parser.add_argument("--api", nargs="+", default=list(GIANTS), choices=list(GIANTS), metavar="API")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, make("barnabas", given.policy, Path(folder)) as server:
        with Pipe(server.port) as pipe:
            topics = [CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)]
            pipe.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000))
            pipe.ask(FindCoordinatorRequest(key="g"), 3)
        print(
            "| request | elements | answered after ms | longest wait of another client, ms |\n| --- | --- | --- | --- |"
        )
        for name in given.api:
            request = GIANTS[name](given.elements)
            pipe = Pipe(server.port, timeout=120)
            stop, times = threading.Event(), list[float]()
            other = threading.Thread(target=slowest, args=(server.port, stop, times))
            data = frame_of(*request, 1)
            other.start()
            while len(times) < 100:
                time.sleep(0.001)
            times.clear()
            began = time.perf_counter()
            pipe.send_bytes(data)
            try:
                pipe.receive_bytes()
                took = f"{(time.perf_counter() - began) * 1000:.0f}"
            except (Closed, TimeoutError) as error:
                took = type(error).__name__
            stop.set()
            other.join()
            pipe.close()
            print(f"| {name} | {given.elements} | {took} | {max(times) * 1000:.0f} |", flush=True)


if __name__ == "__main__":
    main()
