"""`barnabas consume`: records of a topic on standard output, alone or as the member of a group."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator

from client.admin import EARLIEST, LATEST
from client.cluster import ClientError, Cluster, check
from scripts.group_member import GroupMember, Rebalance
from scripts.topics import offsets
from wire.batch import Record, iter_batches, iter_records
from wire.errors import ErrorCode
from wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

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
    with Cluster(args.server) as cluster:
        leaders = cluster.leaders(args.topic, create=True)
        if args.partition is not None:
            if args.partition not in leaders:
                raise ClientError(f"Topic {args.topic} has no partition {args.partition}: it has {len(leaders)}")
            leaders = {args.partition: leaders[args.partition]}
        reader = Reader(cluster, args.topic, leaders)
        if args.group:
            return _as_member(args, cluster, reader)
        reader.positions = _start(args, cluster, leaders)
        _print(args, _endless(reader, args.exit))
    return 0


def _start(args: argparse.Namespace, cluster: Cluster, leaders: dict[int, int]) -> dict[int, int]:
    if args.offset is not None and args.offset >= 0:
        return dict.fromkeys(leaders, args.offset)
    found = offsets(cluster, args.topic, leaders, EARLIEST if args.from_beginning else LATEST)
    if args.offset is not None:  # the last so many
        first = offsets(cluster, args.topic, leaders, EARLIEST)
        found = offsets(cluster, args.topic, leaders, LATEST)
        return {p: max(first[p], end + args.offset) for p, end in found.items()}
    return found


def _endless(reader: Reader, stop_at_end: bool) -> Iterator[tuple[int, Record]]:
    while True:
        yield from reader.poll()
        if stop_at_end and reader.at_end():
            return


def _as_member(args: argparse.Namespace, cluster: Cluster, reader: Reader) -> int:
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
                _print(args, _membership(member, reader, args.exit), left)
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
    args: argparse.Namespace, records: Iterable[tuple[int, Record]], left: list[int | None] | None = None
) -> None:
    left = [args.max_messages] if left is None else left
    out = sys.stdout.buffer
    if left[0] == 0:
        return
    for partition, record in records:
        out.write(_format(args.format, args.topic, partition, record))
        out.flush()
        if left[0] is not None:
            left[0] -= 1
            if left[0] <= 0:
                return


def _format(form: str, topic: str, partition: int, record: Record) -> bytes:
    """kcat's place-holders: %t topic, %p partition, %o offset, %T timestamp, %k key, %s value, %h headers."""
    out = bytearray()
    i = 0
    data = form.encode().decode("unicode_escape").encode("latin-1", "ignore")
    while i < len(data):
        if data[i : i + 1] != b"%" or i + 1 == len(data):
            out += data[i : i + 1]
            i += 1
            continue
        mark = data[i + 1 : i + 2]
        if mark == b"k":
            out += b"NULL" if record.key is None else record.key
        elif mark == b"s":
            out += b"NULL" if record.value is None else record.value
        elif mark == b"h":
            out += ",".join(
                f"{n}={'NULL' if v is None else v.decode(errors='replace')}" for n, v in record.headers
            ).encode()
        else:
            plain = {b"t": topic, b"p": partition, b"o": record.offset, b"T": record.timestamp, b"%": "%"}
            out += str(plain.get(mark, "%" + mark.decode("latin-1"))).encode()
        i += 2
    return bytes(out)
