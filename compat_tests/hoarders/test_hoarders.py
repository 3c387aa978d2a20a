"""Clients from one address use up shared resources; librdkafka, from another address, still produces and joins.

`broker/tests/test_hoarders.py` has one test for each shared resource; these tests show the effect on an ordinary
client.
"""

from __future__ import annotations

import random
import socket
import struct
from contextlib import ExitStack, suppress

import pytest
from confluent_kafka import Producer

from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from compat_tests.broker_process import Server
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.conftest import NewServer
from compat_tests.driver import Record
from compat_tests.pipe import Pipe
from compat_tests.waiting import DEADLINE, until

pytestmark = pytest.mark.one_node(
    "it speaks to one node over connections of its own, which need not lead or coordinate what it asks for"
)

HOARDER = "127.0.0.2"
ANNOUNCED = struct.pack(">i", 90 << 20) + bytes(8)


@pytest.fixture(scope="module")
def server(new_server: NewServer) -> Server:
    return new_server({"message.max.bytes": "4000000"})


@pytest.mark.parametrize("source", ["127.0.0.1", HOARDER])
def test_announced_requests_keep_nobody_from_a_large_produce(server: Server, source: str) -> None:
    client = ConfluentDriver(server.address)
    topic = f"large-from-{source}"
    client.create_topic(topic)
    value = random.Random(1).randbytes(2_500_000)
    with ExitStack() as stack:
        for _ in range(60):
            hoarder = socket.create_connection(("127.0.0.1", server.port), 30, (source, 0))
            stack.enter_context(hoarder).sendall(ANNOUNCED)
        client.produce(topic, [Record(value)])
        assert client.consume(topic, 1)[0].value == value


def test_who_joins_under_many_names_and_leaves_keeps_nobody_from_a_group(server: Server) -> None:
    client = ConfluentDriver(server.address)
    client.create_topic("joined")
    client.produce("joined", [Record(b"v")])
    with Pipe(server.port, source=HOARDER) as hoarder:
        until(lambda: joined(hoarder, "first") != ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator is there")
        number, code = 0, 0
        while not code:
            number += 1
            code = joined(hoarder, f"hoard-{number}")
        assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [record.value for record in client.consume_in_group("honest", "joined", 1)] == [b"v"]


@pytest.fixture(scope="module")
def locked(new_server: NewServer) -> Server:
    users = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=secret;"
    return new_server(
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": users,
            "max.connections": "60",
            "queued.max.request.bytes": "16000000",
        }
    )


def test_who_never_logs_in_keeps_nobody_from_logging_in(locked: Server) -> None:
    """Connections and memory: 100 clients without a login each send as much of 500 KB as the broker takes."""
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    settings = {"bootstrap.servers": locked.address, **login, "sasl.password": "secret", "log_level": 0}
    with ExitStack() as stack:
        for _ in range(100):
            hoarder = socket.create_connection(("127.0.0.1", locked.port), 30, (HOARDER, 0))
            stack.enter_context(hoarder).setblocking(False)
            with suppress(BlockingIOError, ConnectionError):
                hoarder.send(struct.pack(">i", 500_000) + bytes(400_000))
        producer = Producer({**settings, "message.max.bytes": 3_000_000})
        value, errors = random.Random(1).randbytes(900_000), list[object]()
        for _ in range(5):
            producer.produce("honest", value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(DEADLINE) == 0
        assert errors == [None] * 5
        assert "took its place" in locked.log_file.read_text()


def joined(hoarder: Pipe, group: str) -> int:
    """Join with a megabyte of metadata and a session timeout of half an hour; returns the error code."""
    hoarder.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
    protocols = [JoinGroupRequestProtocol("range", bytes(1_000_000))]
    request = JoinGroupRequest(group, 1_800_000, 60_000, protocol_type="consumer", protocols=protocols)
    return int(hoarder.ask(request, 3).error_code)
