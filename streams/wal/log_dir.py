"""A data directory as a reader sees it: its topics, and how far each partition may be read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from barnabas.storage.checkpoints import read_checkpoints, read_properties, read_topic_id
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.io import Io, read_file
from barnabas.storage.layout import (
    ADDRESS_FILE,
    META_FILE,
    is_locked,
    parse_partition_name,
)
from barnabas.storage.recovery import kept_end
from barnabas.storage.segment import LOG_SUFFIX, Segment
from barnabas.streams.wal.ends import ask_broker
from barnabas.streams.wal.errors import NotReadyError, WalError

#: Topic and partition.
Key = tuple[str, int]
#: Of each partition the first offset that is wanted, and the one after the last.
Ranges = Mapping[Key, tuple[int, int]]
_INTERNAL = "__"


class LogDir:
    """A data directory, for reading only. Raises WalError when `path` is none.

    `bootstrap` is the HOST:PORT of the broker that serves the directory; without it, what the broker has written there.
    """

    def __init__(self, path: str | os.PathLike[str], *, bootstrap: str | None = None) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self.io = Io()
        self._bootstrap = bootstrap
        self._kept: dict[Key, tuple[tuple[str, int, int], int]] = {}
        try:
            meta = read_properties(self.io, os.path.join(self.path, META_FILE))
        except (OSError, ValueError):
            raise WalError(
                f"{self.path} is no data directory of a broker on this machine: "
                "set the option path to the folder that the broker has as log.dir"
            ) from None
        self.cluster_id = meta.get("cluster.id", "")

    def topics(self) -> dict[str, list[int]]:
        """The partitions of every topic, internal ones (`__...`) left out."""
        found: dict[str, list[int]] = {}
        for topic, partition in sorted(self._keys()):
            if not topic.startswith(_INTERNAL):
                found.setdefault(topic, []).append(partition)
        return found

    def partitions(self, topic: str) -> list[Key]:
        """The partitions of a topic in order. Raises WalError for an unknown topic."""
        found = sorted(key for key in self._keys() if key[0] == topic)
        if not found:
            known = ", ".join(list(self.topics())[:10]) or "none"
            raise WalError(f"there is no topic {topic} in {self.path}: create it first, or name one of these: {known}")
        return found

    def _keys(self) -> Iterable[Key]:
        for name in self.io.listdir(self.path):
            key = parse_partition_name(name)
            if key is not None and os.path.isdir(os.path.join(self.path, name)):
                yield key

    def directory(self, key: Key) -> str:
        """The folder of a partition."""
        return os.path.join(self.path, f"{key[0]}-{key[1]}")

    def topic_id(self, key: Key) -> str:
        """Of the partition's topic, as `partition.metadata` has it; nothing where it has none."""
        return read_topic_id(self.io, self.directory(key))

    def segments(self, key: Key) -> list[Segment]:
        """The segments of a partition, oldest first, with the sizes of their files; those just deleted left out."""
        directory = self.directory(key)
        found = []
        try:
            names = self.io.listdir(directory)
        except FileNotFoundError:
            return []
        for name in names:
            if name.endswith(LOG_SUFFIX) and name[:20].isdigit() and len(name) == 24:
                segment = Segment(directory, int(name[:20]))
                try:
                    segment.size = self.io.stat(segment.path()).st_size
                except FileNotFoundError:
                    continue
                found.append(segment)
        return sorted(found, key=lambda segment: segment.base_offset)

    def ranges(self, keys: Iterable[Key]) -> dict[Key, tuple[int, int]]:
        """The first offset and the durable end of each partition.

        Of a directory that a broker has, the broker is asked: its end is that of a read_committed consumer. Else the
        end is what the next start's recovery would keep. Raises WalError; NotReadyError where asking again helps.
        """
        keys = list(keys)
        while is_locked(self.path):
            address = self._address()
            try:
                return ask_broker(address, self.cluster_id, keys)
            except WalError:
                if is_locked(self.path) and self._address() == address:
                    raise
        return self._ranges_on_disk(keys)

    def _address(self) -> str:
        if self._bootstrap:
            return self._bootstrap
        try:
            return read_file(self.io, os.path.join(self.path, ADDRESS_FILE)).decode().strip()
        except FileNotFoundError:
            raise NotReadyError(
                f"the broker of {self.path} does not say where it listens: wait until it is ready, "
                "or set the option bootstrap.servers"
            ) from None

    def _ranges_on_disk(self, keys: list[Key]) -> dict[Key, tuple[int, int]]:
        checkpoints = read_checkpoints(self.io, self.path)
        found = {}
        for key in keys:
            segments = self.segments(key)
            first = segments[0].base_offset if segments else 0
            start, point = checkpoints.of(key, self.topic_id(key)) if checkpoints.states(key) else (0, 0)
            end = self._kept_end(key, segments, point)
            found[key] = min(max(first, start), end), end
        return found

    def _kept_end(self, key: Key, segments: list[Segment], point: int) -> int:
        """`kept_end`, looked for again only when the newest segment has changed."""
        if not segments:
            return 0
        try:
            path = segments[-1].path()
            status = self.io.stat(path)
            mark = path, status.st_size, status.st_mtime_ns
            known = self._kept.get(key)
            if known is None or known[0] != mark:
                known = self._kept[key] = mark, kept_end(self.io, self.directory(key), point)
        except (OSError, CorruptLogError) as error:
            raise WalError(f"{key[0]}-{key[1]} cannot be read: {error}; start the broker, which mends it") from None
        return known[1]
