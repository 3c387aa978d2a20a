"""Names and protocols of listeners, and keys that one of them has."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.keys import ConfigError, ConfigKey
from barnabas.broker.settings.listeners import Protocol, Scoped, parse_protocols, scoped, scoped_name

KEYS = {
    name: ConfigKey(name, "string", None, "", of_listener=True)
    for name in ("ssl.client.auth", "sasl.jaas.config", "connections.max.reauth.ms")
} | {"node.id": ConfigKey("node.id", "int", 1, "")}


def test_a_protocol_names_itself() -> None:
    assert parse_protocols("IN:SASL_SSL, out:ssl") == {
        **{each.value: each for each in Protocol},
        "IN": Protocol.SASL_SSL,
        "OUT": Protocol.SSL,
    }


def test_a_protocol_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="IN:TLS"):
        parse_protocols("IN:TLS")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("listener.name.in.ssl.client.auth", ("IN", "", "ssl.client.auth")),
        ("listener.name.in.side.ssl.client.auth", ("IN.SIDE", "", "ssl.client.auth")),
        ("listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config", ("SASL_SSL", "SCRAM-SHA-256", "sasl.jaas.config")),
        ("listener.name.in.plain.connections.max.reauth.ms", ("IN", "PLAIN", "connections.max.reauth.ms")),
        ("listener.name.in.sasl.jaas.config", ("IN", "", "sasl.jaas.config")),
    ],
)
def test_a_key_of_one_listener(name: str, expected: tuple[str, str, str]) -> None:
    listener, mechanism, key = expected
    assert scoped(name, KEYS) == Scoped(listener, mechanism, KEYS[key])
    assert scoped_name(listener, key, mechanism) == name


@pytest.mark.parametrize(
    "name", ["ssl.client.auth", "listener.name.in.node.id", "listener.name.in.what", "listener.name.ssl.client.auth"]
)
def test_a_key_that_is_not_one_listeners(name: str) -> None:
    assert scoped(name, KEYS) is None


def test_unknown_keys_of_a_listener_are_told() -> None:
    assert BrokerConfig({"listener.name.in.what": "1"}).unknown == ["listener.name.in.what"]
