"""Each client family logs in, writes one record and reads it, with the security settings of a test.

A family without a mechanism raises `NotApplicable`. A client that the broker refuses raises `NotLetIn`.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compat_tests.driver import NotApplicable
from compat_tests.java import tools
from compat_tests.kafkajs.driver import environment
from compat_tests.waiting import DEADLINE

SECONDS = 60
JAAS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}


class NotLetIn(Exception):
    """The client could not log in, or gave up trying."""


@dataclass(frozen=True)
class Security:
    """A client's settings. `ca` is a PEM file, `token` a file with a token for OAUTHBEARER."""

    mechanism: str = ""
    user: str = ""
    password: str = ""
    ca: Path | None = None
    #: Whether the broker must refuse the client: kafka-python would otherwise retry for half a minute.
    is_wrong: bool = False
    token: Path | None = None

    @property
    def protocol(self) -> str:
        return ("SASL_" if self.mechanism else "") + ("SSL" if self.ca else "PLAINTEXT")

    def properties(self) -> dict[str, str]:
        """The entries of a `client.properties` of Kafka."""
        found = {"security.protocol": self.protocol}
        if self.mechanism:
            found["sasl.mechanism"] = self.mechanism
            options = f'username="{self.user}" password="{self.password}"' if self.token is None else ""
            found["sasl.jaas.config"] = f"{JAAS[self.mechanism]} required {options};"
        if self.token is not None:
            found["sasl.oauthbearer.token.endpoint.url"] = self.token.as_uri()
            callback = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
            found["sasl.login.callback.handler.class"] = callback
        if self.ca is not None:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        return found

    def write(self, folder: Path) -> Path:
        """Write a `client.properties`."""
        file = folder / f"{self.protocol}-{self.mechanism}-{self.user}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self.properties().items()))
        return file


#: A function that writes one value to an existing topic and returns the value that it reads.
RoundTrip = Callable[[str, Security, str, bytes, Path], bytes]


def confluent(address: str, security: Security, topic: str, value: bytes, folder: Path) -> bytes:
    from confluent_kafka import Consumer, KafkaException, Producer

    def oauth(_: str) -> tuple[str, float]:
        assert security.token is not None
        return security.token.read_text(), time.time() + 3600

    settings: dict[str, Any] = {"bootstrap.servers": address, "security.protocol": security.protocol}
    if security.token is not None:
        settings |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": oauth}
    elif security.mechanism:
        credentials = {"sasl.username": security.user, "sasl.password": security.password}
        settings |= {"sasl.mechanism": security.mechanism, **credentials}
    if security.ca is not None:
        settings["ssl.ca.location"] = str(security.ca)
    failures: list[str] = []

    def on_error(error: Any) -> None:
        if error.name() in ("_AUTHENTICATION", "_SSL"):
            failures.append(str(error))

    delivered: list[Any] = []
    producer = Producer(settings | {"error_cb": on_error})
    producer.produce(topic, value, on_delivery=lambda error, _: delivered.append(error))
    ends = time.monotonic() + SECONDS
    while not delivered and not failures and time.monotonic() < ends:
        producer.poll(0.1)
    if not delivered or delivered[0] is not None:
        producer.purge()
        raise NotLetIn(failures or delivered)
    consumer = Consumer(settings | {"group.id": f"{topic}-confluent", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(SECONDS)
        assert message is not None
        if message.error():
            raise KafkaException(message.error())
        found: bytes = message.value()
        return found
    finally:
        consumer.close()


def _python_settings(address: str, security: Security, provider: object) -> dict[str, Any]:
    """The settings that have the same names in kafka-python and aiokafka."""
    settings = {"bootstrap_servers": address, "security_protocol": security.protocol}
    if security.token is not None:
        return settings | {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provider}
    if not security.mechanism:
        return settings
    names = {"sasl_plain_username": security.user, "sasl_plain_password": security.password}
    return settings | {"sasl_mechanism": security.mechanism, **names}


def kafka_python(address: str, security: Security, topic: str, value: bytes, folder: Path) -> bytes:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            assert security.token is not None
            return security.token.read_text()

    settings: dict[str, Any] = _python_settings(address, security, Provider())
    if security.ca is not None:
        settings["ssl_cafile"] = str(security.ca)
    if security.is_wrong:
        settings["bootstrap_timeout_ms"] = 2000
    try:
        producer = KafkaProducer(**settings)
        producer.send(topic, value).get(timeout=SECONDS)
        producer.close()
    except KafkaError as error:
        raise NotLetIn(error) from None
    consumer = KafkaConsumer(
        topic,
        auto_offset_reset="earliest",
        group_id=f"{topic}-kafka-python",
        consumer_timeout_ms=SECONDS * 1000,
        **settings,
    )
    try:
        found: bytes = next(consumer).value
        return found
    finally:
        consumer.close()


def aiokafka(address: str, security: Security, topic: str, value: bytes, folder: Path) -> bytes:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import KafkaError

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            assert security.token is not None
            return security.token.read_text()

    settings: dict[str, Any] = _python_settings(address, security, Provider())
    if security.ca is not None:
        settings["ssl_context"] = ssl.create_default_context(cafile=str(security.ca))

    async def run() -> bytes:
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
            await producer.send_and_wait(topic, value)
        except KafkaError as error:
            raise NotLetIn(error) from None
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", group_id=f"{topic}-aiokafka", **settings)
        await consumer.start()
        try:
            found: bytes = (await asyncio.wait_for(consumer.getone(), SECONDS)).value
            return found
        finally:
            await consumer.stop()

    return asyncio.run(run())


def kafkajs(address: str, security: Security, topic: str, value: bytes, folder: Path) -> bytes:
    told = {
        "address": address,
        "topic": topic,
        "value": value.decode(),
        "mechanism": security.mechanism.lower(),
        "user": security.user,
        "password": security.password,
        "ca": security.ca.read_text() if security.ca else None,
        "token": security.token.read_text() if security.token else None,
    }
    script = Path(__file__).with_name("round_trip.js")
    done = subprocess.run(
        ["node", str(script), json.dumps(told)], capture_output=True, env=environment(), timeout=DEADLINE, check=False
    )
    if done.returncode:
        raise NotLetIn(done.stderr.decode())
    return done.stdout


def kcat(address: str, security: Security, topic: str, value: bytes, folder: Path) -> bytes:
    if security.token is not None:
        raise NotApplicable("kcat takes tokens from an identity provider only")
    if security.mechanism.startswith("SCRAM") and _librdkafka_of_kcat() < (2, 6, 1):
        raise NotApplicable("librdkafka before 2.6.1 repeats the nonce, which Kafka refuses since 3.7.2")
    settings = {"security.protocol": security.protocol}
    if security.mechanism:
        settings |= {
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.user,
            "sasl.password": security.password,
        }
    if security.ca is not None:
        settings["ssl.ca.location"] = str(security.ca)
    pairs = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    command = ["kcat", "-b", address, "-m", "10", "-t", topic, *pairs]
    done = subprocess.run(
        [*command, "-P", "-X", "message.timeout.ms=10000"],
        input=value,
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    if done.returncode:
        raise NotLetIn(done.stderr.decode())
    read = subprocess.run(
        [*command, "-C", "-o", "beginning", "-c", "1"], capture_output=True, timeout=DEADLINE, check=False
    )
    return read.stdout.rstrip(b"\n")


def _librdkafka_of_kcat() -> tuple[int, ...]:
    told = subprocess.run(["kcat", "-V"], capture_output=True, text=True, timeout=DEADLINE, check=True).stdout
    found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", told)
    return tuple(map(int, found.groups())) if found else (0,)


def java(address: str, security: Security, topic: str, value: bytes, folder: Path) -> bytes:
    file = security.write(folder)
    allowed: tuple[str, ...] = ()
    if security.token is not None:
        allowed = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={security.token.as_uri()}",)
    config = ("--bootstrap-server", address, "--topic", topic)
    done = tools.run(
        tools.CONSOLE_PRODUCER, *config, "--command-config", str(file), lines=value + b"\n", options=allowed
    )
    if done.returncode or "ERROR" in done.stderr or "Exception" in done.stderr:
        raise NotLetIn(done.stderr)
    count = ("--from-beginning", "--max-messages", "1", "--timeout-ms", str(SECONDS * 1000))
    read = tools.run(tools.CONSOLE_CONSUMER, *config, "--command-config", str(file), *count, options=allowed)
    return read.stdout.strip().encode()


#: Each family by name, with the tool that it needs.
FAMILIES: dict[str, tuple[RoundTrip, str]] = {
    "confluent": (confluent, ""),
    "kafka-python": (kafka_python, ""),
    "aiokafka": (aiokafka, ""),
    "kafkajs": (kafkajs, "kafkajs"),
    "kcat": (kcat, "kcat"),
    "java": (java, "java"),
}
