"""`barnabas consume`: print a topic's records on standard output, alone or as a member of a group."""

from __future__ import annotations

import argparse
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.client.fetch import MAX_WAIT_MS, Reader
from barnabas.client.groups import GroupMember, Rebalance
from barnabas.client.offsets import list_offsets
from barnabas.scripts.form import Form, fill, for_partition, json_line, parse_form
from barnabas.scripts.starts import Start, parse_start
from barnabas.scripts.topics import bounds, existing
from barnabas.wire.batch import Record
from barnabas.wire.lines import NATIVE

COMMIT_SECONDS = 5.0
#: More records than a topic can have.
ALL = 2**62


class Shows(ABC):
    """Writes the records of one fetch, up to `left` records in all."""

    def __init__(self, most: int | None) -> None:
        self.left = ALL if most is None else most
        self._out = sys.stdout.buffer

    @abstractmethod
    def show(self, reader: Reader) -> None:
        """Write the records of one fetch."""


class Many(Shows):
    """Writes unescaped records by a format, a batch at a time."""

    def __init__(self, form: Form, topic: str, most: int | None) -> None:
        super().__init__(most)
        self._form, self._topic = form, topic

    def show(self, reader: Reader) -> None:
        for filled in reader.poll_text(lambda partition: for_partition(self._form, self._topic, partition), self.left):
            self._out.write(filled.text)
            self.left -= filled.records
        self._out.flush()


class OneByOne(Shows):
    """Writes records one by one; on a terminal, each one at once."""

    def __init__(self, line: Callable[[int, Record], bytes], most: int | None) -> None:
        super().__init__(most)
        self._line, self._at_once = line, sys.stdout.isatty()

    def show(self, reader: Reader) -> None:
        for partition, record in reader.poll():
            self._out.write(self._line(partition, record))
            self.left -= 1
            if self._at_once:
                self._out.flush()
            if not self.left:
                break
        self._out.flush()


def run(args: argparse.Namespace) -> int:
    """Print records until a count or the end is reached, or a signal comes."""
    shows = _shows(args)
    start = parse_start(args.offset)
    with Cluster(args.server) as cluster:
        partitions = list(existing(cluster, args.topic))
        if args.partition is not None:
            if args.partition not in partitions:
                raise ClientError(f"Topic {args.topic} has no partition {args.partition}: it has {len(partitions)}")
            partitions = [args.partition]
        reader = Reader(cluster, args.topic, committed_only=args.isolation_level == "read_committed")
        if not shows.left:
            return 0
        if args.group:
            return _as_member(args, shows, start, cluster, reader)
        reader.positions = _start(args, start, cluster, partitions)
        while True:
            shows.show(reader)
            if not shows.left or (args.exit and reader.at_end()):
                return 0


def _shows(args: argparse.Namespace) -> Shows:
    """How to write the records. Raises ClientError for an invalid format."""
    most = args.max_messages
    if args.json:
        return OneByOne(lambda partition, record: json_line(args.topic, partition, record), most)
    form, raw = parse_form(args.format), args.raw or not sys.stdout.isatty()
    if raw and NATIVE:
        return Many(form, args.topic, most)
    return OneByOne(lambda partition, record: fill(form, args.topic, partition, record, raw=raw), most)


def _start(args: argparse.Namespace, start: Start | None, cluster: Cluster, partitions: list[int]) -> dict[int, int]:
    first, end = bounds(cluster, args.topic, partitions)
    if args.from_beginning:
        return first
    if start is None or start.kind == "end":
        return end
    if start.kind == "beginning":
        return first
    if start.kind == "time":
        found = list_offsets(cluster, [(args.topic, partition) for partition in partitions], start.number)
        return {p: at if at >= 0 else end[p] for (_, p), at in found.items()}  # no record is that new: wait for one
    if start.kind == "last":
        return {p: max(first[p], end[p] - start.number) for p in partitions}
    _check_inside(args, start.number, first, end)
    return dict.fromkeys(partitions, start.number)


def _check_inside(args: argparse.Namespace, offset: int, first: dict[int, int], end: dict[int, int]) -> None:
    """Raises ClientError for an offset that a partition does not have. Its end, the next record's offset, is valid."""
    for partition in first:
        if not first[partition] <= offset <= end[partition]:
            other = "" if args.partition is not None or len(first) == 1 else "; choose one with --partition"
            raise ClientError(
                f"Offset {offset} is outside {args.topic}-{partition}, which begins at {first[partition]} and "
                f"ends at {end[partition]}{other}"
            )


def _as_member(args: argparse.Namespace, shows: Shows, start: Start | None, cluster: Cluster, reader: Reader) -> int:
    member = GroupMember(cluster, args.group, args.topic)
    try:
        while True:
            assigned = member.join()
            committed = member.committed(assigned)
            begin = _start(args, start, cluster, assigned) if assigned else {}
            reader.positions = {p: committed.get(p, begin[p]) for p in assigned}
            reader.ends.clear()
            try:
                _read_as_member(args, shows, member, reader)
                return 0
            except Rebalance:
                continue
    finally:
        member.leave(reader.positions)


def _read_as_member(args: argparse.Namespace, shows: Shows, member: GroupMember, reader: Reader) -> None:
    """Read until the generation ends or enough is read, with a commit now and then. Raises Rebalance."""
    next_commit = time.monotonic() + COMMIT_SECONDS
    while True:
        if reader.positions:
            shows.show(reader)
            if not shows.left:
                return
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
        if args.exit and reader.at_end():
            return
