"""The first minutes of a tester, a user of SQL and an operator, beside the programs that they know.

    python -m bench.first_minutes [--only tester,sql,operator] [--times 5] [--tests 100] [--json FILE]

All figures are seconds of wall-clock time. Each but the 100 tests is the median of several times.

    tester    From the start of a broker until a client is connected, and until a first record is written and read. Then
              a run of pytest with 100 tests, each of which makes a topic, writes a record and reads it back: with the
              fixtures of barnabas, and with fixtures that start the other brokers in the same way. Apache Kafka is
              started from its jars, as in a container: formatted, and with the options of its own script. kfake is
              franz-go's imitation of Kafka (bench/kfake.go), already built.
    sql       A whole command over 100,000 records of JSON in one topic: the first rows, and an aggregation. DuckDB's
              shell reads the same records from a file, which a first command has to write.
    operator  A whole command against one broker of barnabas: list topics, show a group's lag, show what a reset of the
              group would do. Kafka's tools have the heap of their own script.

Programs that are not installed get no row: java with Kafka's jars (make tools), go, duckdb (pip install duckdb-cli),
kcat.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing import Broker
from barnabas.wire.table import table
from bench.servers import BenchKafka
from compat_tests.java.tools import GROUPS, TOPICS
from compat_tests.tools import KAFKA_JARS, ROOT, missing

RECORDS, GROUP, DEADLINE = 100_000, "billing", 60
KFAKE = "github.com/twmb/franz-go/pkg/kfake@v0.0.0-20260218055430-fc72d8313608"
#: The variable with the path of kfake's program, for the tests' process.
KFAKE_PROGRAM = "BARNABAS_BENCH_KFAKE"
#: Role, what was done, by which program, seconds.
Row = tuple[str, str, str, float]

_OURS = """
import pytest

@pytest.fixture
def place(barnabas_broker, barnabas_topic):
    return barnabas_broker.bootstrap_servers, barnabas_topic
"""
_OTHERS = """
import uuid
import pytest
from bench.first_minutes import BROKERS, admin_of, create

@pytest.fixture(scope="session")
def server():
    with BROKERS[{name!r}]() as address:
        yield address

@pytest.fixture(scope="session")
def admin(server):
    return admin_of(server)

@pytest.fixture
def place(server, admin):
    topic = uuid.uuid4().hex
    create(admin, topic)
    return server, topic
"""
_TESTS = """
import pytest
from bench.first_minutes import write_and_read

@pytest.mark.parametrize("number", range({count}))
def test_orders(place, number):
    write_and_read(*place)
"""


# -- the tester ----------------------------------------------------------------------------------------------------


@contextmanager
def barnabas() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@contextmanager
def apache_kafka() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        server = BenchKafka(Path(folder))
        server.start()
        try:
            yield server.address
        finally:
            server.kill()


@contextmanager
def kfake() -> Iterator[str]:
    process = subprocess.Popen([os.environ[KFAKE_PROGRAM]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.stdin.close()
    process.wait()


BROKERS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "barnabas": barnabas,
    "Apache Kafka": apache_kafka,
    "kfake": kfake,
}


def build_kfake(folder: Path) -> None:
    """Build kfake as a program. The module comes from the proxy of Go modules."""
    shutil.copy(ROOT / "bench" / "kfake.go", folder / "main.go")
    for words in ("mod init kfake", f"get {KFAKE}", "build -o kfake ."):
        subprocess.run(["go", *words.split()], cwd=folder, check=True, capture_output=True)
    os.environ[KFAKE_PROGRAM] = str(folder / "kfake")


def settings(server: str, **more: object) -> dict[str, object]:
    """The settings of a client. No client reports its own metrics: that would take time at its end."""
    return {
        "bootstrap.servers": server,
        "enable.metrics.push": False,
        **{k.replace("_", "."): v for k, v in more.items()},
    }


def admin_of(server: str) -> AdminClient:
    return AdminClient(settings(server))


def create(admin: AdminClient, topic: str) -> None:
    """Create a topic of one partition."""
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE)


def write_and_read(server: str, topic: str) -> None:
    """Write a record and read it."""
    producer = Producer(settings(server, linger_ms=0))
    producer.produce(topic, b"an order")
    assert producer.flush(DEADLINE) == 0
    consumer = Consumer(settings(server, group_id="g"))
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(DEADLINE)
    assert message is not None
    assert message.value() == b"an order"
    consumer.close()


def first_record(name: str) -> tuple[float, float]:
    """Seconds from the start of a broker until a client is connected, and until a record is written and read."""
    began = time.perf_counter()
    with BROKERS[name]() as server:
        create(admin_of(server), "first")
        connected = time.perf_counter() - began
        write_and_read(server, "first")
        return connected, time.perf_counter() - began


def tests_seconds(name: str, count: int) -> float:
    """Seconds of a run of pytest with `count` tests."""
    with tempfile.TemporaryDirectory() as folder:
        fixtures = _OURS if name == "barnabas" else _OTHERS.format(name=name)
        (Path(folder) / "conftest.py").write_text(fixtures)
        (Path(folder) / "test_orders.py").write_text(_TESTS.format(count=count))
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder]
        return seconds_of(words, cwd=folder, PYTHONPATH=str(ROOT))


def tester(times: int, tests: int, folder: Path) -> Iterator[Row]:
    lacking = {"Apache Kafka": missing("java"), "kfake": None if shutil.which("go") else "go is not installed"}
    if not lacking["kfake"]:
        build_kfake(folder)
    for name in BROKERS:
        if lacking.get(name):
            continue
        both = [first_record(name) for _ in range(times)]
        yield "tester", "start, create a topic", name, statistics.median(each[0] for each in both)
        yield "tester", "... and a record is written and read", name, statistics.median(each[1] for each in both)
        yield "tester", f"a run of {tests} tests", name, tests_seconds(name, tests)


# -- the user of SQL -----------------------------------------------------------------------------------------------


def sql(server: str, folder: Path, times: int) -> Iterator[Row]:
    topic = "sensors"
    command = [sys.executable, "-m", "barnabas", "sql", "-b", server]
    columns = "(device STRING, temp DOUBLE, n BIGINT)"
    seconds_of([*command, f"CREATE TOPIC {topic} {columns} PARTITIONS 1"])
    producer = Producer(settings(server, linger_ms=20, queue_buffering_max_messages=RECORDS + 1))
    for number in range(RECORDS):
        producer.produce(topic, json.dumps({"device": f"d{number % 1000}", "temp": number % 400 / 10, "n": number}))
    assert producer.flush(DEADLINE) == 0
    asked = {
        "the first 10 rows": "SELECT * FROM {} LIMIT 10",
        "an aggregation": "SELECT device, avg(temp) AS t FROM {} GROUP BY device ORDER BY device LIMIT 10",
    }
    took = functools.partial(median_of, times)
    for what, query in asked.items():
        yield "sql", what, "barnabas sql", took([*command, query.format(topic)])
    if shutil.which("duckdb") is None:
        return
    for kind in ("json", "parquet"):
        file = folder / f"sensors.{kind}"
        everything = f"SELECT device, temp, n FROM {topic}"
        write = [*command, "--limit", "0", "--format", kind, "--output", str(file), everything]
        yield (
            "sql",
            f"write a file of {kind.upper() if kind == 'json' else 'Parquet'} first",
            "barnabas sql",
            took(write),
        )
        for what, query in asked.items():
            yield "sql", what, f"duckdb, {kind}", took(["duckdb", "-c", query.format(f"'{file}'")])


# -- the operator --------------------------------------------------------------------------------------------------


def operator(server: str, times: int) -> Iterator[Row]:
    admin = admin_of(server)
    for number in range(20):
        create(admin, f"orders-{number}")
    write_and_commit(server, "orders-0")
    took = functools.partial(median_of, times)
    ours = [sys.executable, "-m", "barnabas"]
    groups = {
        "list topics": (["topics", "list"], [TOPICS, "--list"]),
        "lag of a group": (["groups", "describe", GROUP], [GROUPS, "--describe", "--group", GROUP]),
        "what a reset would do": (
            ["groups", "reset", GROUP, "--to", "beginning", "--dry-run"],
            [GROUPS, "--reset-offsets", "--to-earliest", "--all-topics", "--dry-run", "--group", GROUP],
        ),
    }
    for what, (words, kafkas) in groups.items():
        yield "operator", what, "barnabas", took([*ours, *words, "-b", server])
        if missing("java") is None:
            main, *rest = kafkas
            java = ["java", "-Xmx256M", "-Xlog:disable", "-cp", f"{KAFKA_JARS}/*", main]
            yield "operator", what, "Kafka's tools", took([*java, "--bootstrap-server", server, *rest])
    if missing("kcat") is None:
        yield "operator", "list topics", "kcat", took(["kcat", "-b", server, "-L"])


def write_and_commit(server: str, topic: str) -> None:
    """Write 100 records, and commit the position 40 for the group."""
    producer = Producer(settings(server))
    for number in range(100):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(DEADLINE) == 0
    consumer = Consumer(settings(server, group_id=GROUP))
    consumer.commit(offsets=[TopicPartition(topic, 0, 40)], asynchronous=False)
    consumer.close()


# -- measuring -----------------------------------------------------------------------------------------------------


def seconds_of(words: list[str], cwd: str | Path = ROOT, **environment: str) -> float:
    """Seconds that a command takes. It must succeed."""
    began = time.perf_counter()
    env = {**os.environ, **environment}
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True)
    took = time.perf_counter() - began
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return took


def median_of(times: int, words: list[str]) -> float:
    return statistics.median(seconds_of(words) for _ in range(times))


def rows(only: list[str], times: int, tests: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        if "tester" in only:
            yield from tester(times, tests, Path(folder))
        with Broker() as broker:
            if "sql" in only:
                yield from sql(broker.bootstrap_servers, Path(folder), times)
            if "operator" in only:
                yield from operator(broker.bootstrap_servers, times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="tester,sql,operator")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = []
    for row in rows(args.only.split(","), args.times, args.tests):
        found.append(row)
        print(*row[:3], f"{row[3]:.2f} s", sep="  ", flush=True)
    print(table(["role", "what", "with", "seconds"], [[*row[:3], f"{row[3]:.2f}"] for row in found]))
    if args.json is not None:
        args.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
