"""The log file of the streams driver: what the driver and its JVM write to standard error, in at most two files.

A query that fails at each attempt writes a trace each minute, for years. So a file that is too large becomes the older
one, `streams-driver.log.1`, in place of the one before. The driver goes on writing to the same file, which is emptied:
its descriptor appends. A line that is written between the copy and that moment is lost. A new driver begins a new file,
so the last words of the one before are kept.
"""

from __future__ import annotations

import os
from contextlib import suppress

import trio

from barnabas.storage.io import Io, write_all

LOG_FILE = "streams-driver.log"
#: Size of a file in bytes above which it becomes the older one, and seconds between two looks at it.
MOST_BYTES, LOOK_SECONDS = 4 << 20, 10.0
_LAST_BYTES = 2048


class DriverLog:
    """The file in a data directory, and the older one beside it."""

    def __init__(self, io: Io, data_dir: str) -> None:
        self._io = io
        self.path = os.path.join(data_dir, LOG_FILE)
        self._older = self.path + ".1"

    def begin(self) -> int:
        """A descriptor for a new driver to append to. Raises OSError."""
        with suppress(FileNotFoundError):
            self._io.replace(self.path, self._older)
        return self._io.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def keep_small(self) -> None:
        """Look at the file's size until cancelled."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            with suppress(OSError):
                if self._io.stat(self.path).st_size > MOST_BYTES:
                    await trio.to_thread.run_sync(self._cut)

    def _cut(self) -> None:
        """Make the end of the file the older file, and empty it: a driver has it open. On a full disk only empty it."""
        file = self._io.open(self.path, os.O_RDWR)
        try:
            with suppress(OSError):
                older = self._io.open(self._older, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                try:
                    size = os.fstat(file).st_size
                    last = self._io.pread(file, MOST_BYTES, max(0, size - MOST_BYTES))
                    write_all(self._io, older, [last], 0)
                finally:
                    self._io.close(older)
            self._io.ftruncate(file, 0)
        finally:
            self._io.close(file)

    def last_line(self) -> str:
        """The last line that is not empty, where Python writes an exception."""
        lines: list[str] = []
        with suppress(OSError), open(self.path, "rb") as log:  # an operator may have removed it
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LAST_BYTES))
            lines = log.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
