"""The current code opens the data directory of each release, finds all of its content, and continues it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from barnabas.client.cluster import Cluster
from barnabas.client.offsets import LATEST, list_offsets
from compat_tests.broker_process import Barnabas
from compat_tests.streams.support import BASE, Reading, results, send, windows
from compat_tests.tools import missing
from compat_tests.upgrade.sample import FIRST, OPEN_TO_ALL, SAMPLES, STATE
from compat_tests.upgrade.state import records, state
from compat_tests.waiting import until

RELEASES = sorted(path.name.removesuffix(".tar.xz") for path in SAMPLES.glob("*.tar.xz"))


def unpacked(release: str, folder: Path) -> dict[str, Any]:
    """Unpack the data directory of a release into `folder`; returns its content as clients saw it then."""
    with tarfile.open(SAMPLES / f"{release}.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    found: dict[str, Any] = json.loads((folder / STATE).read_text())
    return found


def test_there_is_a_sample() -> None:
    assert "0.1.0" in RELEASES


@pytest.mark.parametrize("was_killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_has_left_is_all_there(release: str, was_killed: bool, tmp_path: Path) -> None:
    """Without the mark of a clean stop, recovery also reads that release's logs."""
    then = unpacked(release, tmp_path)
    if was_killed:
        (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
    with Barnabas(tmp_path, {**OPEN_TO_ALL, "barnabas.streams.driver": "none"}) as broker:
        # The open transaction has exceeded its timeout: the broker aborts it.
        until(lambda: _is_decided(broker), "the open transaction is aborted", 60)
        now = state(broker.address)
        _without_the_abort(then, now)
        assert now == then
        producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "left open"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("moved", b"goes on", partition=0)
        producer.commit_transaction(60)
        assert records(broker.address, "moved", 0)[-1][3] == "Z29lcyBvbg=="
        assert broker.stop() == 0


def _is_decided(broker: Barnabas) -> bool:
    """Whether read_committed consumers can read the topic to its end."""
    with Cluster(broker.address) as cluster:
        ends = [list_offsets(cluster, [("moved", 0)], LATEST, isolation=each) for each in (0, 1)]
    return ends[0] == ends[1]


def _without_the_abort(then: dict[str, Any], now: dict[str, Any]) -> None:
    """Allow for the abort marker: the log has one record more, and consumers can read to its end."""
    begin, _, end = then["topics"]["moved"]["offsets"][0]
    assert now["topics"]["moved"]["offsets"][0] == [begin, end + 1, end + 1]
    then["topics"]["moved"]["offsets"] = now["topics"]["moved"]["offsets"]


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASES)
def test_its_queries_go_on_where_they_were(release: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
    if reason := missing("java"):
        pytest.skip(reason)
    unpacked(release, tmp_path)
    with Barnabas(tmp_path, OPEN_TO_ALL) as broker:
        more = [Reading(BASE + 1000 * n, "ab"[n % 2], n, 0) for n in range(15, 25)]
        send(broker, "readings", more)
        wanted = windows([*FIRST, *more][:20], 10_000, 10_000)
        until(lambda: len(results(broker, "averages", 1)) >= len(wanted), "the open window closes", 240)
        shown = sorted((row["_wstart"], row["device"], row["s"], row["c"]) for row in results(broker, "averages", 1))
        assert shown == sorted((row["_wstart"], row["device"], row["s"], row["c"]) for row in wanted)
        until(lambda: len(results(broker, "hot", 1)) >= 17, "the query topic has the new records", 240)
        assert [row["temp"] for row in results(broker, "hot", 1)] == [float(n) for n in range(8, 25)]
