"""One JVM that runs Kafka's tools one after the other (`Tools.java`): most of a tool's time is the start of a JVM."""

from __future__ import annotations

import atexit
import struct
import subprocess
import threading
from collections.abc import Sequence
from typing import IO

NUMBER = struct.Struct(">i")


class OneJvm:
    """Starts with the first command, and again after it has ended. It ends with this process, as its input ends."""

    def __init__(self, command: Sequence[str], deadline: float) -> None:
        self._command, self._deadline = command, deadline
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def run(self, words: Sequence[str], given: bytes) -> subprocess.CompletedProcess[str]:
        """Run a tool to its end. Raises TimeoutExpired if it does not end, and EOFError if the JVM has ended."""
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            asked = [NUMBER.pack(len(words))]
            for each in (*(word.encode() for word in words), given):
                asked += [NUMBER.pack(len(each)), each]
            timer = threading.Timer(self._deadline, process.kill)
            timer.start()
            try:
                process.stdin.write(b"".join(asked))
                process.stdin.flush()
                status = _number(process.stdout)
                out, errors = (_exactly(process.stdout, _number(process.stdout)).decode() for _ in range(2))
            except (EOFError, BrokenPipeError):
                self._process = None
                if not timer.is_alive():
                    raise subprocess.TimeoutExpired(list(words), self._deadline) from None
                raise
            finally:
                timer.cancel()
        return subprocess.CompletedProcess(list(words), status, out, errors)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            atexit.register(self._process.communicate)
        return self._process


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError("the JVM has ended")
    return data


def _number(stream: IO[bytes]) -> int:
    number: int = NUMBER.unpack(_exactly(stream, NUMBER.size))[0]
    return number
