"""A broker on a disk with slow syncs, each of MS milliseconds: `slow_broker MS DIR PORT KEY=VALUE...`."""

from __future__ import annotations

import sys
import time

import trio

from barnabas.storage.io import Io
from compat_tests.crash.dying_broker import serve


class SlowIo(Io):
    """The real calls, with a delay in each sync."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def fdatasync(self, fd: int) -> None:
        time.sleep(self.seconds)
        super().fdatasync(fd)

    def fsync(self, fd: int) -> None:
        time.sleep(self.seconds)
        super().fsync(fd)


if __name__ == "__main__":
    milliseconds, data_dir, port, *overrides = sys.argv[1:]
    trio.run(serve, data_dir, port, overrides, SlowIo(float(milliseconds) / 1000))
