"""Offsets as users and checkpoints write them: `{"topic": {"partition": offset}}`, as Spark's Kafka connector does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from barnabas.streams.wal import DataLossError, LogDir, WalError, offset_at
from barnabas.wire.aliases import TopicPartition

EARLIEST, LATEST = -2, -1

#: Offsets in a checkpoint, plus the topics' ids under IDS, which cannot be a topic's name.
Wire = dict[str, dict[str, Any]]
IDS = "#ids"


class Position(msgspec.Struct, frozen=True):
    """Where a query begins or ends: at a time (ms), or at `offsets`, with `special` for the other partitions."""

    special: int = EARLIEST
    offsets: dict[str, dict[str, int]] = {}
    timestamp: int | None = None

    def resolve(
        self, name: str, log_dir: LogDir, ranges: Mapping[TopicPartition, tuple[int, int]], *, fail_on_data_loss: bool
    ) -> dict[TopicPartition, int]:
        """The offset in each partition, inside its range of readable offsets.

        Raises WalError for a partition that is not read, and DataLossError for an offset that does not exist.
        """
        for topic, partitions in self.offsets.items():
            for partition in partitions:
                if (topic, int(partition)) not in ranges:
                    raise WalError(f"{name} names {topic}-{partition}, which the query does not read")
        found = {}
        for key, (first, end) in ranges.items():
            if self.timestamp is not None:
                at = offset_at(log_dir, key, self.timestamp, first, end)
                found[key] = end if at is None else at
                continue
            offset = self.offsets.get(key[0], {}).get(str(key[1]), self.special)
            if offset < 0:
                offset = first if offset == EARLIEST else end
            elif not first <= offset <= end:
                if fail_on_data_loss:
                    raise DataLossError(*key, f"{name} {offset} is outside the offsets {first} to {end}")
                offset = min(max(offset, first), end)
            found[key] = offset
        return found


def parse_position(name: str, text: str, otherwise: int) -> Position:
    """`earliest`, `latest`, or JSON offsets, in which -2 and -1 mean these. Raises WalError."""
    if text.strip().lower() in ("earliest", "latest"):
        return Position(EARLIEST if text.strip().lower() == "earliest" else LATEST)
    try:
        told = msgspec.json.decode(text, type=dict[str, Any])
        found = msgspec.convert({k: v for k, v in told.items() if k != IDS}, dict[str, dict[str, int]])
        if any(not p.isdecimal() or o < EARLIEST for parts in found.values() for p, o in parts.items()):
            raise ValueError("a partition or offset is out of range")
    except (msgspec.DecodeError, ValueError) as error:
        raise WalError(
            f'{name}={text}: expected earliest, latest, or JSON like {{"topic": {{"0": 23, "1": -2}}}} ({error})'
        ) from None
    return Position(otherwise, found)


def to_wire(offsets: Mapping[TopicPartition, int], ids: Mapping[str, str] | None = None) -> Wire:
    """For Spark's checkpoint: the same text for the same offsets every time, with the ids of their topics."""
    found: Wire = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    if ids:
        found[IDS] = dict(sorted(ids.items()))
    return found


def from_wire(wire: Mapping[str, Mapping[str, Any]]) -> tuple[dict[TopicPartition, int], dict[str, str]]:
    """The offsets and ids in the output of `to_wire`."""
    offsets = {
        (topic, int(partition)): offset
        for topic, partitions in wire.items()
        if topic != IDS
        for partition, offset in partitions.items()
    }
    return offsets, dict(wire.get(IDS, {}))


def share(ranges: Mapping[TopicPartition, tuple[int, int]], limit: int) -> dict[TopicPartition, tuple[int, int]]:
    """Ranges cut to about `limit` offsets in all. Each partition's share is proportional to its backlog."""
    total = sum(end - start for start, end in ranges.values())
    if total <= limit:
        return dict(ranges)
    return {key: (start, min(end, start + -(-limit * (end - start) // total))) for key, (start, end) in ranges.items()}
