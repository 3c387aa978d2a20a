"""Clients push their own metrics (KIP-714), as Kafka's own tool configures it, and /metrics shows them."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from compat_tests.broker_process import Barnabas
from compat_tests.java import tools
from compat_tests.tools import missing
from compat_tests.waiting import until

pytestmark = [
    pytest.mark.skipif(missing("java") is not None, reason=missing("java") or ""),
    pytest.mark.one_node("each node has what clients push to it, and it reads that of one"),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    with Barnabas(tmp_path_factory.mktemp("broker"), {"barnabas.http.listen": "127.0.0.1:0"}) as server:
        yield server


def client_metrics(broker: Barnabas, *words: str) -> str:
    done = tools.run(tools.CLIENT_METRICS, "--bootstrap-server", broker.address, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pushed(broker: Barnabas, client_id: str) -> set[str]:
    """The names of the metrics that a client has pushed."""
    found = re.search(r"HTTP is on (\S+)/", broker.log_file.read_text())
    assert found is not None
    with urllib.request.urlopen(f"{found[1]}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    lines = [line for line in text.splitlines() if line.startswith("barnabas_client_metric{")]
    return {re.findall(r'metric="([^"]*)"', line)[0] for line in lines if f'client_id="{client_id}"' in line}


def test_kafkas_tool_makes_shows_and_deletes_a_subscription(broker: Barnabas) -> None:
    wanted = ("--metrics", "org.apache.kafka.producer.", "--interval", "30000", "--match", "client_id=none")
    client_metrics(broker, "--alter", "--name", "shown", *wanted)
    assert "shown" in client_metrics(broker, "--list")
    told = client_metrics(broker, "--describe", "--name", "shown")
    for each in ("interval.ms=30000", "match=client_id=none", "metrics=org.apache.kafka.producer."):
        assert each in told, told
    client_metrics(broker, "--delete", "--name", "shown")
    assert "shown" not in client_metrics(broker, "--list")


def test_a_java_client_and_librdkafka_push(broker: Barnabas) -> None:
    client_metrics(broker, "--alter", "--name", "all", "--metrics", "org.apache.kafka.", "--interval", "200")
    producer = Producer({"bootstrap.servers": broker.address, "client.id": "from-c"})

    def c_pushes() -> bool:
        producer.produce("pushed", b"x")
        producer.flush(10)
        return bool(pushed(broker, "from-c"))

    until(c_pushes, "librdkafka pushes")
    assert any(name.startswith("org.apache.kafka.producer.") for name in pushed(broker, "from-c"))
    command = tools.command(
        *(tools.CONSOLE_PRODUCER, "--bootstrap-server", broker.address, "--topic", "pushed"),
        *("--command-property", "client.id=from-java"),
    )
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        process.stdin.write(b"hello\n")
        process.stdin.flush()
        try:
            until(lambda: bool(pushed(broker, "from-java")), "the Java client pushes")
            names = pushed(broker, "from-java")
        finally:
            process.stdin.close()
    assert any(name.startswith("org.apache.kafka.producer.") for name in names)
