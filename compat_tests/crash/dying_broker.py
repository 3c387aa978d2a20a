"""A broker that kills itself at a named system call: `dying_broker OP WORD NUMBER WHEN -- DIR PORT KEY=VALUE...`.

OP is a call of `storage.io.Io`, WORD is a part of the path of its file, NUMBER counts such calls from 1, and WHEN is
`before`, `after`, or (for a write) `torn`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import trio

from barnabas.broker.main import load_config
from barnabas.broker.node import Node
from barnabas.storage.io import Io
from barnabas.wire.aliases import BytesLike


class DyingIo(Io):
    """The real calls; at the chosen one the process kills itself."""

    def __init__(self, operation: str, word: str, number: int, when: str) -> None:
        self.operation, self.word, self.left, self.when = operation, word, number, when
        self._paths: dict[int, str] = {}

    def _due(self, operation: str, path: str) -> bool:
        if operation != self.operation or self.word not in path:
            return False
        self.left -= 1
        if self.left == 0 and self.when == "before":
            self._die()
        return self.left == 0

    def _die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _do(self, operation: str, path: str, *arguments: Any) -> Any:
        due = self._due(operation, path)
        result = getattr(Io, operation)(self, *arguments)
        if due:
            self._die()
        return result

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        made = flags & os.O_CREAT
        fd: int = self._do("open" if made else "look", path, path, flags, mode) if made else super().open(path, flags)
        self._paths[fd] = path
        return fd

    def pwritev(self, fd: int, parts: Sequence[BytesLike], position: int) -> int:
        if self._due("pwritev", self._paths[fd]):
            whole = b"".join(parts)
            super().pwritev(fd, (whole[: len(whole) // 2] if self.when == "torn" else whole,), position)
            self._die()
        return super().pwritev(fd, parts, position)

    def fdatasync(self, fd: int) -> None:
        self._do("fdatasync", self._paths[fd], fd)

    def fsync(self, fd: int) -> None:
        self._do("fsync", self._paths[fd], fd)

    def replace(self, source: str, target: str) -> None:
        self._do("replace", target, source, target)

    def unlink(self, path: str) -> None:
        self._do("unlink", path, path)

    def mkdir(self, path: str) -> None:
        self._do("mkdir", path, path)

    def rmtree(self, path: str) -> None:
        self._do("rmtree", path, path)


async def serve(data_dir: str, port: str, overrides: list[str], io: Io) -> None:
    """Run the broker until it dies or is stopped."""
    node = Node(load_config(None, data_dir, [f"127.0.0.1:{port}"], overrides), io=io)
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        print(f"barnabas is ready on 127.0.0.1:{node.bound[0].port}, and will die", flush=True)
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                node.stop()
                break
        await node.stopped.wait()


if __name__ == "__main__":
    operation, word, number, when, _, data_dir, port, *overrides = sys.argv[1:]
    trio.run(serve, data_dir, port, overrides, DyingIo(operation, word, int(number), when))
