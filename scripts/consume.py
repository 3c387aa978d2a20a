"""`barnabas consume`: records of a topic on standard output, alone or as the member of a group."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator

from barnabas.client.admin import EARLIEST, LATEST
from barnabas.client.cluster import ClientError, Cluster, check
from barnabas.scripts.form import Form, fill, parse_form
from barnabas.scripts.group_member import GroupMember, Rebalance
from barnabas.scripts.topics import existing, offsets
from barnabas.wire.batch import Record, iter_batches, iter_records
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

# Versions beyond name topics by id.
BY_NAME = 12
MAX_WAIT_MS = 500
COMMIT_SECONDS = 5.0


class Reader:
    """Reads partitions of a topic from given positions on."""

    def __init__(self, cluster: Cluster, topic: str, leaders: dict[int, int]) -> None:
        self.cluster, self.topic, self.leaders = cluster, topic, leaders
        self.positions: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    def poll(self, wait_ms: int = MAX_WAIT_MS) -> Iterator[tuple[int, Record]]:
        """One fetch from every leader: (partition, record), each position moved past what was given."""
        for leader in {self.leaders[p] for p in self.positions}:
            mine = {p: at for p, at in self.positions.items() if self.leaders[p] == leader}
            request = FetchRequest(
                max_wait_ms=wait_ms, min_bytes=1, max_bytes=50 << 20, session_epoch=-1,
                topics=[FetchTopic(self.topic, partitions=[
                    FetchPartition(partition=p, fetch_offset=at, partition_max_bytes=1 << 20) for p, at in mine.items()
                ])],
            )  # fmt: skip
            wire = self.cluster.broker(leader)
            answer = wire.ask(request, FetchResponse, version=min(BY_NAME, wire.version_of(FetchRequest)), wait=1)
            check(answer.error_code, "Fetch")
            for topic in answer.responses:
                for part in topic.partitions:
                    if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        first = offsets(self.cluster, self.topic, {part.partition_index: leader}, EARLIEST)
                        self.positions.update(first)
                        continue
                    check(part.error_code, f"Fetch of {self.topic}-{part.partition_index}")
                    self.ends[part.partition_index] = part.high_watermark
                    if isinstance(part.records, memoryview):
                        yield from self._records(part.partition_index, part.records)

    def _records(self, partition: int, data: memoryview) -> Iterator[tuple[int, Record]]:
        for header, batch in iter_batches(data):
            if not header.is_control:
                for record in iter_records(batch):
                    if record.offset >= self.positions[partition]:
                        self.positions[partition] = record.offset + 1
                        yield partition, record
            self.positions[partition] = max(self.positions[partition], header.last_offset + 1)

    def at_end(self) -> bool:
        """Whether every partition has been read to its end."""
        return all(self.positions[p] >= self.ends.get(p, self.positions[p] + 1) for p in self.positions)


def run(args: argparse.Namespace) -> int:
    """Print records until told to stop: by count, at the end, or by a signal."""
    form = parse_form(args.format)
    with Cluster(args.server) as cluster:
        leaders = existing(cluster, args.topic)
        if args.partition is not None:
            if args.partition not in leaders:
                raise ClientError(f"Topic {args.topic} has no partition {args.partition}: it has {len(leaders)}")
            leaders = {args.partition: leaders[args.partition]}
        reader = Reader(cluster, args.topic, leaders)
        if args.group:
            return _as_member(args, form, cluster, reader)
        reader.positions = _start(args, cluster, leaders)
        _print(args, form, _endless(reader, args.exit))
    return 0


def _start(args: argparse.Namespace, cluster: Cluster, leaders: dict[int, int]) -> dict[int, int]:
    if args.offset is not None and args.offset >= 0:
        _check_inside(args, cluster, leaders)
        return dict.fromkeys(leaders, args.offset)
    found = offsets(cluster, args.topic, leaders, EARLIEST if args.from_beginning else LATEST)
    if args.offset is not None:  # the last so many
        first = offsets(cluster, args.topic, leaders, EARLIEST)
        found = offsets(cluster, args.topic, leaders, LATEST)
        return {p: max(first[p], end + args.offset) for p, end in found.items()}
    return found


def _check_inside(args: argparse.Namespace, cluster: Cluster, leaders: dict[int, int]) -> None:
    """Raises ClientError for an offset that a partition does not have; the end is where the next record will be."""
    first, end = (offsets(cluster, args.topic, leaders, special) for special in (EARLIEST, LATEST))
    for partition in leaders:
        if not first[partition] <= args.offset <= end[partition]:
            other = "" if args.partition is not None or len(leaders) == 1 else "; choose one with --partition"
            raise ClientError(
                f"Offset {args.offset} is outside {args.topic}-{partition}, which begins at {first[partition]} and "
                f"ends at {end[partition]}{other}"
            )


def _endless(reader: Reader, stop_at_end: bool) -> Iterator[tuple[int, Record]]:
    while True:
        yield from reader.poll()
        if stop_at_end and reader.at_end():
            return


def _as_member(args: argparse.Namespace, form: Form, cluster: Cluster, reader: Reader) -> int:
    member = GroupMember(cluster, args.group, args.topic, len(reader.leaders))
    left = [args.max_messages]
    try:
        while True:
            assigned = member.join()
            committed = member.committed(assigned)
            start = _start(args, cluster, {p: reader.leaders[p] for p in assigned}) if assigned else {}
            reader.positions = {p: committed.get(p, start[p]) for p in assigned}
            reader.ends.clear()
            try:
                _print(args, form, _membership(member, reader, args.exit), left)
                return 0
            except Rebalance:
                continue
    finally:
        member.leave(reader.positions)


def _membership(member: GroupMember, reader: Reader, stop_at_end: bool) -> Iterator[tuple[int, Record]]:
    """Records while the generation lasts; commits now and then. Raises Rebalance at its end."""
    next_commit = time.monotonic() + COMMIT_SECONDS
    while True:
        if reader.positions:
            yield from reader.poll()
        else:
            time.sleep(MAX_WAIT_MS / 1000)
        try:
            member.heartbeat()
        except Rebalance:
            member.commit(reader.positions)
            raise
        if time.monotonic() > next_commit:
            member.commit(reader.positions)
            next_commit = time.monotonic() + COMMIT_SECONDS
        if stop_at_end and reader.at_end():
            return


def _print(
    args: argparse.Namespace, form: Form, records: Iterable[tuple[int, Record]], left: list[int | None] | None = None
) -> None:
    left = [args.max_messages] if left is None else left
    out = sys.stdout.buffer
    raw = args.raw or not sys.stdout.isatty()
    if left[0] == 0:
        return
    for partition, record in records:
        out.write(fill(form, args.topic, partition, record, raw=raw))
        out.flush()
        if left[0] is not None:
            left[0] -= 1
            if left[0] <= 0:
                return
