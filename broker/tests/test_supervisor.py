"""The settings that a supervisor gives its nodes, and when a node counts as hanging. For processes:
compat_tests/nodes."""

from __future__ import annotations

import io
import os
import sys

import pytest

from barnabas.broker import supervisor
from barnabas.broker.log import EventLog
from barnabas.broker.settings.keys import ConfigError
from barnabas.broker.supervisor import Child, Supervisor, check_ports, loop_thread, shifted


def test_each_node_has_the_next_id_and_the_next_ports() -> None:
    properties = {
        "node.id": "5",
        "listeners": "PLAINTEXT://127.0.0.1:9092,TLS://[::1]:9192",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
        "advertised.listeners": "PLAINTEXT://broker.example:19092,TLS://broker.example:29092",
        "barnabas.http.listen": "https://127.0.0.1:9644",
    }
    found = [shifted(properties, index, 3) for index in range(3)]
    assert [each.node_id for each in found] == [5, 6, 7]
    assert [[listener.port for listener in each.listeners] for each in found] == [
        [9092, 9192],
        [9093, 9193],
        [9094, 9194],
    ]
    assert [str(listener) for listener in found[2].advertised or ()] == [
        "PLAINTEXT://broker.example:19094",
        "TLS://broker.example:29094",
    ]
    assert [str(each.http) for each in found] == [f"HTTP://127.0.0.1:{port}" for port in (9644, 9645, 9646)]
    assert all(each.http is not None and each.http.protocol.is_encrypted for each in found)


def test_the_old_name_of_the_id_counts_and_port_0_stays() -> None:
    found = [shifted({"broker.id": "7", "listeners": "PLAINTEXT://:0"}, index, 2) for index in range(2)]
    assert [each.node_id for each in found] == [7, 8]
    assert [each.listeners[0].port for each in found] == [0, 0]


def test_ports_that_are_too_few_are_named() -> None:
    with pytest.raises(ConfigError, match=r"4 nodes need the ports 65533 and up, and there are not enough"):
        shifted({"listeners": "PLAINTEXT://127.0.0.1:65533"}, 0, 4)


def test_two_listeners_that_need_one_port_are_named() -> None:
    properties = {
        "listeners": "A://127.0.0.1:9092,B://127.0.0.1:9093",
        "listener.security.protocol.map": "A:PLAINTEXT,B:SSL",
    }
    nodes = [shifted(properties, index, 2) for index in range(2)]
    with pytest.raises(ConfigError, match="B of node 1 and A of node 2 need the port 9093"):
        check_ports(nodes)
    check_ports(nodes[:1])


class Watched:
    """A supervisor of one node whose event loop gives no sign of life. The test decides what its thread does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.supervisor = Supervisor({}, 1, EventLog(io.StringIO()), None, 0.0, lambda _: None)
        self.supervisor._hangs_seconds, self.supervisor._owner = 10.0, 1
        self.child = Child(1, pid=999_999_999, address="127.0.0.1:9092")
        self.killed: list[int] = []
        self.cpu = 5.0
        self.waits_for_core = False
        monkeypatch.setattr(os, "kill", lambda pid, _: self.killed.append(pid))
        monkeypatch.setattr(supervisor, "loop_thread", lambda _: (self.waits_for_core, self.cpu))
        self.turns(1, 0.0)
        self.child.silent = 0.0

    def turns(self, count: int, worked: float) -> None:
        """Let `count` seconds pass. In each of them, the thread has a core for `worked` seconds."""
        for _ in range(count):
            self.cpu += worked
            self.supervisor._look_after(self.child, 1.0)


def test_a_node_hangs_when_it_stands_still_or_when_it_works_and_gives_no_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    for waits_for_core, worked in ((False, 0.0), (True, 1.0)):
        watched = Watched(monkeypatch)
        watched.waits_for_core = waits_for_core
        watched.turns(10, worked)
        assert watched.killed == []
        watched.turns(1, worked)
        assert watched.killed == [watched.child.pid]


def test_a_node_that_gets_no_core_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    watched.waits_for_core = True
    watched.turns(99, 0.1)
    assert watched.killed == []
    watched.turns(2, 0.1)
    assert watched.killed == [watched.child.pid], "it had 10 s of a core by then"


def test_a_node_that_begins_may_work_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    watched.child.address = ""
    watched.turns(1000, 0.9)
    assert watched.killed == []
    watched.turns(11, 0.0)
    assert watched.killed == [watched.child.pid]


def test_the_first_thread_of_a_process_is_seen() -> None:
    runs, cpu = loop_thread(os.getpid())
    assert (runs, cpu > 0) == ((True, True) if sys.platform == "linux" else (False, False))
    assert loop_thread(999_999_999) == (False, 0.0)
