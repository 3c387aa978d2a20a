"""Driver, JVM, workers and broker are killed: two streams that share a query have the results of a quiet run."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from compat_tests.broker_process import Barnabas
from compat_tests.driver import Driver
from compat_tests.kafka_python.driver import KafkaPythonDriver
from compat_tests.nodes.broker import Nodes
from compat_tests.query_topics.processes import kill as kill_processes
from compat_tests.streams.support import (
    BASE,
    SENSORS,
    SETTINGS,
    Reading,
    in_order,
    make_stream,
    records,
    results,
    send,
    status_of,
    text,
    wait_for_results,
    wait_for_state,
    windows,
)
from compat_tests.tools import ROOT, missing
from compat_tests.waiting import until

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
if reason := missing("java"):
    pytest.skip(reason, allow_module_level=True)

PARTITIONS = 2
MINUTE = 60_000
#: The watermark allows for partitions that are far apart when a batch is cut: each record is one second of event time.
TEXT = (
    "PARALLELISM 2 WATERMARK 10m FILL_HISTORY 1 "
    "AS SELECT _wstart, _wend, device, sum(temp) AS s, count(*) AS c FROM source "
    "PARTITION BY device INTERVAL(1m) SLIDING({})"
)


def closing(second: int) -> list[Reading]:
    return [Reading(BASE + 1000 * second, "end", 0, p) for p in range(PARTITIONS)]


def readings(first: int, count: int) -> list[Reading]:
    return [Reading(BASE + 1000 * n, "abc"[n % 3], n, n % PARTITIONS) for n in range(first, first + count)]


def make(broker: Barnabas) -> None:
    admin: Driver = KafkaPythonDriver(broker.address)
    admin.create_topic("source", PARTITIONS, SENSORS)
    make_stream(broker, "out", PARTITIONS, TEXT.format("30s"))
    make_stream(broker, "other", 1, TEXT.format("1m"))
    wait_for_state(broker, "other", "RUNNING")
    assert status_of(broker, "other")["query"] == status_of(broker, "out")["query"]


def wait_for_other(broker: Barnabas, written: list[Reading]) -> None:
    """Wait until the other stream has its results, too, each once."""
    expected = windows(written, MINUTE, MINUTE)
    assert wait_for_results(broker, "other", 1, len(expected)) == expected


@contextlib.contextmanager
def driver(broker: Barnabas, place: str = "", number: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """A driver run by hand, with all its processes ended at the end."""
    script = Path(__file__).with_name("driver_that_dies.py")
    options = ["--server", broker.address, "--master", "local[2]", "--driver-memory", "512m", "--trigger-ms", "50"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open(broker.folder / "driver.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(script), place, str(number), *options],
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(120)


@pytest.mark.slow
def test_a_driver_that_dies_between_two_writes_of_a_batch(tmp_path: Path) -> None:
    """No result is lost or doubled, whichever write was the last."""
    everything = readings(0, 300)
    expected = windows(everything, MINUTE, MINUTE // 2)
    with Barnabas(tmp_path, {**SETTINGS, "barnabas.streams.driver": "none"}) as broker:
        with driver(broker, "rows", 2) as process:  # in the first batch with results
            make(broker)
            send(broker, "source", [*everything, *closing(2000)])
            process.wait(180)
        assert results(broker, "out", PARTITIONS) == []
        with driver(broker, "committed", 1) as process:
            process.wait(180)
        found = wait_for_results(broker, "out", PARTITIONS, len(expected))
        assert found == expected
        assert len(records(broker, "out", PARTITIONS, "read_uncommitted")) == 2 * len(expected)
        wait_for_other(broker, everything)
        more = readings(2001, 60)
        send(broker, "source", [*more, *closing(4000)])
        with driver(broker):
            expected = windows([*everything, *closing(2000), *more], MINUTE, MINUTE // 2)
            assert wait_for_results(broker, "out", PARTITIONS, len(expected)) == expected
            wait_for_other(broker, [*everything, *closing(2000), *more])


EVENTS = (
    "WATERMARK 10s FILL_HISTORY 1 AS SELECT _wstart, _wend, device, sum(temp) AS s, count(*) AS c FROM source "
    "PARTITION BY device EVENT_WINDOW(START WITH temp % 7 < 3 END WITH temp % 5 = 0)"
)


def events(written: list[Reading]) -> list[dict[str, object]]:
    """The expected results of these windows, by a plain evaluation."""
    open_of: dict[str, list[Reading]] = {}
    found: list[list[Reading]] = []
    for reading in sorted(written):
        rows = open_of.setdefault(reading.device, [])
        if rows or reading.temp % 7 < 3:
            rows.append(reading)
        if rows and reading.temp % 5 == 0:
            found.append(open_of.pop(reading.device))
    return in_order(
        {
            "_wstart": text(rows[0].ts),
            "_wend": text(rows[-1].ts),
            "device": rows[0].device,
            "s": sum(row.temp for row in rows),
            "c": len(rows),
        }
        for rows in found
    )


FILLED = (
    "WATERMARK 10s FILL_HISTORY 1 AS SELECT _wstart, _wend, device, sum(temp) AS s, count(*) AS c FROM source "
    "PARTITION BY device INTERVAL(1s) FILL(LINEAR)"
)


def filled(written: list[Reading]) -> list[dict[str, object]]:
    """The expected results, by a plain evaluation: each device has a record every third second, the rest is filled."""
    values: dict[tuple[str, int], float] = {}
    for device in {reading.device for reading in written}:
        mine = sorted(reading for reading in written if reading.device == device)
        values |= {(device, reading.ts): reading.temp for reading in mine}
        for one, other in pairwise(mine):
            seconds = (other.ts - one.ts) // 1000
            for second in range(1, seconds):
                share = second / seconds
                values[device, one.ts + 1000 * second] = one.temp + (other.temp - one.temp) * share
    return in_order(
        {"_wstart": text(ts), "_wend": text(ts + 1000), "device": device, "s": temp, "c": 1}
        for (device, ts), temp in values.items()
    )


JOINED = (
    "PARALLELISM 2 WATERMARK 30s FILL_HISTORY 1 "
    "AS SELECT _wstart, _wend, s.device, sum(o.temp) AS s, count(*) AS c FROM source s "
    "JOIN other_source o WITHIN 5s ON s.device = o.device PARTITION BY s.device INTERVAL(10s)"
)


def joined(written: list[Reading]) -> list[dict[str, object]]:
    """The expected results, by a plain evaluation: both topics have the same records."""
    pairs = [
        Reading(one.ts, one.device, other.temp, 0)
        for number, one in enumerate(written)
        for other in written[max(number - 5, 0) : number + 6]
        if one.device == other.device and abs(one.ts - other.ts) <= 5000
    ]
    return windows(pairs, 10_000, 10_000)


def send_both(broker: Barnabas, written: list[Reading]) -> None:
    """Write the records to both topics in turn, so that neither gets far ahead of the other."""
    parts = iter(written)
    while few := list(islice(parts, 8)):
        for topic in ("source", "other_source"):
            send(broker, topic, few)


def die_at_each_place(
    broker: Barnabas, stream: str, everything: list[Reading], send: Callable[[Barnabas, list[Reading]], None]
) -> None:
    """Make a stream over topics of one partition. The driver dies in each third of the records."""
    admin: Driver = KafkaPythonDriver(broker.address)
    for topic in ("source", "other_source"):
        admin.create_topic(topic, 1, SENSORS)
    third = len(everything) // 3
    for number, place in enumerate(("rows", "number", "committed")):
        with driver(broker, place, 2) as process:
            if not number:
                make_stream(broker, "out", PARTITIONS, stream)
            send(broker, everything[number * third : (number + 1) * third])
            process.wait(180)
    send(broker, everything[3 * third :])


def send_one(broker: Barnabas, written: list[Reading]) -> None:
    """Write the records to the one topic."""
    send(broker, "source", written)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stream", "plain"),
    [(EVENTS, events), (FILLED, filled), (JOINED, joined)],
    ids=["events", "filled", "joined"],
)
def test_a_driver_that_dies_with_an_operator_that_has_state(
    tmp_path: Path, stream: str, plain: Callable[[list[Reading]], list[dict[str, object]]]
) -> None:
    """Waiting records, open windows and last windows are restored, and no result comes twice."""
    everything = [reading._replace(partition=0) for reading in readings(0, 1000)]
    everything.append(Reading(BASE + 10**7, "end", 3, 0))
    with Barnabas(tmp_path, {**SETTINGS, "barnabas.streams.driver": "none"}) as broker:
        die_at_each_place(broker, stream, everything, send_both if plain is joined else send_one)
        with driver(broker):
            expected = plain(everything if plain is events else everything[:-1])
            assert wait_for_results(broker, "out", PARTITIONS, len(expected)) == expected
            assert len(expected) > 50


AGAIN = (
    "IGNORE EXPIRED 0 WATERMARK 10s FILL_HISTORY 1 AS SELECT _wstart, _wend, device, sum(temp) AS s, count(*) AS c "
    "FROM source PARTITION BY device INTERVAL(10s)"
)


@pytest.mark.slow
def test_a_driver_that_dies_with_windows_that_are_calculated_again(tmp_path: Path) -> None:
    """The last result of each window covers all its records, and the number of a window's records only grows."""
    everything = [
        Reading(BASE + 1000 * n - (60_000 * (n % 7) if n % 5 == 4 else 0), "ab"[n % 2], n, 0) for n in range(900)
    ]
    everything.append(Reading(BASE + 10**7, "end", 3, 0))
    expected = windows(everything[:-1], 10_000, 10_000)
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def are_all_in() -> bool:
        found.clear()
        for each in results(broker, "out", PARTITIONS):
            found.setdefault((each["_wstart"], each["device"]), []).append(each)
        return in_order(values[-1] for values in found.values()) == expected

    with Barnabas(tmp_path, {**SETTINGS, "barnabas.streams.driver": "none"}) as broker:
        die_at_each_place(broker, AGAIN, everything, send_one)
        with driver(broker):
            until(are_all_in, "the last results are those of all records", 240)
    counts = [[value["c"] for value in values] for values in found.values()]
    assert any(len(each) > 1 for each in counts), "some came again"
    assert all(one < other for each in counts for one, other in pairwise(each))


@pytest.mark.slow
def test_a_driver_that_dies_with_windows_by_the_clock(tmp_path: Path) -> None:
    """Each record is in one period, and each period has one result, though batches were repeated."""
    everything = [reading._replace(partition=0) for reading in readings(0, 1000)]
    counted: list[dict[str, Any]] = []

    def are_all_in() -> bool:
        counted[:] = results(broker, "out", PARTITIONS)
        return sum(int(each["c"]) for each in counted) >= len(everything)

    with Barnabas(tmp_path, {**SETTINGS, "barnabas.streams.driver": "none"}) as broker:
        die_at_each_place(
            broker, "SELECT _wstart, count(*) AS c, sum(temp) AS s FROM source PERIOD(1s)", everything, send_one
        )
        with driver(broker):
            until(are_all_in, "all records are in a period", 240)
    assert sum(each["c"] for each in counted) == len(everything)
    assert sum(each["s"] for each in counted) == sum(reading.temp for reading in everything)
    assert len({each["_wstart"] for each in counted}) == len(counted)


class Writer:
    """Writes a record for each second of event time, through all kills, until `finish`."""

    def __init__(self, broker: Barnabas) -> None:
        self.written: list[Reading] = []
        self._ends = threading.Event()
        settings = {"bootstrap.servers": broker.address, "enable.idempotence": True, "message.timeout.ms": 300_000}
        self._producer = Producer(settings)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ends.wait(0.005):
            for reading in readings(number, 1):
                value = json.dumps({"device": reading.device, "temp": reading.temp}).encode()
                self._producer.produce("source", value, partition=reading.partition, timestamp=reading.ts)
                self.written.append(reading)
            number += 1
            self._producer.poll(0)

    def finish(self) -> list[Reading]:
        """Stop; returns all records that it has written, which are in the topic."""
        self._ends.set()
        self._thread.join(120)
        assert self._producer.flush(120) == 0
        return self.written


def has_more(broker: Barnabas, aim: int) -> bool:
    return len(results(broker, "out", PARTITIONS)) >= aim


def kill(broker: Barnabas, victim: str) -> None:
    if victim == "broker":
        broker.kill()
        broker.start()
        return
    if victim.startswith("node "):
        assert isinstance(broker, Nodes)
        broker.kill_node(int(victim.removeprefix("node ")))
        return
    until(lambda: kill_processes(broker, victim), f"the {victim} runs", 120)


def run(tmp_path: Path, victims: list[str], seed: int, kind: type[Barnabas] = Barnabas) -> None:
    moments = random.Random(seed)
    with kind(tmp_path, {**SETTINGS, "barnabas.streams.trigger.ms": "50"}) as broker:
        make(broker)
        writer = Writer(broker)
        try:
            for number, victim in enumerate(victims):
                aim = len(results(broker, "out", PARTITIONS)) + moments.randint(1, 20)
                until(partial(has_more, broker, aim), f"the stream goes on after kill {number}", 240)
                assert broker.process
                with pytest.raises(subprocess.TimeoutExpired):
                    broker.process.wait(moments.uniform(0, 1))  # any moment of a batch
                kill(broker, victim)
        finally:
            written = writer.finish()
        send(broker, "source", closing(10**6))
        expected = windows(written, MINUTE, MINUTE // 2)
        found = wait_for_results(broker, "out", PARTITIONS, len(expected))
        assert found == expected
        assert in_order(results(broker, "out", PARTITIONS)) == expected
        wait_for_other(broker, written)
        print(f"{len(victims)} kills, {len(written)} records, {len(expected)} results")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_kills(tmp_path: Path) -> None:
    run(tmp_path, ["driver", "broker"], 1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_each_node_of_three_is_killed(tmp_path: Path) -> None:
    run(tmp_path, ["node 2", "node 1", "node 3"], 3, Nodes)  # the driver dies with node 1


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_fifty_kills(tmp_path: Path) -> None:
    run(tmp_path, ["driver", "worker", "broker", "jvm", "worker"] * 10, 2)
