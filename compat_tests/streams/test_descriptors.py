"""Spark's JVM may open no more files: the stream waits and says why, and nothing is lost or twice."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from compat_tests.broker_process import Barnabas
from compat_tests.kafka_python.driver import KafkaPythonDriver
from compat_tests.query_topics.processes import processes
from compat_tests.streams.support import (
    BASE,
    DEADLINE,
    SENSORS,
    SETTINGS,
    Reading,
    make_stream,
    readings,
    send,
    wait_for_results,
    wait_for_state,
    windows,
)
from compat_tests.tools import missing
from compat_tests.waiting import until

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
if reason := missing("java"):
    pytest.skip(reason, allow_module_level=True)

TEXT = (
    "PARALLELISM 2 AS SELECT _wstart, _wend, device, sum(temp) AS s, count(*) AS c FROM source "
    "PARTITION BY device INTERVAL(10s)"
)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_no_descriptors_under_a_checkpoint(tmp_path: Path) -> None:
    with Barnabas(tmp_path, SETTINGS) as broker:
        broker.expected_errors += ["streams.arranging", "streams.driver.ended"]
        KafkaPythonDriver(broker.address).create_topic("source", 1, SENSORS)
        make_stream(broker, "out", 1, TEXT)
        written = readings(0, 25)
        send(broker, "source", written)
        wait_for_results(broker, "out", 1, 4)
        wait_for_state(broker, "out", "RUNNING")

        (victim,) = processes(broker, "jvm")
        soft, hard = victim.rlimit(psutil.RLIMIT_NOFILE)
        victim.rlimit(psutil.RLIMIT_NOFILE, (victim.num_fds(), hard))
        send(broker, "source", more := readings(25, 45))
        written += more

        def is_told() -> bool:
            """It says that it waits; or the driver has ended, for which another one is started."""
            told = broker.log_file.read_text()
            return "Too many open files" in told or "streams.driver.ended" in told

        until(is_told, "the stream waits, or its driver has ended", DEADLINE)
        if victim.is_running():
            victim.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))
        wait_for_results(broker, "out", 1, 8)
        send(broker, "source", [Reading(BASE + 100_000, "end", 0, 0)])
        expected = windows(written, 10_000, 10_000)
        assert wait_for_results(broker, "out", 1, len(expected)) == expected
        wait_for_state(broker, "out", "RUNNING")
