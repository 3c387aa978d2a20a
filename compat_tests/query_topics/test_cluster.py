"""The streams driver on a standalone Spark cluster: a master and two workers, all on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.offsets import LATEST, list_offsets
from compat_tests.apache_kafka import free_ports
from compat_tests.broker_process import Barnabas, Server
from compat_tests.crash.segments import records_of
from compat_tests.driver import Record
from compat_tests.kafka_python.driver import KafkaPythonDriver
from compat_tests.tools import ROOT, missing
from compat_tests.waiting import until

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
if reason := missing("java"):
    pytest.skip(reason, allow_module_level=True)

SPARK = Path(pyspark.__file__).parent
SPARK_ENVIRONMENT = {**os.environ, "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1"}
PARTITIONS, EACH = 4, 500
QUERIES = {  # one that is computed by the JVM, and one that needs none
    "computed": "SELECT n * 2 AS n FROM source WHERE n % 5 = 0",
    "chosen": "SELECT n FROM source WHERE n >= 100",
}


class SparkNode(Server):
    """A process of Spark's own cluster manager."""

    main: ClassVar[str]
    says: ClassVar[str]

    def __init__(self, folder: Path, *arguments: str) -> None:
        super().__init__(folder)
        self.arguments = arguments

    def environment(self) -> dict[str, str]:
        return SPARK_ENVIRONMENT

    def command(self) -> list[str]:
        main = f"org.apache.spark.deploy.{self.main}"
        shell = ["sh", "-c", 'exec "$@" 2>&1', "sh"]
        address = ["--host", "127.0.0.1", "--webui-port", "0"]
        return [*shell, str(SPARK / "bin" / "spark-class"), main, *address, *self.arguments]

    def see(self, line: str) -> None:
        self.ready = self.ready or self.says in line

    def errors(self) -> list[str]:
        return []


class Master(SparkNode):
    name, main, says = "Spark's master", "master.Master", "New state: ALIVE"


class Worker(SparkNode):
    name, main, says = "Spark's worker", "worker.Worker", "Successfully registered with master"

    def runs_python(self) -> bool:
        """Whether its executor has had a task of ours."""
        assert self.process
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.Error):  # it has ended meanwhile, or is a zombie
                if "pyspark.daemon" in child.cmdline():
                    return True
        return False


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[Worker]]]:
    """The master's URL, and the workers."""
    (port,) = free_ports(1)
    url = f"spark://127.0.0.1:{port}"
    master = Master(tmp_path / "master", "--port", str(port))
    workers = [
        Worker(tmp_path / f"worker{n}", "--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / f"work{n}"), url)
        for n in range(2)
    ]
    with ExitStack() as ends:
        for node in (master, *workers):
            node.start()
            ends.callback(node.stop)
        yield url, workers


def all_there(cluster: Cluster, topic: str) -> bool:
    keys = [(topic, partition) for partition in range(PARTITIONS)]
    return set(list_offsets(cluster, keys, LATEST).values()) == {EACH}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_queries_run_on_both_workers(cluster: tuple[str, list[Worker]], tmp_path: Path) -> None:
    url, workers = cluster
    broker = Barnabas(tmp_path / "broker", {"barnabas.streams.driver": "none"})
    broker.start()
    settings = [
        "spark.driver.host=127.0.0.1",
        "spark.driver.bindAddress=127.0.0.1",
        # No task begins before both workers are there.
        "spark.scheduler.minRegisteredResourcesRatio=1",
        "spark.scheduler.maxRegisteredResourcesWaitingTime=120s",
    ]
    command = [
        *(str(SPARK / "bin" / "spark-submit"), "--master", url, "--executor-memory", "512m"),
        *(word for setting in settings for word in ("--conf", setting)),
        str(ROOT / "streams" / "query" / "__main__.py"),
        *("--server", broker.address, "--data-dir", str(broker.data_dir)),
    ]
    said = tmp_path / "driver.log"
    with said.open("w") as log:
        environment = {**SPARK_ENVIRONMENT, "PYSPARK_PYTHON": sys.executable}
        driver = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        until(lambda: "streams.ready" in said.read_text() or driver.poll() is not None, "the driver is ready", 120)
        admin = KafkaPythonDriver(broker.address)
        schema = {"barnabas.value.format": "json", "barnabas.value.schema": "n BIGINT"}
        admin.create_topic("source", PARTITIONS, schema)
        for topic, query in QUERIES.items():
            admin.create_topic(topic, -1, {"barnabas.query": query})
        for partition in range(PARTITIONS):
            admin.produce("source", [Record(b'{"n": %d}' % n, partition=partition) for n in range(EACH)])
        with Cluster(broker.address) as told:
            for topic in QUERIES:
                until(partial(all_there, told, topic), f"{topic} is there", 120)
        assert [worker.runs_python() for worker in workers] == [True, True]
    finally:
        driver.terminate()
        driver.wait(60)
        assert broker.stop() == 0
    for partition in range(PARTITIONS):
        found = {
            topic: [json.loads(r.value or b"")["n"] for r in records_of(broker.data_dir, topic, partition, dense=False)]
            for topic in QUERIES
        }
        assert found == {"computed": list(range(0, 2 * EACH, 10)), "chosen": list(range(100, EACH))}
