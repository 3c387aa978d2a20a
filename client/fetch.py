"""Fetches records from the leaders of their partitions (Fetch)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping

from barnabas.client.cluster import MOVED, Cluster
from barnabas.client.errors import ClientError, check
from barnabas.client.offsets import EARLIEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from barnabas.wire.aborted import Aborted
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.batch import BatchHeader, Record, iter_batches, iter_records, records_data
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.lines import Filled, Parts, fill_batch
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

_BY_NAME = 12  # the last version with topic names
MAX_WAIT_MS = 500
MAX_BYTES, PARTITION_MAX_BYTES = 50 << 20, 1 << 20


def fetch(
    cluster: Cluster,
    positions: Mapping[TopicPartition, int],
    *,
    wait_ms: int = MAX_WAIT_MS,
    max_bytes: int = MAX_BYTES,
    isolation: int = READ_UNCOMMITTED,
    peek: Container[TopicPartition] = (),
) -> dict[TopicPartition, PartitionData]:
    """One fetch from every leader: what each partition has from its position on, or an error.

    Partitions whose leader has moved are left out, and their new leader is asked the next time; if no partition has an
    answer, only after a pause. For partitions in `peek`, the broker sends as little as possible. Raises ClientError.
    """
    found: dict[TopicPartition, PartitionData] = {}

    def attempt() -> None:
        found.clear()
        moved: list[tuple[TopicPartition, int]] = []
        for leader, topics in cluster.by_leader(positions, "Fetch of").items():
            for key, part in _ask(cluster, leader, topics, positions, wait_ms, max_bytes, isolation, peek):
                if part.error_code in MOVED:
                    moved.append((key, part.error_code))
                    cluster.forget_leaders(key[0])
                elif key in positions:
                    found[key] = part
        if not found:
            for (topic, partition), code in moved:
                check(code, f"Fetch of {topic}-{partition}")

    cluster.again(attempt)
    return found


def _ask(
    cluster: Cluster,
    leader: int,
    topics: dict[str, list[int]],
    positions: Mapping[TopicPartition, int],
    wait_ms: int,
    max_bytes: int,
    isolation: int,
    peek: Container[TopicPartition],
) -> Iterator[tuple[TopicPartition, PartitionData]]:
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic,
                partitions=[
                    FetchPartition(
                        partition=partition,
                        fetch_offset=positions[topic, partition],
                        partition_max_bytes=1 if (topic, partition) in peek else PARTITION_MAX_BYTES,
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in topics.items()
        ],
    )
    answer = cluster.broker(leader).ask(request, FetchResponse, last_version=_BY_NAME, wait=wait_ms / 1000)
    check(answer.error_code, "Fetch")
    for topic in answer.responses:
        for part in topic.partitions:
            yield (topic.topic, part.partition_index), part


def records_of(part: PartitionData, position: int) -> Iterator[tuple[Record | None, int]]:
    """The records from a position on, each with the position after it; None marks the end of a batch.

    After a batch, the position may be further than after its last record, because compaction leaves gaps. If aborted
    transactions are reported (read_committed), their records are left out. Raises ClientError for bytes that are not
    records.
    """
    try:
        for header, batch in _batches(part):
            if batch is not None:
                for record in iter_records(batch):
                    if record.offset >= position:
                        position = record.offset + 1
                        yield record, position
            position = max(position, header.last_offset + 1)
            yield None, position
    except KafkaError as error:
        raise ClientError(f"Records at offset {position} of partition {part.partition_index}: {error}") from None


def _batches(part: PartitionData) -> Iterator[tuple[BatchHeader, memoryview | None]]:
    """The batches of an answer; None for those whose records must not be shown. Raises KafkaError."""
    data = part.records if isinstance(part.records, memoryview) else memoryview(b"")
    aborted = Aborted(part)
    for header, batch in iter_batches(data):
        yield header, None if aborted.has(header, batch) or header.is_control else batch


class Reader:
    """Reads partitions of one topic from given positions on; with `committed_only`, like a read_committed consumer."""

    def __init__(self, cluster: Cluster, topic: str, *, committed_only: bool = False) -> None:
        self.positions: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self._cluster, self._topic = cluster, topic
        self._isolation = READ_COMMITTED if committed_only else READ_UNCOMMITTED

    def poll(self, wait_ms: int = MAX_WAIT_MS) -> Iterator[tuple[int, Record]]:
        """One fetch from every leader: yields (partition, record), and moves each position past what was yielded.

        A position before the log's start, whose records are deleted, moves to that start. Raises ClientError.
        """
        for partition, part in self._answers(wait_ms):
            for record, position in records_of(part, self.positions[partition]):
                self.positions[partition] = position
                if record is not None:
                    yield partition, record

    def poll_text(self, parts_of: Callable[[int], Parts], most: int, wait_ms: int = MAX_WAIT_MS) -> Iterator[Filled]:
        """Like `poll`, but yields at most `most` records as text, in the form given for each partition.

        Needs `wire.lines.NATIVE`. Raises ClientError.
        """
        for partition, part in self._answers(wait_ms):
            parts = parts_of(partition)
            try:
                for header, batch in _batches(part):
                    if batch is not None:
                        filled = fill_batch(*records_data(batch), self.positions[partition], most, parts)
                        self.positions[partition] = filled.position
                        most -= filled.records
                        if filled.records:
                            yield filled
                        if not most:
                            return
                    self.positions[partition] = max(self.positions[partition], header.last_offset + 1)
            except KafkaError as error:
                at = self.positions[partition]
                raise ClientError(f"Records at offset {at} of partition {partition}: {error}") from None

    def _answers(self, wait_ms: int) -> Iterator[tuple[int, PartitionData]]:
        """One fetch from every leader: yields the answer for each partition. Raises ClientError."""
        wanted = {(self._topic, p): at for p, at in self.positions.items()}
        told = fetch(self._cluster, wanted, wait_ms=wait_ms, isolation=self._isolation)
        for (_, partition), part in told.items():
            if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                key = (self._topic, partition)
                first = list_offsets(self._cluster, [key], EARLIEST, isolation=READ_UNCOMMITTED)
                self.positions[partition] = first[key]
                continue
            check(part.error_code, f"Fetch of {self._topic}-{partition}")
            self.ends[partition] = part.last_stable_offset if self._isolation else part.high_watermark
            yield partition, part

    def at_end(self) -> bool:
        """Whether every partition has been read to its end."""
        return all(self.positions[p] >= self.ends.get(p, self.positions[p] + 1) for p in self.positions)
