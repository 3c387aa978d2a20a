"""Driver, JVM, Python workers and broker are killed many times while query topics run.

A query topic then has the results of a plain evaluation of the query over its source: each record once, in order, at
the offset of its source record.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.client.offsets import LATEST, list_offsets
from compat_tests.broker_process import Barnabas
from compat_tests.crash.segments import dump_with_kafka, records_of, segment_files
from compat_tests.crash.workload import ConfluentWriter, Place
from compat_tests.driver import Driver, Record
from compat_tests.kafka_python.driver import KafkaPythonDriver
from compat_tests.nodes.broker import Nodes
from compat_tests.query_topics.processes import kill as kill_processes
from compat_tests.query_topics.processes import processes
from compat_tests.tools import missing
from compat_tests.waiting import until

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
if reason := missing("java"):
    pytest.skip(reason, allow_module_level=True)

SOURCE, PARTITIONS = "source", 3
SETTINGS = {
    "barnabas.streams.master": "local[2]",
    "barnabas.streams.driver.memory": "512m",
    "barnabas.streams.trigger.ms": "50",
    "log.segment.bytes": "100000",  # less than a tick writes: batches must fit, and kills hit rolls
}
SCHEMA = "p INT, n INT, pad STRING"
INIT = """
def init(spark):
    spark.udf.register("following", lambda n: None if n is None else n + 1, "int")
"""
Plain = Callable[[dict[str, Any]], dict[str, Any] | None]
QUERIES: dict[str, tuple[str, Plain]] = {
    "thirds": ("SELECT p, n FROM source WHERE n % 3 = 0", lambda v: None if v["n"] % 3 else {"p": v["p"], "n": v["n"]}),
    "few": (  # uses a function of the operator's, so that its ticks are Spark jobs
        "SELECT following(n) AS m FROM source WHERE n % 50 = 7",
        lambda v: {"m": v["n"] + 1} if v["n"] % 50 == 7 else None,
    ),
    "later": (  # computes nothing, so that the JVM is not used
        "SELECT n, p AS place FROM source WHERE p >= 1 AND n > 20",
        lambda v: {"n": v["n"], "place": v["p"]} if v["p"] >= 1 and v["n"] > 20 else None,
    ),
    # The driver's JVM evaluates it without a job, as it does "thirds".
    "doubled": ("SELECT n * 2 AS n FROM thirds", lambda v: None if v["n"] % 3 else {"n": v["n"] * 2}),
}
# More records between two kills would only make the test longer.
IN_FLIGHT = 5


class ReadingsWriter(ConfluentWriter):
    """Writes JSON values; one in seventeen is not JSON."""

    IN_FLIGHT = IN_FLIGHT

    def value(self, place: Place) -> bytes:
        partition, number = place
        if number % 17 == 5:
            return b"no reading %d" % number
        return json.dumps({"p": partition, "n": number, "pad": "." * (number % 97)}).encode()


def ends(broker: Barnabas, topic: str) -> int:
    try:
        with Cluster(broker.address) as cluster:
            parts = [(topic, part.partition_index) for part in cluster.metadata([topic])[0].partitions]
            return sum(list_offsets(cluster, parts, LATEST).values())
    except ClientError:
        return -1


def kill(broker: Barnabas, victim: str) -> None:
    if victim == "broker":
        broker.kill()
        broker.start()
        return
    if victim.startswith("node "):
        assert isinstance(broker, Nodes)
        broker.kill_node(int(victim.removeprefix("node ")))
        return
    until(lambda: kill_processes(broker, victim), f"the {victim} runs")


def check(broker: Barnabas) -> int:
    """Compare every query topic with a plain evaluation of its source's records; returns the number of results."""
    count = 0
    for partition in range(PARTITIONS):
        source: list[tuple[int, Any]] = []
        bad = []
        for record in records_of(broker.data_dir, SOURCE, partition):
            try:
                source.append((record.offset, json.loads(record.value or b"")))
            except ValueError:
                bad.append((record.offset, record.value))
        for topic, (_, plain) in QUERIES.items():
            expected = [(offset, made) for offset, value in source if (made := plain(value)) is not None]
            found = records_of(broker.data_dir, topic, partition, dense=False)
            assert [(r.offset, json.loads(r.value or b"")) for r in found] == expected, f"{topic}-{partition}"
            count += len(found)
        for topic in ("thirds", "few", "later"):
            letters = records_of(broker.data_dir, f"{topic}.dead-letter", partition, dense=False)
            assert [(r.offset, r.value) for r in letters] == bad, f"{topic}-{partition}"
    return count


def run(tmp_path: Path, victims: list[str], seed: int, most: int = 400, kind: type[Barnabas] = Barnabas) -> None:
    """Kill the victims, with at most `most` results between two kills."""
    moments = random.Random(seed)
    init = tmp_path / "init.py"
    init.write_text(INIT)
    with kind(tmp_path, {**SETTINGS, "barnabas.streams.init.file": str(init)}) as broker:
        kill_and_compare(broker, victims, moments, most)


def doubled(broker: Barnabas, aim: int) -> bool:
    return ends(broker, "doubled") >= aim


def kill_and_compare(broker: Barnabas, victims: list[str], moments: random.Random, most: int) -> None:
    admin: Driver = KafkaPythonDriver(broker.address)
    admin.create_topic(SOURCE, PARTITIONS, {"barnabas.value.format": "json", "barnabas.value.schema": SCHEMA})
    for topic, (query, _) in QUERIES.items():
        admin.create_topic(topic, -1, {"barnabas.query": query})
    writer = ReadingsWriter("writer", broker.address, SOURCE, PARTITIONS)
    try:
        for number, victim in enumerate(victims):
            aim = ends(broker, "doubled") + moments.randint(50, most)
            until(partial(doubled, broker, aim), f"the queries go on after kill {number}", 120)
            assert broker.process
            with pytest.raises(Exception, match="timed out"):
                broker.process.wait(moments.uniform(0, 0.4))  # any moment of a tick
            kill(broker, victim)
        aim = ends(broker, "doubled") + 100
        until(lambda: ends(broker, "doubled") >= aim, "the queries go on after the last kill", 120)
    finally:
        writer.finish()
    total = ends(broker, SOURCE)
    until(lambda: all(ends(broker, t) == total for t in QUERIES), "the queries come to the end", 240)
    assert not writer.failures
    assert not writer.refused
    assert broker.stop() == 0
    results = check(broker)
    for topic in QUERIES:
        dump_with_kafka([f for p in range(PARTITIONS) for f in segment_files(broker.data_dir, topic, p)], dense=False)
    print(f"{len(victims)} kills, {total} records, {results} results")


@pytest.mark.long
def test_a_kill(tmp_path: Path) -> None:
    run(tmp_path, ["broker"], 1, 100)  # its driver dies with it


@pytest.mark.long
def test_each_node_of_three_is_killed(tmp_path: Path) -> None:
    run(tmp_path, ["node 2", "node 1", "node 3"], 3, 100, Nodes)  # the driver dies with node 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thirty_kills_of_nodes(tmp_path: Path) -> None:
    run(tmp_path, ["node 1", "node 2", "node 3", "driver", "node 2", "node 3"] * 5, 4, kind=Nodes)


@pytest.mark.long
def test_the_drivers_workers_are_killed_over_a_backlog(tmp_path: Path) -> None:
    count = 120_000
    with Barnabas(tmp_path, {**SETTINGS, "log.segment.bytes": "10000000"}) as broker:
        admin: Driver = KafkaPythonDriver(broker.address)
        admin.create_topic(SOURCE, 1, {"barnabas.value.format": "json", "barnabas.value.schema": SCHEMA})
        values = [b'{"p":0,"n":%d,"pad":"%s"}' % (number, b"." * 200) for number in range(count)]
        admin.produce(SOURCE, [Record(value) for value in values])
        admin.create_topic("copied", -1, {"barnabas.query": "SELECT n FROM source"})
        for _ in range(2):
            until(lambda: kill_processes(broker, "crew"), "the driver has workers")
        admin.create_topic("again", -1, {"barnabas.query": "SELECT n FROM source WHERE n >= 0"})
        for topic in ("copied", "again"):
            until(lambda: ends(broker, topic) == count, f"{topic} comes to the end", 120)  # noqa: B023
        assert not processes(broker, "jvm")
        assert broker.stop() == 0
        for topic in ("copied", "again"):
            found = records_of(broker.data_dir, topic, 0)
            assert [(r.offset, r.value) for r in found] == [(n, b'{"n":%d}' % n) for n in range(count)]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fifty_kills(tmp_path: Path) -> None:
    run(tmp_path, ["driver", "worker", "broker", "jvm", "worker"] * 10, 2)
