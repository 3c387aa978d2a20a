"""Queries with quiet sources rest; no result and no status shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compat_tests.broker_process import Barnabas
from compat_tests.kafka_python.driver import KafkaPythonDriver
from compat_tests.query_topics.processes import processes
from compat_tests.streams.support import (
    DEADLINE,
    SENSORS,
    SETTINGS,
    SLIDING,
    make_stream,
    readings,
    send,
    status_of,
    wait_for_results,
    wait_for_state,
    windows,
)
from compat_tests.tools import missing
from compat_tests.waiting import until

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
from barnabas.streams.windows.resting import AWAKE

if reason := missing("java"):
    pytest.skip(reason, allow_module_level=True)

NAMES = [f"of-{number}" for number in range(AWAKE + 2)]


def planners(broker: Barnabas) -> int:
    """The number of planners: each running query has one."""
    return len(processes(broker, "planner"))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_query_that_rests_has_no_process_and_goes_on_where_it_was(tmp_path: Path) -> None:
    first, rest, closing = readings(0, 12), readings(12, 30), readings(60, 61)
    with Barnabas(tmp_path, SETTINGS) as broker:
        admin = KafkaPythonDriver(broker.address)
        for name in NAMES:
            admin.create_topic(f"source-{name}", 1, SENSORS)
        for name in NAMES:
            make_stream(broker, name, 1, SLIDING.format(f"`source-{name}`"))
        until(lambda: planners(broker) == AWAKE, "only some are started where nothing has come", DEADLINE)
        wait_for_state(broker, NAMES[-1], "RUNNING")
        for name in NAMES:
            send(broker, f"source-{name}", first)
        for name in NAMES:
            wait_for_state(broker, name, "RUNNING", state_rows=2)
        until(lambda: planners(broker) == AWAKE, "the others rest", DEADLINE)
        rested = [name for found in _rests(broker) for name in found.split(", ")]
        assert len(rested) >= len(NAMES) - AWAKE
        assert {status_of(broker, name)["state"] for name in NAMES} == {"RUNNING"}
        assert {status_of(broker, name)["lag"] for name in NAMES} == {0}
        for name in NAMES:
            send(broker, f"source-{name}", [*rest, *closing])
        expected = windows([*first, *rest], 10_000, 5000)
        for name in NAMES:
            assert wait_for_results(broker, name, 1, len(expected)) == expected
        broker.stop()
        broker.start()  # only one window of each stream is left to close
        for name in NAMES:
            assert wait_for_results(broker, name, 1, len(expected)) == expected
            wait_for_state(broker, name, "RUNNING")
        until(lambda: planners(broker) == AWAKE, "the others are not started", DEADLINE)


def _rests(broker: Barnabas) -> list[str]:
    return re.findall(r"stream\.rests.*?topics=\"?([^\"\n]*)", broker.log_file.read_text())
