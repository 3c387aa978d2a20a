"""Spark's own cluster manager on loopback, and the streams driver on it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import ClassVar

import psutil
import pyspark

from compat_tests.apache_kafka import free_ports
from compat_tests.broker_process import Barnabas, Server
from compat_tests.tools import ROOT
from compat_tests.waiting import until

SPARK = Path(pyspark.__file__).parent
SPARK_ENVIRONMENT = {**os.environ, "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1"}


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
        """Whether its executor has run one of our tasks."""
        assert self.process
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.Error):  # it has ended meanwhile, or is a zombie
                if "barnabas.streams.daemon" in child.cmdline():
                    return True
        return False

    def kill_all(self) -> None:
        """Kill it and its executor, which would end by itself only a little later."""
        assert self.process
        for process in [*psutil.Process(self.process.pid).children(recursive=True), psutil.Process(self.process.pid)]:
            with suppress(psutil.Error):
                process.kill()
        self.process.wait()


@contextmanager
def spark_cluster(folder: Path) -> Iterator[tuple[str, list[Worker]]]:
    """Run a master and two workers; gives the master's URL and the workers."""
    (port,) = free_ports(1)
    url = f"spark://127.0.0.1:{port}"
    master = Master(folder / "master", "--port", str(port))
    workers = [
        Worker(folder / f"worker{n}", "--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work{n}"), url)
        for n in range(2)
    ]
    with ExitStack() as ends:
        for node in (master, *workers):
            node.start()
            ends.callback(node.stop)
        yield url, workers


@contextmanager
def driver_on(url: str, broker: Barnabas) -> Iterator[subprocess.Popen[bytes]]:
    """Run the streams driver by spark-submit, until it is ready; the end of the block stops it."""
    settings = [
        "spark.driver.host=127.0.0.1",
        "spark.driver.bindAddress=127.0.0.1",
        # No task starts before both workers are registered.
        "spark.scheduler.minRegisteredResourcesRatio=1",
        "spark.scheduler.maxRegisteredResourcesWaitingTime=120s",
    ]
    command = [
        *(str(SPARK / "bin" / "spark-submit"), "--master", url, "--executor-memory", "512m"),
        *(word for setting in settings for word in ("--conf", setting)),
        str(ROOT / "streams" / "query" / "__main__.py"),
        *("--server", broker.address, "--data-dir", str(broker.data_dir)),
    ]
    said = broker.folder / "driver.log"
    with said.open("w") as log:
        environment = {**SPARK_ENVIRONMENT, "PYSPARK_PYTHON": sys.executable}
        driver = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        until(lambda: "streams.ready" in said.read_text() or driver.poll() is not None, "the driver is ready", 120)
        yield driver
    finally:
        driver.terminate()
        driver.wait(60)
