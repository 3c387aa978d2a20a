"""Five thousand idle connections cost little, and other clients are served."""

from __future__ import annotations

import resource
from pathlib import Path

import psutil
import pytest
import trio

from barnabas.broker.tests.client import Client, batch_of, connect
from barnabas.wire.messages.metadata import MetadataRequest
from compat_tests.broker_process import Barnabas

pytestmark = pytest.mark.one_node("it speaks to one node, whose descriptors it counts")

COUNT = 5000
MAX_BYTES_EACH = 24 << 10


def test_idle_connections_are_cheap(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3 * COUNT:
        pytest.skip(f"{hard} descriptors are too few for {COUNT} connections")
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = Barnabas(tmp_path)
    server.start()

    async def play() -> int:
        assert server.process
        process = psutil.Process(server.process.pid)
        async with await connect(server.port) as client:
            await client.create_topic("t")
            before: int = process.memory_info().rss
            idle: list[Client] = []
            for _ in range(COUNT):
                idle.append(await connect(server.port))
            await idle[-1].ask(MetadataRequest(topics=[]))  # so all connections are accepted
            grown = int(process.memory_info().rss) - before
            assert (await client.produce("t", batch_of(b"x"))).error_code == 0
            for each in (idle[0], idle[COUNT // 2]):
                assert (await each.ask(MetadataRequest(topics=[]))).brokers
            for each in idle:
                await each.stream.aclose()
            assert (await client.fetch("t")).records
            return grown

    try:
        grown = trio.run(play)
    finally:
        status = server.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, soft)
    print(f"\n{COUNT} idle connections: {grown / COUNT:.0f} bytes of RSS each")
    assert status == 0
    assert not server.errors()
    assert grown < COUNT * MAX_BYTES_EACH


class FewDescriptors(Barnabas):
    """A broker with a limit of 300 open files and sockets."""

    def command(self) -> list[str]:
        return ["sh", "-c", 'ulimit -n 300; exec "$@"', "sh", *super().command()]


def test_connections_leave_descriptors_to_the_logs(tmp_path: Path) -> None:
    server = FewDescriptors(tmp_path, {"log.segment.bytes": "1024"})
    server.start()

    async def play() -> None:
        async with await connect(server.port) as client:
            await client.create_topic("t", 30)
            crowd = [await connect(server.port) for _ in range(400)]
            for number in range(90):
                assert (await client.produce("t", batch_of(b"x" * 600), number % 30)).error_code == 0
            for partition in range(30):
                assert (await client.fetch("t", 0, partition)).records
            for each in crowd:
                await each.stream.aclose()

    try:
        trio.run(play)
    finally:
        status = server.stop()
    assert status == 0
    assert not server.errors()
    assert "connection.refused" in server.log_file.read_text()
