"""A data directory as a reader sees it: its topics, and how far each partition may be read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence

from barnabas.storage.errors import CorruptLogError
from barnabas.storage.log_reader import BeingReplacedError, LogDirReader, SegmentReader
from barnabas.streams.wal.ends import BrokerEnds
from barnabas.streams.wal.errors import NotReadyError, WalError
from barnabas.wire.aliases import TopicPartition

#: Topic and partition.
#: For each partition, the first wanted offset, and the one after the last.
Ranges = Mapping[TopicPartition, tuple[int, int]]
_INTERNAL = "__"
# How long a broker may take to replace segments: some renames.
REPLACED_SECONDS = 1.0
LOOK_AGAIN_SECONDS = 0.02


class LogDir:
    """A data directory, for reading only. Raises WalError if `path` is not one.

    `bootstrap` is the HOST:PORT of the broker that serves the directory; the default is what the broker has written
    there.
    """

    def __init__(self, path: str | os.PathLike[str], *, bootstrap: str | None = None) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self._bootstrap = bootstrap
        try:
            self._reader = LogDirReader(self.path)
        except (OSError, ValueError):
            raise WalError(
                f"{self.path} is not a data directory of a broker on this machine: "
                "set the option path to the folder of the broker's log.dir"
            ) from None
        self.cluster_id = self._reader.cluster_id
        self._broker = BrokerEnds(self.cluster_id)

    def topics(self) -> dict[str, list[int]]:
        """The partitions of every topic, without internal ones (`__...`)."""
        found: dict[str, list[int]] = {}
        for topic, partition in sorted(self._reader.partitions()):
            if not topic.startswith(_INTERNAL):
                found.setdefault(topic, []).append(partition)
        return found

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic in order. Raises WalError for an unknown topic."""
        found = sorted(key for key in self._reader.partitions() if key[0] == topic)
        if not found:
            known = ", ".join(list(self.topics())[:10]) or "none"
            raise WalError(f"there is no topic {topic} in {self.path}: create it first, or name one of these: {known}")
        return found

    def topic_id(self, key: TopicPartition) -> str:
        """The id of the partition's topic; empty if it has none."""
        return self._reader.partition(key).topic_id()

    def segments(self, key: TopicPartition) -> list[SegmentReader]:
        """The segments of a partition, oldest first. Raises NotReadyError while they are being replaced."""
        until = time.monotonic() + REPLACED_SECONDS
        while True:
            try:
                return self._reader.partition(key).segments()
            except BeingReplacedError:
                if not self._reader.is_served() or time.monotonic() > until:
                    raise NotReadyError(
                        f"segments of {key[0]}-{key[1]} are half replaced: if no broker runs, start it: it completes "
                        f"the replacement"
                    ) from None
            time.sleep(LOOK_AGAIN_SECONDS)

    def aborted(
        self, key: TopicPartition, segments: Sequence[SegmentReader], lo: int, hi: int
    ) -> tuple[tuple[int, int, int], ...]:
        """The aborted transactions with offsets from `lo` up to `hi`: producer id, first and last offset.

        Raises OSError, CorruptLogError.
        """
        found = self._reader.partition(key).aborted_transactions(segments, lo, hi)
        return tuple((each.producer_id, each.first_offset, each.last_offset) for each in found)

    def ranges(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """The first offset and the durable end of each partition.

        If a broker is using the directory, it is asked: the end is that of a read_committed consumer. Otherwise the end
        is what the next start's recovery would keep. Raises WalError, and NotReadyError if a retry helps.
        """
        keys = list(keys)
        while self._reader.is_served():
            address = self._address()
            try:
                return self._broker.ask(address, keys)
            except WalError:
                if self._reader.is_served() and self._address() == address:
                    raise
        return self._ranges_on_disk(keys)

    def _address(self) -> str:
        if self._bootstrap:
            return self._bootstrap
        address = self._reader.address()
        if address is None:
            raise NotReadyError(
                f"the broker of {self.path} does not say where it listens: wait until it is ready, "
                "or set the option bootstrap.servers"
            )
        return address

    def _ranges_on_disk(self, keys: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        stated = self._reader.checkpoints()
        found = {}
        for key in keys:
            try:
                found[key] = self._reader.bounds(key, self.segments(key), stated)
            except (OSError, CorruptLogError) as error:
                what = f"{key[0]}-{key[1]} cannot be read: {error}"
                raise WalError(f"{what}; start the broker, which repairs it") from None
        return found
