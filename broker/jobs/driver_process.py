"""The streams driver as a child process. It is started when the first query topic is made, or a client asks for one.

When the driver ends, it is started again after a pause, also if another driver has taken over. An operator who runs a
driver by hand sets `barnabas.streams.driver=none`. If Spark is not installed, no driver is started, and this is logged
once.

The child is `python -m barnabas.streams.query`: a Kafka client of this broker that runs Spark. It ends when its
standard input is closed, which the system does however this process ends. It writes JSON lines for the operator to its
standard output. All other output, including that of Spark and the JVM, goes to `streams-driver.log` in the data
directory (`driver_log.py`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import trio

from barnabas.broker.identity import Identity
from barnabas.broker.jobs import spark_here
from barnabas.broker.jobs.driver_log import DriverLog
from barnabas.broker.log import EventLog
from barnabas.broker.settings.config import BrokerConfig
from barnabas.client.temporary import TemporaryFolder
from barnabas.storage.io import Io

_FIRST_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 1.0, 60.0
_STOP_SECONDS = 3.0


class DriverProcess:
    """Keeps one driver running while `wanted` says so. Calls `failed` with the reason when no driver can answer."""

    def __init__(
        self,
        config: BrokerConfig,
        identity: Identity,
        log: EventLog,
        io: Io,
        failed: Callable[[str], None],
        wanted: Callable[[], bool],
    ) -> None:
        self._config, self._identity, self._log = config, identity, log
        self._driver_log = DriverLog(io, str(config.data_dir))
        self._failed, self._wanted = failed, wanted
        self._again = trio.Event()

    def need(self) -> None:
        """Called when there may be a query: start a driver if none runs, at once even if one has failed lately."""
        self._again.set()

    async def run(self) -> None:
        """Start the driver when it is wanted, and again after it has ended, until cancelled."""
        if self._config["barnabas.streams.driver"] != "auto":
            return
        backoff, told = _FIRST_BACKOFF_SECONDS, ""
        while True:
            self._again = trio.Event()
            if not self._wanted():
                await self._again.wait()
                continue
            missing = spark_here.missing()
            if missing is None:
                began = trio.current_time()
                reason = await self._run_once()
                self._log.error("streams.driver.ended", reason=reason)
                self._failed(reason)
                if trio.current_time() - began > _MAX_BACKOFF_SECONDS:
                    backoff = _FIRST_BACKOFF_SECONDS
                told, wait = "", backoff
                backoff = min(2 * backoff, _MAX_BACKOFF_SECONDS)
            else:
                if missing != told:
                    self._log.error("streams.driver.not_started", reason=missing)
                self._failed(missing)
                told, wait = missing, _MAX_BACKOFF_SECONDS
            with trio.move_on_after(wait):
                await self._again.wait()

    async def _run_once(self) -> str:
        """Run a driver to its end. Returns why it ended. Its temporary files are removed when all its processes are."""
        self._log.info("streams.driver.starting", message="starting the driver of queries and streams ...")
        try:
            temporary = await trio.to_thread.run_sync(TemporaryFolder, "barnabas-streams-")
        except OSError as error:
            return f"The streams driver cannot be started: {error}"
        try:
            return await self._run_in(str(temporary.path))
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(temporary.remove)

    async def _run_in(self, temporary: str) -> str:
        """Run a driver whose temporary files are in that folder."""
        try:
            with open(self._driver_log.begin(), "ab") as errors:
                process = await trio.lowlevel.open_process(
                    self._command(),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env={**os.environ, "TMPDIR": temporary},
                    start_new_session=True,
                )
        except OSError as error:
            return f"The streams driver cannot be started: {error}"
        self._log.info("streams.driver.started", pid=process.pid)
        reason = ""
        try:
            assert process.stdout is not None
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._driver_log.keep_small)
                async for line in _lines(process.stdout):
                    reason = self._tell(line) or reason
                status = await process.wait()
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await _end(process)
        log = self._driver_log
        return reason or f"The streams driver ended with status {status}: {log.last_line()} (its log is {log.path})"

    def _command(self) -> list[str]:
        config = self._config
        options = {
            "--server": self._identity.local_address,
            "--data-dir": str(config.data_dir),
            "--master": config["barnabas.streams.master"],
            "--driver-memory": config["barnabas.streams.driver.memory"],
            "--trigger-ms": str(config["barnabas.streams.trigger.ms"]),
            "--tick-timeout-ms": str(config["barnabas.streams.tick.timeout.ms"]),
            "--max-streams": str(config["barnabas.streams.max"]),
            "--copies": config["barnabas.streams.checkpoint.copies"],
            "--sink-writes": str(config["barnabas.streams.sink.writes.per.second"]),
            "--sink-bytes": str(config["barnabas.streams.sink.bytes.per.second"]),
            "--source-bytes": str(config["barnabas.streams.source.bytes.per.second"]),
            "--copy-interval-ms": str(config["barnabas.streams.checkpoint.copy.interval.ms"]),
        }
        words = [word for option in options.items() for word in option]
        command = [sys.executable, "-m", "barnabas.streams.query", "--child", *words]
        init = config["barnabas.streams.init.file"]
        return [*command, "--init", init] if init else command

    def _tell(self, line: bytes) -> str | None:
        """Log a line of the driver. Returns the reason, if the line says why the driver cannot continue."""
        try:
            fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            return None
        level, event = fields.pop("level", "info"), fields.pop("event", "streams")
        tell = {"warning": self._log.warning, "error": self._log.error}.get(level, self._log.info)
        tell(event, **fields)
        return str(fields.get("reason")) if event == "streams.fatal" else None


async def _lines(stream: trio.abc.ReceiveStream) -> AsyncIterator[bytes]:
    rest = b""
    async for data in stream:
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line


async def _end(process: trio.Process) -> None:
    """End the driver and all its processes. It has no unsaved work, so it gets only a short time to stop by itself."""
    if process.stdin is not None:
        await process.stdin.aclose()
    with trio.move_on_after(_STOP_SECONDS):
        await process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    await process.wait()
    if process.stdout is not None:
        await process.stdout.aclose()
