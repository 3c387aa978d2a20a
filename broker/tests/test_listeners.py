"""Names and protocols of listeners, and settings of a single listener."""

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


def test_a_locked_configuration_of_kafka_is_taken_as_it_is() -> None:
    """All settings that Kafka's documentation uses for TLS, logins and ACLs."""
    config = BrokerConfig(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9094",
            "listeners": "SASL_SSL://:9093,INTERNAL://localhost:9095,CONTROLLER://localhost:9094",
            "advertised.listeners": "SASL_SSL://kafka.example:9093,INTERNAL://localhost:9095",
            "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INTERNAL",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram."
            'ScramLoginModule required username="admin" password="secret";',
            "listener.name.internal.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain."
            'PlainLoginModule required username="admin" password="secret" user_admin="secret";',
            "listener.name.sasl_ssl.ssl.client.auth": "required",
            "listener.name.sasl_ssl.connections.max.reauth.ms": "3600000",
            "ssl.keystore.location": "/etc/kafka/broker.jks",
            "ssl.keystore.password": "secret",
            "ssl.key.password": "secret",
            "ssl.truststore.location": "/etc/kafka/trust.jks",
            "ssl.truststore.password": "secret",
            "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
            "ssl.endpoint.identification.algorithm": "",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": "User:admin;User:CN=broker,O=Example",
            "delegation.token.secret.key": "secret",
            "max.connections.per.ip": "100",
        }
    )
    assert config.unknown == []
    assert [(each.name, each.protocol) for each in config.listeners] == [
        ("SASL_SSL", Protocol.SASL_SSL),
        ("INTERNAL", Protocol.SASL_PLAINTEXT),
    ]
    assert config.of("SASL_SSL", "ssl.client.auth") == "required"
    assert config.of("INTERNAL", "connections.max.reauth.ms", "PLAIN") == 0
    entry = config.jaas_of("INTERNAL", "PLAIN")
    assert entry is not None
    assert entry.options["user_admin"] == "secret"
    assert config.jaas_of("SASL_SSL", "PLAIN") is None
