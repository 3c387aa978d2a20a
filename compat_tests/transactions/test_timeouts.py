"""A transaction that its producer keeps open for too long: it is aborted, and the producer gets an error."""

from __future__ import annotations

import pytest

from compat_tests.broker_process import Server
from compat_tests.conftest import NewServer
from compat_tests.transactions.processes import FENCED, READERS, Producer


@pytest.fixture
def server(new_server: NewServer) -> Server:
    return new_server({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"})


def test_who_takes_too_long_is_told_so(client: str, server: Server, topic: str) -> None:
    with (
        Producer(client, server.address, topic, 1_000) as slow,
        Producer("confluent-kafka", server.address, f"{topic}.other") as other,
    ):
        slow.do("init")
        slow.do("begin")
        slow.do("send", topic, 0, "late")
        for command in (("init",), ("begin",), ("send", topic, 0, "kept"), ("commit",)):
            other.do(*command)
        assert READERS["confluent-kafka"](server.address, topic, 1) == ["kept"]  # the other one is aborted
        said = [slow.ask("send", topic, 0, "later"), slow.ask("commit")]
        assert "ok" not in said
        assert FENCED[client] & set(said), said
    with Producer(client, server.address, topic) as successor:
        for command in (("init",), ("begin",), ("send", topic, 0, "next"), ("commit",)):
            successor.do(*command)
    assert READERS["confluent-kafka"](server.address, topic, 2) == ["kept", "next"]
