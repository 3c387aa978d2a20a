"""The repair of a damaged segment while others read it: its whole batches are written to a new segment, which takes its
place.

It begins with `LocalVnode.begin_repair` and ends with `end_repair`.
"""

from __future__ import annotations

from barnabas.storage.config import LogConfig
from barnabas.storage.io import Io
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.recovery import recover_segment
from barnabas.storage.replacement import discard_cleaned
from barnabas.storage.report import Tell
from barnabas.storage.segment import CLEANED_SUFFIX, Segment


class RepairJob:
    """`run` may be called in a thread: it touches no vnode, only files."""

    def __init__(self, io: Io, damaged: Segment, following: int, config: LogConfig, tell: Tell) -> None:
        self.damaged = damaged
        #: The segment that replaces the damaged one. It has no size if the log was whole and only its indexes were not.
        self.mended = Segment(
            damaged.directory, damaged.base_offset, created_ms=damaged.created_ms, mark=CLEANED_SUFFIX
        )
        self._io = io
        self._following = following
        self._config = config
        self._tell = tell

    def run(self) -> None:
        """Write the repaired segment. Raises OSError."""
        io, damaged = self._io, self.damaged
        looked_at = Segment(damaged.directory, damaged.base_offset, size=damaged.size)
        looked_at.size = min(damaged.size, io.stat(damaged.path()).st_size)
        epochs = LeaderEpochs(damaged.directory, io)
        try:
            recover_segment(io, looked_at, 0, self._config, epochs, self._following, self._tell, beside=self.mended)
        except OSError:
            discard_cleaned(io, damaged.directory)
            raise
