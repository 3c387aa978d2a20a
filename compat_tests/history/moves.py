"""Moves of partitions between the nodes of a broker, all through a history; some moves are cancelled (KIP-455).

The requests go to random nodes, as those of a tool may. If an answer is lost, its outcome is unknown and does not
matter.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from compat_tests.crash.workload import Work
from compat_tests.waiting import until

#: The error codes that a broker may answer to a move.
_EXPECTED = {
    ErrorCode.NONE,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the coordinators' topics are created when they are first needed
    ErrorCode.KAFKA_STORAGE_ERROR,  # the disk of the metadata's owner is full
}


def reassign(cluster: Cluster, moves: dict[TopicPartition, int | None]) -> dict[TopicPartition, ErrorCode]:
    """Ask for moves to these nodes; None cancels a move. Raises ClientError."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, index), node in moves.items():
        topics.setdefault(topic, []).append(ReassignablePartition(index, None if node is None else [node]))
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(*each) for each in topics.items()])
    answer = cluster.any(request, AlterPartitionReassignmentsResponse, wait=request.timeout_ms / 1000)
    return {
        (topic.name, part.partition_index): ErrorCode(part.error_code)
        for topic in answer.responses
        for part in topic.partitions
    }


def under_way(cluster: Cluster) -> set[TopicPartition]:
    """The partitions that are moving. Raises ClientError."""
    answer = cluster.any(ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse)
    return {(topic.name, part.partition_index) for topic in answer.topics for part in topic.partitions}


class Mover(Work):
    """Moves random ones of `partitions` between the nodes at these addresses until it is told to stop."""

    def __init__(self, servers: Sequence[str], partitions: Sequence[TopicPartition], seed: int) -> None:
        self.servers, self.partitions = servers, partitions
        self.random = random.Random(f"{seed} moves")
        self._others = random.Random(f"{seed} many moves")
        self.done: Counter[str] = Counter()
        super().__init__("mover")

    def run(self) -> None:
        while not self._stop.wait(self.random.choice([0.02, 0.2, 1.0])):
            self._move(self.random, self.random.randint(1, 4), cancels=self.random.random() < 0.25)

    def many_now(self) -> None:
        """Move half of all partitions, in the caller's thread."""
        self._move(self._others, len(self.partitions) // 2, cancels=False)

    def _move(self, choice: random.Random, count: int, *, cancels: bool) -> None:
        moves = {at: choice.randint(1, len(self.servers)) for at in choice.sample(self.partitions, count)}
        try:
            with Cluster(choice.choice(self.servers), patience=0) as cluster:
                answers = reassign(cluster, dict(moves))
                for at, code in answers.items():
                    self._note("move", at, code)
                if cancels:
                    for at, code in reassign(cluster, dict.fromkeys(moves)).items():
                        self._note("cancel", at, code)
        except ClientError:
            self.done["lost"] += 1

    def _note(self, what: str, at: TopicPartition, code: ErrorCode) -> None:
        self.done[what if code == ErrorCode.NONE else f"{what}: {code.name}"] += 1
        if code not in _EXPECTED:
            self.failures.append(f"{what} of {at[0]}-{at[1]}: {code.name}")

    def all_arrive(self) -> None:
        """Stop, and wait until no partition moves and all nodes name the same leaders. Raises AssertionError."""
        self.finish()
        with Cluster(",".join(self.servers)) as cluster:
            until(lambda: not under_way(cluster), "all partitions have arrived")
        until(self._agree, "the nodes tell of the same leaders")

    def _agree(self) -> bool:
        """Whether all nodes serve, and name the same leader for each partition."""
        topics = {topic for topic, _ in self.partitions}
        told = []
        for server in self.servers:
            try:
                with Cluster(server, patience=0) as cluster:
                    told.append({topic: cluster.leaders(topic) for topic in topics})
            except ClientError:
                return False
        leaders = [leader for topic in told[0].values() for leader in topic.values()]
        return min(leaders) > 0 and all(each == told[0] for each in told)
