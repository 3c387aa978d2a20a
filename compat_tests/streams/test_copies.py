"""A machine is lost with the state of its streams: on another one, the streams continue from copies of checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from barnabas.client.admin import set_topic_config
from barnabas.client.cluster import Cluster
from compat_tests.broker_process import Barnabas
from compat_tests.kafka_python.driver import KafkaPythonDriver
from compat_tests.streams.support import (
    BASE,
    DEADLINE,
    SENSORS,
    SETTINGS,
    Reading,
    make_stream,
    readings,
    results,
    send,
    status_of,
    wait_for_results,
    wait_for_state,
    windows,
)
from compat_tests.tools import missing
from compat_tests.waiting import until

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
pytest.importorskip("obstore", reason="obstore is not installed: make setup-all")
if reason := missing("java"):
    pytest.skip(reason, allow_module_level=True)

STEP, SLIDE = 10_000, 5000
TEXT = (
    "PARALLELISM 2 AS SELECT _wstart, _wend, device, sum(temp) AS s, count(*) AS c FROM source "
    "PARTITION BY device INTERVAL(10s)"
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_streams_go_on_from_copies_of_their_checkpoints_on_another_machine(tmp_path: Path) -> None:
    settings = {
        **SETTINGS,
        "barnabas.streams.checkpoint.copies": str(tmp_path / "copies"),
        "barnabas.streams.checkpoint.copy.interval.ms": "3600000",  # one copy at the beginning, and no more
    }
    written = readings(0, 12)
    with Barnabas(tmp_path / "one", settings) as broker:
        KafkaPythonDriver(broker.address).create_topic("source", 1, SENSORS)
        make_stream(broker, "plain", 1, TEXT)
        make_stream(broker, "sliding", 1, f"{TEXT} SLIDING(5s)")
        make_stream(broker, "resting", 1, TEXT)
        send(broker, "source", written)
        wait_for_results(broker, "resting", 1, 2)
        until(lambda: status_of(broker, "plain").get("copied") is not None, "there is a copy", DEADLINE)
        with Cluster(broker.address) as cluster:
            set_topic_config(cluster, "resting", {"barnabas.stream.state": "paused"})
        wait_for_state(broker, "resting", "PAUSED")
        for hi in (22, 32, 42):  # at least one batch for each, after the copy
            send(broker, "source", readings(hi - 10, hi))
            written += readings(hi - 10, hi)
            wait_for_results(broker, "plain", 1, hi // 10 * 2)
        before = results(broker, "sliding", 1)
        queries = {status_of(broker, name)["query"] for name in ("plain", "sliding", "resting")}
        assert len(queries) >= 2, "the one that rested left its query; the others share one if that had not started"
        assert {path.parent.name[:8] for path in (broker.data_dir / "streams").glob("*/checkpoint")} == queries
        broker.kill()
    shutil.copytree(broker.data_dir, tmp_path / "two" / "data", ignore=shutil.ignore_patterns("streams"))

    with Barnabas(tmp_path / "two", settings) as broker:
        send(broker, "source", [*readings(42, 50), Reading(BASE + 60_000, "end", 0, 0)])
        written += readings(42, 50)
        with Cluster(broker.address) as cluster:
            set_topic_config(cluster, "resting", {"barnabas.stream.state": "running"})
        for name, step in (("plain", STEP), ("sliding", SLIDE), ("resting", STEP)):
            expected = windows(written, STEP, step)
            assert wait_for_results(broker, name, 1, len(expected)) == expected, name
        assert results(broker, "sliding", 1)[: len(before)] == before
        said = broker.log_file.read_text()
        assert said.count("stream.restored") == len(queries)
        assert said.count("stream.batches_again") >= 1
