"""Tells by two stat calls whether a partition may have grown: asking a broker takes a hundred times as long.

Space is allocated ahead in a log file, so its size says nothing. Its modification time does, but in steps of some
milliseconds: a file that changed just now may have changed again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from barnabas.streams.wal.log_dir import LogDir
from barnabas.wire.aliases import TopicPartition

_LOG = ".log"
Stamp = tuple[int, int]


class Stamps:
    """Stamps of the partitions of a data directory."""

    def __init__(self, log_dir: LogDir) -> None:
        self._path = log_dir.path
        #: By partition: when its folder last changed, and its newest segment then.
        self._newest: dict[TopicPartition, tuple[int, str]] = {}

    def of(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Stamp]:
        """Stamps that change with every write to the partitions' logs."""
        return {key: self._of(key) for key in keys}

    def _of(self, key: TopicPartition) -> Stamp:
        folder = os.path.join(self._path, f"{key[0]}-{key[1]}")
        with suppress(FileNotFoundError):  # the topic is gone, or a segment was just removed
            changed = os.stat(folder).st_mtime_ns
            known = self._newest.get(key)
            if known is None or known[0] != changed:
                names = [name for name in os.listdir(folder) if name.endswith(_LOG)]
                known = self._newest[key] = changed, os.path.join(folder, max(names, default=""))
            return changed, os.stat(known[1]).st_mtime_ns
        self._newest.pop(key, None)
        return 0, 0
