"""`python -m compat_tests.fuzz.run [--seconds N] [--seed N]`: random requests at the parser and at a broker process.

It fails if a response never comes, if the broker ends, logs an error or grows, or if a well-behaved client does not
read back exactly what it wrote. The same seed sends the same requests.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
import time
from pathlib import Path

import psutil
import trio

from barnabas.broker.registry import APIS, Endpoint
from barnabas.broker.tests.client import batch_of, connect
from barnabas.wire.batch import iter_batches, iter_records
from barnabas.wire.header import read_request_header, skip_header_tags
from barnabas.wire.schema import ProtocolError
from compat_tests.broker_process import Barnabas
from compat_tests.fuzz.generate import Generator

CONNECTIONS = 6
KEPT = "kept-by-a-good-client"
MAX_GROWTH = 120 << 20
HANG_SECONDS = 20.0
SETTINGS = {
    "log.segment.bytes": "65536",
    "offsets.topic.num.partitions": "4",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "0",
    "log.retention.bytes": "200000",
    "group.min.session.timeout.ms": "100",
    "queued.max.request.bytes": "33554432",
    "max.incremental.fetch.session.cache.slots": "50",
}


def fuzz_parser(seconds: float, seed: int) -> int:
    """Decode damaged requests of every API and version; only ProtocolError may be raised. Returns their number."""
    generator = Generator(seed)
    ends = time.monotonic() + seconds
    count = 0
    while time.monotonic() < ends:
        frame = generator.frame()[4:]
        count += 1
        try:
            header = read_request_header(frame)
            api = APIS.get(header.api_key)
            if api is None or header.api_version not in api.versions:
                continue  # the broker closes a connection that sends it
            endpoint = Endpoint(api, header.api_version, api.handle)
            pos = skip_header_tags(frame, header.end) if endpoint.flexible else header.end
            endpoint.decode(frame, pos, 200_000)
        except ProtocolError:
            continue
    return count


class BrokerFuzz:
    """One run against a broker process."""

    def __init__(self, server: Barnabas, seconds: float, seed: int) -> None:
        self.server, self.seconds, self.seed = server, seconds, seed
        self.requests = self.answers = self.closed = self.kept = 0
        self.rss_begin = self.rss_end = 0

    async def run(self) -> None:
        """Fuzz for the given time. Raises AssertionError with the seed in its text."""
        async with await connect(self.server.port) as good:
            await good.create_topic(KEPT, retention_bytes="-1", retention_ms="-1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._good_client)
            nursery.start_soon(self._watch)
            for number in range(CONNECTIONS):
                nursery.start_soon(self._hostile, number)
            await trio.sleep(self.seconds)
            self.rss_end = self._rss()
            nursery.cancel_scope.cancel()

    def _rss(self) -> int:
        assert self.server.process
        size: int = psutil.Process(self.server.process.pid).memory_info().rss
        return size

    async def _watch(self) -> None:
        """Note the broker's memory once all kinds of request were sent; check that it lives and logs no error."""
        ends = trio.current_time() + self.seconds
        await trio.sleep(min(60, self.seconds / 3))
        self.rss_begin = self._rss()
        while trio.current_time() < ends:
            assert self.server.process
            assert self.server.process.poll() is None, f"seed {self.seed}: the broker ended\n{self.server.log_tail(5)}"
            assert not self.server.errors(), f"seed {self.seed}: {self.server.errors()[0][:3000]}"
            await trio.sleep(0.5)

    async def _good_client(self) -> None:
        """Write a record and read it back, in a loop."""
        while True:
            async with await connect(self.server.port) as client:
                for _ in range(200):
                    value = b"kept %d" % self.kept
                    with trio.fail_after(HANG_SECONDS):
                        written = await client.produce(KEPT, batch_of(value))
                        assert (written.error_code, written.base_offset) == (0, self.kept), f"{self.seed}: {written}"
                        read = await client.fetch(KEPT, self.kept)
                    found = [r.value for _, view in iter_batches(read.records) for r in iter_records(view)]
                    assert found == [value], f"seed {self.seed}: {found} instead of {value!r}"
                    self.kept += 1

    async def _hostile(self, number: int) -> None:
        generator = Generator(self.seed * 1000 + number)
        while True:
            try:
                stream = await trio.open_tcp_stream("127.0.0.1", self.server.port)
            except OSError:
                await trio.lowlevel.checkpoint()
                continue
            async with stream:
                await self._one_connection(generator, stream)

    async def _one_connection(self, generator: Generator, stream: trio.SocketStream) -> None:
        """Send requests, a few at a time, and wait a moment for the answers."""
        buffer = bytearray()
        try:
            for _ in range(generator.random.choice([1, 5, 50])):
                batch = [generator.frame() for _ in range(generator.random.choice([1, 1, 1, 3, 20]))]
                self.requests += len(batch)
                data = b"".join(batch)
                if generator.random.random() < 0.02:
                    data = data[: generator.random.randrange(len(data) + 1)]
                await stream.send_all(data)
                with trio.move_on_after(0.05):
                    for _ in batch:
                        while len(buffer) < 4 or len(buffer) < 4 + struct.unpack_from(">i", buffer)[0]:
                            part = await stream.receive_some(1 << 16)
                            if not part:
                                self.closed += 1
                                return
                            buffer += part
                        del buffer[: 4 + struct.unpack_from(">i", buffer)[0]]
                        self.answers += 1
        except trio.BrokenResourceError:
            self.closed += 1


def fuzz(folder: Path, seconds: float, seed: int) -> str:
    """Run both parts; returns a line with the numbers. Raises AssertionError."""
    parsed = fuzz_parser(seconds * 0.2, seed)
    server = Barnabas(folder, SETTINGS)
    server.start()
    run = BrokerFuzz(server, seconds * 0.8, seed)
    try:
        trio.run(run.run, strict_exception_groups=True)
    finally:
        status = server.stop()
    assert status == 0, f"seed {seed}: exit status {status}"
    assert not server.errors(), f"seed {seed}: {server.errors()[0][:3000]}"
    growth = run.rss_end - run.rss_begin
    assert growth < MAX_GROWTH, f"seed {seed}: the broker grew by {growth >> 20} MiB"
    return (
        f"fuzz: seed {seed}, {parsed} requests parsed; {run.requests} sent to a broker, {run.answers} answers, "
        f"{run.closed} connections closed, {run.kept} records of a good client kept, RSS "
        f"{run.rss_begin >> 20} -> {run.rss_end >> 20} MiB"
    )


def main() -> int:
    """The command."""
    arguments = argparse.ArgumentParser(description="Fuzz the parser and a broker process.")
    arguments.add_argument("--seconds", type=float, default=600)
    arguments.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    given = arguments.parse_args()
    seed = given.seed if given.seed is not None else time.time_ns() % 1_000_000
    print(f"fuzz: seed {seed}, {given.seconds:g} s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        print(fuzz(Path(folder), given.seconds, seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
