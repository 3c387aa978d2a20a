"""No room for a stream's state or copies, or no file descriptors: it waits, says why, and its results are complete."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from compat_tests import small_disk
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

TEXT = (
    "PARALLELISM 2 AS SELECT _wstart, _wend, device, sum(temp) AS s, count(*) AS c FROM source "
    "PARTITION BY device INTERVAL(10s)"
)
DISK_MIB = 32


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Two small disks: one for the streams' state, and one for their copies."""
    mounted = []
    try:
        for folder in (tmp_path / "data" / "streams", tmp_path / "copies"):
            if why := small_disk.mount(folder, DISK_MIB):
                pytest.skip(f"no small file system can be mounted: {why}")
            mounted.append(folder)
        yield mounted[0], mounted[1]
    finally:
        for folder in mounted:
            small_disk.unmount(folder)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_full_disk_under_the_state_and_under_its_copies(tmp_path: Path, disks: tuple[Path, Path]) -> None:
    state, copies = disks
    settings = {
        **SETTINGS,
        "barnabas.streams.checkpoint.copies": str(copies),
        "barnabas.streams.checkpoint.copy.interval.ms": "1000",
    }
    with Barnabas(tmp_path, settings) as broker:
        broker.expected_errors += ["stream.failed", "streams.arranging"]
        KafkaPythonDriver(broker.address).create_topic("source", 1, SENSORS)
        make_stream(broker, "out", 1, TEXT)
        written = readings(0, 25)
        send(broker, "source", written)
        wait_for_results(broker, "out", 1, 4)
        until(lambda: status_of(broker, "out")["copied"] is not None, "there is a copy", DEADLINE)

        copied = status_of(broker, "out")["copied"]
        small_disk.fill(copies / "filler")
        send(broker, "source", more := readings(25, 35))
        written += more
        wait_for_results(broker, "out", 1, 6)
        until(lambda: "stream.not_copied" in broker.log_file.read_text(), "it is told that there is no copy", DEADLINE)
        wait_for_state(broker, "out", "RUNNING")
        (copies / "filler").unlink()
        until(lambda: (status_of(broker, "out")["copied"] or 0) > copied, "it is copied again", DEADLINE)

        for lo in (35, 45):
            small_disk.fill(state / "filler")
            send(broker, "source", more := readings(lo, lo + 10))
            written += more
            told = wait_for_state(broker, "out", "RETRYING")["last_error"]
            assert "No space left on device" in told
            if lo == 45:
                broker.kill()
            (state / "filler").unlink()
            if lo == 45:
                broker.start()
            wait_for_results(broker, "out", 1, 8)
        send(broker, "source", [Reading(BASE + 100_000, "end", 0, 0)])
        expected = windows(written, 10_000, 10_000)
        assert wait_for_results(broker, "out", 1, len(expected)) == expected
        wait_for_state(broker, "out", "RUNNING")


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
            """Whether the stream says that it waits, or the driver has ended and a new one is started."""
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
