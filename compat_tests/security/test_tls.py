"""Real clients over TLS, each with a certificate of its own."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from compat_tests.broker_process import Server
from compat_tests.conftest import NewServer
from compat_tests.java.tools import CONFIGS, CONSOLE_CONSUMER, CONSOLE_PRODUCER, run
from compat_tests.security.certificates import Authority, has_keytool
from compat_tests.tools import missing
from compat_tests.waiting import DEADLINE, until

COUNT = 200
PASSWORD = "pass word"


@dataclass(frozen=True)
class Files:
    """The certificates and settings of brokers and clients."""

    folder: Path
    ca: Authority
    trust: str
    alice: str
    settings: dict[str, str]

    def store(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder, ca = tmp_path_factory.mktemp("certificates"), Authority()
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": ca.issue(kind="rsa2048").pkcs12(folder / "broker.p12", PASSWORD),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca.trust_pem(folder / "ca.pem"),
        "ssl.client.auth": "required",
    }
    alice = ca.issue("alice")
    alice.pkcs12(folder / "alice.p12", PASSWORD)
    return Files(folder, ca, str(folder / "ca.pem"), alice.pem(folder / "alice.pem"), settings)


@pytest.fixture(scope="module")
def server(files: Files, new_server: NewServer) -> Server:
    return new_server(files.settings)


def rdkafka(server: Server, files: Files) -> dict[str, Any]:
    certificate = {"ssl.certificate.location": files.alice, "ssl.key.location": files.alice}
    return {
        "bootstrap.servers": server.address,
        "security.protocol": "ssl",
        "ssl.ca.location": files.trust,
        **certificate,
    }


def confluent(server: Server, files: Files, topic: str, values: list[bytes]) -> list[bytes]:
    settings = rdkafka(server, files)
    producer = Producer(settings)
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(DEADLINE) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < len(values):
        message = consumer.poll(DEADLINE)
        assert message is not None
        assert message.error() is None
        found.append(message.value() or b"")
    consumer.close()
    return found


def kafka_python(server: Server, files: Files, topic: str, values: list[bytes]) -> list[bytes]:
    settings = {
        "bootstrap_servers": server.address,
        "security_protocol": "SSL",
        "ssl_cafile": files.trust,
        "ssl_certfile": files.alice,
        "ssl_keyfile": files.alice,
    }
    producer = KafkaProducer(**settings)
    for value in values:
        producer.send(topic, value)
    producer.close()
    consumer = KafkaConsumer(topic, **settings, group_id=topic, auto_offset_reset="earliest")
    found = [next(consumer).value for _ in values]
    consumer.close()
    return found


def aiokafka(server: Server, files: Files, topic: str, values: list[bytes]) -> list[bytes]:
    context = ssl.create_default_context(cafile=files.trust)
    context.load_cert_chain(files.alice)

    async def both() -> list[bytes]:
        settings = {"bootstrap_servers": server.address, "security_protocol": "SSL", "ssl_context": context}
        async with AIOKafkaProducer(**settings) as producer:
            for value in values:
                await producer.send(topic, value)
        async with AIOKafkaConsumer(topic, **settings, group_id=topic, auto_offset_reset="earliest") as consumer:
            return [(await consumer.getone()).value for _ in values]

    return asyncio.run(asyncio.wait_for(both(), DEADLINE))


def kcat(server: Server, files: Files, topic: str, values: list[bytes]) -> list[bytes]:
    options = [word for key, value in rdkafka(server, files).items() for word in ("-X", f"{key}={value}")]
    sent = subprocess.run(["kcat", "-P", "-t", topic, *options], input=b"\n".join(values), timeout=DEADLINE)
    assert sent.returncode == 0
    words = ["kcat", "-q", "-C", "-e", "-o", "beginning", "-t", topic, *options]
    return subprocess.run(words, capture_output=True, timeout=DEADLINE, check=True).stdout.splitlines()


def java(kind: str) -> Callable[[Server, Files, str, list[bytes]], list[bytes]]:
    def both(server: Server, files: Files, topic: str, values: list[bytes]) -> list[bytes]:
        file = java_settings(files, kind)
        produce = ("--bootstrap-server", server.address, "--topic", topic, "--command-config", file)
        sent = run(CONSOLE_PRODUCER, *produce, lines=b"\n".join(values) + b"\n")
        assert sent.returncode == 0, sent.stderr
        rest = ("--from-beginning", "--max-messages", str(len(values)), "--command-config", file)
        got = run(CONSOLE_CONSUMER, "--bootstrap-server", server.address, "--topic", topic, *rest)
        return got.stdout.encode().splitlines()

    return both


def java_settings(files: Files, kind: str) -> str:
    """A file with a client's settings, with key stores of this kind."""
    own, trust = files.folder / f"alice.{kind}", files.folder / f"trust.{kind}"
    if not trust.exists():
        files.ca.trust_store(trust, PASSWORD, kind)
        if kind == "JKS":
            files.ca.issue("alice").jks(own, PASSWORD)
        else:
            own.write_bytes((files.folder / "alice.p12").read_bytes())
    lines = ["security.protocol=SSL"]
    for store, path in (("keystore", own), ("truststore", trust)):
        lines += [f"ssl.{store}.type={kind}", f"ssl.{store}.location={path}", f"ssl.{store}.password={PASSWORD}"]
    file = files.folder / f"client-{kind}.properties"
    file.write_text("\n".join(lines))
    return str(file)


CLIENTS = {
    "confluent": (None, confluent),
    "kafka-python": (None, kafka_python),
    "aiokafka": (None, aiokafka),
    "kcat": ("kcat", kcat),
    "java-PKCS12": ("java", java("PKCS12")),
    "java-JKS": ("java", java("JKS")),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_produces_and_consumes(server: Server, files: Files, name: str) -> None:
    tool, both = CLIENTS[name]
    if tool and (reason := missing(tool)):
        pytest.skip(reason)
    if tool == "java" and not has_keytool():
        pytest.skip("keytool is not installed")
    values = [b"%d %s" % (n, b"x" * (n * 37 % 5000)) for n in range(COUNT)]
    assert sorted(both(server, files, f"of-{name}", values)) == sorted(values)


def test_a_client_without_a_certificate_is_turned_away(server: Server, files: Files) -> None:
    settings = {"bootstrap.servers": server.address, "security.protocol": "ssl", "ssl.ca.location": files.trust}
    admin = AdminClient({**settings, "log_level": 0})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    until(lambda: "ssl.client.auth=required" in server.log_tail(), "the log says why", DEADLINE)


def test_javas_tool_renews_a_key_store(files: Files, new_server: NewServer) -> None:
    if reason := missing("java"):
        pytest.skip(reason)
    if not has_keytool():
        pytest.skip("keytool is not installed")
    server = new_server({**files.settings, "node.id": "7"})
    renewed, other = files.ca.issue(), files.ca.issue("another")
    prefix = "listener.name.ssl.ssl.keystore"

    def alter(store: str) -> subprocess.CompletedProcess[str]:
        config = f"{prefix}.location={store},{prefix}.password={PASSWORD},{prefix}.type=PKCS12"
        of = ("--entity-type", "brokers", "--entity-name", "7", "--command-config", java_settings(files, "PKCS12"))
        return run(CONFIGS, "--bootstrap-server", server.address, "--alter", *of, "--add-config", config)

    refused = alter(other.pkcs12(files.folder / "other.p12", PASSWORD))
    assert "ssl.allow.dn.changes" in refused.stdout + refused.stderr
    taken = alter(renewed.pkcs12(files.folder / "renewed.p12", PASSWORD))
    assert taken.returncode == 0, taken.stdout + taken.stderr
    context = ssl.create_default_context(cafile=files.trust)
    context.load_cert_chain(files.alice)
    plain = socket.create_connection(("127.0.0.1", server.port), DEADLINE)
    with context.wrap_socket(plain, server_hostname="localhost") as wire:
        shown: Any = wire.getpeercert()
    assert int(shown["serialNumber"], 16) == renewed.certificate.serial_number
