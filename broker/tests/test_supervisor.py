"""The settings that a supervisor gives its nodes. For its processes, see compat_tests/nodes."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.keys import ConfigError
from barnabas.broker.supervisor import check_ports, shifted


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
    with pytest.raises(ConfigError, match=r"4 nodes need the ports 65533 and up: too few are left"):
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
