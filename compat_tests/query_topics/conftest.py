"""One broker with one Spark driver for the query topics of all these files; each test uses topic names of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.broker_process import Barnabas
from compat_tests.conftest import stopped_well
from compat_tests.driver import Driver
from compat_tests.kafka_python.driver import KafkaPythonDriver

SETTINGS = {"barnabas.streams.master": "local[2]", "barnabas.streams.driver.memory": "512m"}
#: A query in an endless loop is stopped soon, and a log is compacted at once.
BUSY = {
    "barnabas.streams.tick.timeout.ms": "5000",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.roll.ms": "3600000",
}
#: Functions that fail, never end or use CPU time, and a setting of the operator's that lets Spark replace variables.
INIT = """
import time

def init(spark):
    for function in (fails, spins, works):
        spark.udf.register(function.__name__, function, "double")
    spark.conf.set("spark.sql.variable.substitute", "true")

def fails(temp):
    if temp == 3:
        raise ValueError("no more")
    return temp

def spins(temp):
    while temp == 3:
        pass
    return temp

def works(temp):
    began = time.process_time()
    while temp == 4 and time.process_time() < began + 1.5:
        pass
    return temp
"""


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    folder = tmp_path_factory.mktemp("broker")
    init = folder / "init.py"
    init.write_text(INIT)
    server = Barnabas(folder, {**SETTINGS, **BUSY, "barnabas.streams.init.file": str(init)})
    server.start()
    yield server
    stopped_well([server])


@pytest.fixture(scope="package")
def admin(broker: Barnabas) -> Driver:
    return KafkaPythonDriver(broker.address)
