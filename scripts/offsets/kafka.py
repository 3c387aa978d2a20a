"""A store for the offsets that a Kafka cluster, or barnabas, keeps for its groups.

A position is written as a "simple" commit, without a member or generation; the broker accepts it from anyone while the
group has no members. Kafka has no conditional commit, so the current position is read once more just before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.client.cluster import Cluster
from barnabas.client.errors import check, name_of
from barnabas.client.fetch import fetch, records_of
from barnabas.client.groups import Committed, commit, committed, delete_offsets, describe_group, list_groups
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.client.security import Security
from barnabas.scripts.offsets.store import Bounds, Change, Partition, Position, Problem
from barnabas.wire.batch import Record

#: A commit of more partitions is split into several requests.
MOST_PARTITIONS = 1000


class KafkaStore:
    """The groups of a cluster."""

    def __init__(self, servers: str, security: Security | None = None) -> None:
        """`security` defaults to that of the process. Raises ClientError."""
        self.name = f"kafka://{servers}"
        self.problems: list[Problem] = []
        self.cluster = Cluster(servers, security=security)
        self._counts: dict[str, int | None] = {}
        self._bounds: dict[Partition, Bounds | None] = {}

    def close(self) -> None:
        self.cluster.close()

    def groups(self) -> list[str]:
        return sorted(group.group_id for group in list_groups(self.cluster))

    def live_members(self, group: str) -> int:
        return len(describe_group(self.cluster, group).members)

    def read(self, group: str) -> dict[Partition, Position]:
        found = committed(self.cluster, group)
        return {Partition(*key): Position(*position) for key, position in sorted(found.items())}

    def write(self, group: str, changes: Mapping[Partition, Change]) -> dict[Partition, str]:
        now = self.read(group)
        failed = {
            partition: "another client has changed it meanwhile"
            for partition, change in changes.items()
            if now.get(partition) != change.old
        }
        gone = [p for p, change in changes.items() if change.new is None and p not in failed]
        wanted = {p: change.new for p, change in changes.items() if change.new is not None and p not in failed}
        if gone:
            told = delete_offsets(self.cluster, group, [(p.topic, p.number) for p in gone])
            failed |= {Partition(*key): name_of(code) for key, code in told.items() if code}
        places = list(wanted)
        for start in range(0, len(places), MOST_PARTITIONS):
            some = {(p.topic, p.number): Committed(*wanted[p]) for p in places[start : start + MOST_PARTITIONS]}
            told = commit(self.cluster, group, some)
            failed |= {Partition(*key): name_of(code) for key, code in told.items() if code}
        return failed

    def bounds(self, partitions: Iterable[Partition]) -> Mapping[Partition, Bounds | None] | None:
        new = [partition for partition in dict.fromkeys(partitions) if partition not in self._bounds]
        unknown = sorted({p.topic for p in new} - self._counts.keys())
        if unknown:
            told = {topic.name: topic for topic in self.cluster.metadata(unknown)}
            for name in unknown:
                topic = told.get(name)
                self._counts[name] = None if topic is None or topic.error_code else len(topic.partitions)
        there = [(p.topic, p.number) for p in new if p.number < (self._counts[p.topic] or 0)]
        first = list_offsets(self.cluster, there, EARLIEST) if there else {}
        last = list_offsets(self.cluster, there, LATEST, isolation=0) if there else {}
        for partition in new:
            key = (partition.topic, partition.number)
            self._bounds[partition] = Bounds(first[key], last[key]) if key in first else None
        return self._bounds

    def records(self, partition: Partition, start: int, most: int) -> list[Record]:
        """Up to `most` records from an offset on."""
        key = (partition.topic, partition.number)
        found: list[Record] = []
        while len(found) < most:
            told = fetch(self.cluster, {key: start}, wait_ms=0)
            part = told.get(key)
            if part is None:
                continue
            check(part.error_code, f"Fetch of {partition}")
            before = start
            for record, behind in records_of(part, before):
                start = behind
                if record is not None and len(found) < most:
                    found.append(record)
            if start == before:
                break
        return found

    def offset_at(self, partition: Partition, timestamp: int) -> int | None:
        """The offset of the first record that is not older than a timestamp; None if there is none."""
        key = (partition.topic, partition.number)
        found = list_offsets(self.cluster, [key], timestamp, isolation=0)[key]
        return found if found >= 0 else None
