"""A stream on a standalone Spark cluster, with its state in a folder that both workers share: a worker may die."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.broker_process import Barnabas
from compat_tests.kafka_python.driver import KafkaPythonDriver
from compat_tests.streams.support import SENSORS, Reading, make_stream, send, wait_for_results, windows
from compat_tests.tools import missing

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
if reason := missing("java"):
    pytest.skip(reason, allow_module_level=True)

from compat_tests.query_topics.spark_cluster import driver_on, spark_cluster  # it needs pyspark
from compat_tests.streams.test_kills import MINUTE, PARTITIONS, TEXT, closing, readings


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_worker_that_dies_costs_nothing_but_time(tmp_path: Path) -> None:
    broker = Barnabas(tmp_path / "broker", {"barnabas.streams.driver": "none"})
    with spark_cluster(tmp_path) as (url, workers), broker, driver_on(url, broker):
        KafkaPythonDriver(broker.address).create_topic("source", PARTITIONS, SENSORS)
        make_stream(broker, "out", PARTITIONS, TEXT.format("30s"))
        closed: list[Reading] = []
        begin = 0
        for victim in [None, *workers]:
            if victim is not None:  # windows are open, and one of the two workers has their state
                victim.kill_all()
            closed += readings(begin, 300)
            send(broker, "source", [*readings(begin, 300), *closing(begin + 2000)])
            expected = windows(closed, MINUTE, MINUTE // 2)
            assert wait_for_results(broker, "out", PARTITIONS, len(expected)) == expected
            closed += closing(begin + 2000)
            begin += 4000
            if victim is not None:
                victim.start()
