"""The longest time that one request makes other clients wait at a full broker: `python -m bench.crowd`.

The broker, in this process, gets two topics with many partitions, many topics, and groups with many offsets. A client
then sends small requests whose work grows with the content of the broker. The output is the time of each request, and
the longest step of the event loop meanwhile, during which no other client is served.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import trio

from barnabas.broker.log import EventLog
from barnabas.broker.main import SWITCH_SECONDS
from barnabas.broker.node import Node
from barnabas.broker.settings.config import BrokerConfig
from barnabas.storage import garbage
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.wire.messages.list_groups import ListGroupsRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.wire.types import Message
from bench.servers import NEVER
from compat_tests.pipe import Pipe

TOPICS, GROUPS, OFFSETS, PARTITIONS = 5_000, 4_000, 100, 20_000
BROKER, TOPIC = 4, 2


def _named(*names: str) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names], False)


def _alter(kind: int, name: str, key: str, value: str) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, [AlterableConfig(key, 0, value)])], False)


def _made(name: str, count: int) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, count, 1, [], [])], 60_000)


ROWS: list[tuple[str, Callable[[], Message]]] = [
    ("nothing", DescribeClusterRequest),
    ("CreateTopics, one", lambda: _made("one", 1)),
    ("DeleteTopics, one", lambda: DeleteTopicsRequest([DeleteTopicState("one")])),
    ("Metadata, all", lambda: MetadataRequest(None, False)),
    ("Metadata, a large topic", lambda: _named("large-0")),
    ("DescribeTopicPartitions, a large topic", lambda: DescribeTopicPartitionsRequest([TopicRequest("large-0")])),
    ("DescribeTopicPartitions, all", lambda: DescribeTopicPartitionsRequest([])),
    ("DescribeLogDirs, all", lambda: DescribeLogDirsRequest(None)),
    ("ListConfigResources", ListConfigResourcesRequest),
    ("ListGroups", ListGroupsRequest),
    ("DescribeGroups, one", lambda: DescribeGroupsRequest(["g7"])),
    ("OffsetFetch, one", lambda: OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g7", topics=None)])),
    ("AlterConfigs, a topic", lambda: _alter(TOPIC, "t00001", "retention.ms", "99999")),
    ("AlterConfigs, a large topic", lambda: _alter(TOPIC, "large-0", "retention.ms", "99999")),
    ("AlterConfigs, the broker", lambda: _alter(BROKER, "", "log.retention.ms", "88888888")),
    (
        "CreateTopics, 2,000 names to check",
        lambda: CreateTopicsRequest(
            [CreatableTopic(f"name_{number}", 1, 1, [], []) for number in range(2000)], 60_000, True
        ),
    ),
    ("CreateTopics, large", lambda: _made("large-2", PARTITIONS)),
    (
        "CreatePartitions, large",
        lambda: CreatePartitionsRequest([CreatePartitionsTopic("one-more", PARTITIONS)], 60_000),
    ),
    ("DeleteTopics, large", lambda: DeleteTopicsRequest([DeleteTopicState("large-2")])),
    ("DeleteTopics, read by all groups", lambda: DeleteTopicsRequest([DeleteTopicState("t00000")])),
]


def fill(pipe: Pipe) -> None:
    """Create the topics, and commit for each group."""
    for name in ("large-0", "large-1"):
        _ok(pipe.ask(_made(name, PARTITIONS)))
    _ok(pipe.ask(_made("one-more", 1)))
    names = [f"t{number:05}" for number in range(TOPICS)]
    for some in _pieces(names, 500):
        _ok(
            pipe.ask(
                CreateTopicsRequest(
                    [CreatableTopic(n, OFFSETS if n == names[0] else 1, 1, [], []) for n in some], 60_000
                )
            )
        )
    pipe.ask(FindCoordinatorRequest(key="g"), 3)
    places = [OffsetCommitRequestPartition(index, 1) for index in range(OFFSETS)]
    topic_id = pipe.ask(_named(names[0])).topics[0].topic_id
    for number in range(GROUPS):
        commit = OffsetCommitRequest(
            f"g{number}", topics=[OffsetCommitRequestTopic(names[0], topic_id=topic_id, partitions=places)]
        )
        while True:
            answer = pipe.ask(commit)
            codes = {part.error_code for topic in answer.topics for part in topic.partitions}
            if codes == {0}:
                break
            if codes != {14}:  # COORDINATOR_LOAD_IN_PROGRESS
                raise RuntimeError(f"OffsetCommit: {codes}")


def _pieces(names: list[str], count: int) -> Iterator[list[str]]:
    for start in range(0, len(names), count):
        yield names[start : start + count]


def _ok(answer: Any) -> None:
    bad = [each for each in answer.topics if each.error_code]
    if bad:
        raise RuntimeError(str(bad[0]))


class Steps(trio.abc.Instrument):
    """The longest step of a task, in CPU seconds of the event loop's thread, so that other processes do not count."""

    def __init__(self) -> None:
        self.longest, self._began = 0.0, 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.longest = max(self.longest, time.thread_time() - self._began)


def ask_all(port: int, steps: Steps, rows: list[str]) -> None:
    """Fill the broker, send each request, and print a line for it."""
    pipe = Pipe(port, timeout=600)
    began = time.perf_counter()
    fill(pipe)
    print(f"filled in {time.perf_counter() - began:.1f} s", flush=True)
    print("| request | its answer, ms | longest step of the event loop, ms of CPU |\n| --- | --- | --- |", flush=True)
    for name, request in ROWS:
        if rows and not any(part in name for part in rows):
            continue
        steps.longest, began = 0.0, time.perf_counter()
        pipe.ask(request())
        took = time.perf_counter() - began
        time.sleep(0.3)  # work after the answer counts, too
        print(f"| {name} | {took * 1000:.0f} | {steps.longest * 1000:.1f} |", flush=True)
    pipe.close()


async def serve(folder: str, steps: Steps, rows: list[str]) -> None:
    """Run a broker in this process, until all requests are answered."""
    sys.setswitchinterval(SWITCH_SECONDS)
    garbage.collect_seldom()
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dir": folder, "log.flush.interval.messages": NEVER}
    node = Node(BrokerConfig(settings), EventLog(level="error"))
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        await trio.to_thread.run_sync(ask_all, node.bound[0].port, steps, rows)
        node.stop()


def main() -> None:
    """Run the chosen rows, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", help="parts of rows' names; all without")
    given = parser.parse_args()
    steps = Steps()
    with tempfile.TemporaryDirectory() as folder:
        trio.run(serve, folder, steps, given.rows, instruments=[steps])


if __name__ == "__main__":
    main()
