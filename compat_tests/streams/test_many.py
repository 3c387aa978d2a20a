"""Many streams on one driver: a stream with an error stops alone, and no more queries run than the operator allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.admin import set_topic_config
from barnabas.client.cluster import Cluster
from compat_tests.broker_process import Barnabas
from compat_tests.driver import Refused
from compat_tests.kafka_python.driver import KafkaPythonDriver
from compat_tests.streams.support import (
    BASE,
    DEADLINE,
    SENSORS,
    SETTINGS,
    SLIDING,
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
if reason := missing("java"):
    pytest.skip(reason, allow_module_level=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_stream_at_fault_goes_alone_with_its_state_and_queries_are_bounded(tmp_path: Path) -> None:
    first = readings(0, 30)
    with Barnabas(tmp_path, {**SETTINGS, "barnabas.streams.max": "2"}) as broker:
        admin = KafkaPythonDriver(broker.address)
        for name in ("source", "another"):
            admin.create_topic(name, 1, SENSORS)
        make_stream(broker, "good", 1, SLIDING.format("source"))
        make_stream(broker, "bad", 1, SLIDING.format("source"))
        send(broker, "source", first[:5])  # their windows are all open
        for name in ("good", "bad"):
            wait_for_state(broker, name, "RUNNING", state_rows=2)
        assert status_of(broker, "good")["query"] == status_of(broker, "bad")["query"]
        with Cluster(broker.address) as cluster:
            set_topic_config(cluster, "bad", {"max.message.bytes": "100"})
        send(broker, "source", [*first[5:], Reading(BASE + 60_000, "end", 0, 0)])
        expected = windows(first, 10_000, 5000)
        assert wait_for_results(broker, "good", 1, len(expected)) == expected
        told = wait_for_state(broker, "bad", "RETRYING")
        assert "MESSAGE_TOO_LARGE" in told["last_error"]
        assert told["query"] != wait_for_state(broker, "good", "RUNNING")["query"]
        assert results(broker, "bad", 1) == []

        with pytest.raises(Refused):
            admin.create_topic("third", 1, {"barnabas.stream": SLIDING.format("another")})
        with Cluster(broker.address) as cluster:
            set_topic_config(cluster, "good", {"barnabas.stream.state": "paused"})
            wait_for_state(broker, "good", "PAUSED")
            set_topic_config(cluster, "bad", {}, unset=["max.message.bytes"])
            assert wait_for_results(broker, "bad", 1, len(expected)) == expected
            until(lambda: status_of(broker, "bad")["last_error"] is None, "it is well again", DEADLINE)
            admin.create_topic("third", 1, {"barnabas.stream": SLIDING.format("another")})
            wait_for_state(broker, "third", "RUNNING")
            set_topic_config(cluster, "good", {"barnabas.stream.state": "running"})
            assert "barnabas.streams.max" in wait_for_state(broker, "good", "WAITING")["last_error"]
            set_topic_config(cluster, "third", {}, unset=["barnabas.stream"])
            wait_for_state(broker, "good", "RUNNING")
