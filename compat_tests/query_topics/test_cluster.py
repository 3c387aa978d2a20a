"""The streams driver on a standalone Spark cluster: a master and two workers, all on loopback."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.offsets import LATEST, list_offsets
from compat_tests.broker_process import Barnabas
from compat_tests.crash.segments import records_of
from compat_tests.driver import Record
from compat_tests.kafka_python.driver import KafkaPythonDriver
from compat_tests.tools import missing
from compat_tests.waiting import until

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
if reason := missing("java"):
    pytest.skip(reason, allow_module_level=True)

from compat_tests.query_topics.spark_cluster import driver_on, spark_cluster  # it needs pyspark

PARTITIONS, EACH = 4, 500
PAD = b"." * 2000
QUERIES = {  # one query that the JVM computes, and one that needs no JVM
    "computed": "SELECT n * 2 AS n FROM source WHERE n % 5 = 0",
    "chosen": "SELECT n FROM source WHERE n >= 100",
}


def all_there(cluster: Cluster, topic: str) -> bool:
    keys = [(topic, partition) for partition in range(PARTITIONS)]
    return set(list_offsets(cluster, keys, LATEST).values()) == {EACH}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_queries_run_on_both_workers(tmp_path: Path) -> None:
    broker = Barnabas(tmp_path / "broker", {"barnabas.streams.driver": "none"})
    with spark_cluster(tmp_path) as (url, workers), broker, driver_on(url, broker):
        admin = KafkaPythonDriver(broker.address)
        schema = {"barnabas.value.format": "json", "barnabas.value.schema": "n BIGINT"}
        admin.create_topic("source", PARTITIONS, schema)
        for partition in range(PARTITIONS):
            values = [b'{"n": %d, "pad": "%s"}' % (n, PAD) for n in range(EACH)]
            admin.produce("source", [Record(value, partition=partition) for value in values])
        for topic, query in QUERIES.items():  # over a backlog, which is more than the driver reads by itself
            admin.create_topic(topic, -1, {"barnabas.query": query})
        with Cluster(broker.address) as told:
            for topic in QUERIES:
                until(partial(all_there, told, topic), f"{topic} is there", 120)
        assert [worker.runs_python() for worker in workers] == [True, True]
    for partition in range(PARTITIONS):
        found = {
            topic: [json.loads(r.value or b"")["n"] for r in records_of(broker.data_dir, topic, partition, dense=False)]
            for topic in QUERIES
        }
        assert found == {"computed": list(range(0, 2 * EACH, 10)), "chosen": list(range(100, EACH))}
