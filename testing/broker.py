"""A broker process for one test: it can be started, killed and restarted, and can have faults on request.

The process ends with the test process, however that ends: it reads commands from standard input, and exits when that
closes. Its data is removed at the end, unless the test chose the directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

from barnabas.client.admin import create_topic
from barnabas.client.cluster import Cluster
from barnabas.client.errors import check

T = TypeVar("T")
HOST = "127.0.0.1"
#: A start takes a third of a second. This timeout is for a busy machine.
START_SECONDS = 60.0
_READY, _SET = "barnabas is ready on ", "faults set"
_LAST_LINES = 40


class BrokerError(Exception):
    """The broker did not start, or has ended. The message has the last lines of its log."""


class Broker:
    """A broker on a free port of 127.0.0.1. It starts with the `with` block, or with `start()`.

    Server properties are arguments with `_` for each dot, as in `Broker(num_partitions=3)`, or a mapping, as in
    `Broker({"log.segment.bytes": 1 << 20})`. `data_dir` is a directory for data that stays; without it, the data is in
    a temporary folder and removed with the broker.

    `async with Broker() as broker` does the same under trio and asyncio, without blocking the event loop.
    """

    def __init__(
        self,
        properties: Mapping[str, object] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        **more: object,
    ) -> None:
        named = {name.replace("_", "."): value for name, value in more.items()}
        self._properties = {name: _text(value) for name, value in {**(properties or {}), **named}.items()}
        self._temporary = None
        if data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="barnabas-", ignore_cleanup_errors=True)
            data_dir = self._temporary.name
        self.data_dir = Path(data_dir)
        self._log: list[str] = []
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self._changed = threading.Condition()
        self._is_ready, self._faults_set = False, 0
        self._asking = threading.Lock()  # for faults: each caller waits for its own answer

    # --- for clients --------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for any client. The port stays the same after a restart."""
        return f"{HOST}:{self._port}"

    @property
    def port(self) -> int:
        """The port; 0 before the first start."""
        return self._port

    @property
    def log(self) -> str:
        """The broker's log so far, from all of its starts."""
        return "".join(self._log)

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> None:
        """Create a topic. Raises ClientError if that fails."""
        with Cluster(self.bootstrap_servers) as cluster:
            settings = {key: _text(value) for key, value in (config or {}).items()}
            made = create_topic(cluster, name, settings, partitions=partitions)
            check(made.error_code, name, made.error_message)

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start, and return when clients can connect. Raises BrokerError if it ends instead."""
        if self.is_running:
            return
        self._is_ready = False
        words = [f"{key}={value}" for key, value in self._properties.items()]
        kind, address = "kept" if self._temporary is None else "temporary", f"{HOST}:{self._port}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "barnabas.testing.served", kind, str(self.data_dir), address, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            threading.Thread(target=self._listen, args=(self._process, stream), daemon=True).start()
        try:
            self._wait(lambda: self._is_ready, "start")
        except BrokerError:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop cleanly. If that takes over a minute, the broker is killed and BrokerError is raised."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(self._told("the broker did not stop")) from None

    def kill(self) -> None:
        """Crash the broker with SIGKILL. `start` restarts it with the same port and data."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End the broker, and remove its data if that is temporary."""
        self.kill()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Broker:
        await _in_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await _in_thread(self.close)

    # --- faults -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def slow_disk(self, seconds: float) -> Iterator[None]:
        """Inside this context, each file sync takes this much longer, as on a busy or worn disk."""
        self._set(disk_seconds=seconds)
        try:
            yield
        finally:
            self._set(disk_seconds=0)

    @contextlib.contextmanager
    def frozen_disk(self) -> Iterator[None]:
        """Inside this context, no file sync completes, so nothing new is acknowledged. Afterwards they complete."""
        self._set(disk_seconds=None)
        try:
            yield
        finally:
            self._set(disk_seconds=0)

    def lose_answers(self, api: str = "Produce", count: int = 1) -> None:
        """Carry out the next requests of an API (`Produce`, `Fetch`, `OffsetCommit`, ...), but close the connection.

        The client gets no answer, and must find out by itself what happened.
        """
        self._set(lose=[api, count])

    # --- the process --------------------------------------------------------------------------------------------------

    def _set(self, **faults: Any) -> None:
        with self._asking:
            self._ask(faults)

    def _ask(self, faults: Mapping[str, Any]) -> None:
        process, wanted = self._process, self._faults_set + 1
        if process is None or process.stdin is None or process.poll() is not None:
            if process is not None and faults == {"disk_seconds": 0}:
                return  # it has crashed meanwhile, which ended the faults too
            raise BrokerError(self._told("the broker is not running"))
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(faults) + "\n")
            process.stdin.flush()
        self._wait(lambda: self._faults_set >= wanted, "take the faults")

    def _listen(self, process: subprocess.Popen[str], stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    if line.startswith(_READY):
                        self._port = int(line.removeprefix(_READY).split(",")[0].rpartition(":")[2])
                        self._is_ready = True
                    if line.startswith(_SET):
                        self._faults_set += 1
                    else:
                        self._log.append(line)
                    self._changed.notify_all()
        if stream is process.stdout:
            process.wait()
        with self._changed:
            self._changed.notify_all()

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        process = self._process
        assert process is not None
        until = time.monotonic() + START_SECONDS
        with self._changed:
            while not done():
                left = until - time.monotonic()
                if left <= 0 or process.poll() is not None:
                    raise BrokerError(self._told(f"the broker did not {what}"))
                self._changed.wait(left)

    def _told(self, what: str) -> str:
        last = "".join(self._log[-_LAST_LINES:]).rstrip()
        return f"{what}; the last lines of its log:\n{last}" if last else what


def _text(value: object) -> str:
    """A property's value as a properties file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _in_thread(call: Callable[[], T]) -> T:
    """Run a blocking call in a thread, under trio or asyncio."""
    import sniffio

    if sniffio.current_async_library() == "trio":
        import trio

        return await trio.to_thread.run_sync(call)
    import asyncio

    return await asyncio.to_thread(call)
