"""`barnabas consume`: records of a topic on standard output, alone or as the member of a group."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.client.fetch import MAX_WAIT_MS, Reader
from barnabas.client.groups import GroupMember, Rebalance
from barnabas.scripts.form import Form, fill, parse_form
from barnabas.scripts.topics import bounds, existing
from barnabas.wire.batch import Record

COMMIT_SECONDS = 5.0


def run(args: argparse.Namespace) -> int:
    """Print records until told to stop: by count, at the end, or by a signal."""
    form = parse_form(args.format)
    with Cluster(args.server) as cluster:
        partitions = list(existing(cluster, args.topic))
        if args.partition is not None:
            if args.partition not in partitions:
                raise ClientError(f"Topic {args.topic} has no partition {args.partition}: it has {len(partitions)}")
            partitions = [args.partition]
        reader = Reader(cluster, args.topic)
        if args.group:
            return _as_member(args, form, cluster, reader)
        reader.positions = _start(args, cluster, partitions)
        _print(args, form, _endless(reader, args.exit))
    return 0


def _start(args: argparse.Namespace, cluster: Cluster, partitions: list[int]) -> dict[int, int]:
    first, end = bounds(cluster, args.topic, partitions)
    if args.offset is None:
        return first if args.from_beginning else end
    if args.offset >= 0:
        _check_inside(args, first, end)
        return dict.fromkeys(partitions, args.offset)
    return {p: max(first[p], end[p] + args.offset) for p in partitions}  # the last -offset records


def _check_inside(args: argparse.Namespace, first: dict[int, int], end: dict[int, int]) -> None:
    """Raises ClientError for an offset that a partition does not have; the end is where the next record will be."""
    for partition in first:
        if not first[partition] <= args.offset <= end[partition]:
            other = "" if args.partition is not None or len(first) == 1 else "; choose one with --partition"
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
    member = GroupMember(cluster, args.group, args.topic)
    left = [args.max_messages]
    try:
        while True:
            assigned = member.join()
            committed = member.committed(assigned)
            start = _start(args, cluster, assigned) if assigned else {}
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
