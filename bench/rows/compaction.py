"""The speed and the cost of a log's compaction, and its effect on a producer."""

from __future__ import annotations

import time
from pathlib import Path

from barnabas.client import admin
from barnabas.client.cluster import Cluster
from bench.client import TIMEOUT_SECONDS, ClientFailed
from bench.create import create
from bench.limits import need_disk
from bench.rows import requests, throughput
from bench.running import Running
from bench.servers import Clock

# Each key is written twice, so that the first half of the records is dead.
KEYS, RECORD = 1_000_000, 1024
SEGMENT = 64 << 20
LOOK_SECONDS = 0.05
TOPIC = "compaction"


def compaction(running: Running) -> dict[str, float]:
    """2 GB of 1 KiB records, half of them dead, in one partition; MB of log read per second, and per CPU second."""
    need_disk(running.data_dir.parent, 2 * KEYS * RECORD * 2)
    _fill(running)
    before = _size(running)
    last = max(int(file.stem) for file in _segments(running))
    quiet, _ = requests.load(running, "quiet")
    with Clock(running.meter) as clock:
        _compact(running)
        _wait(running, last)
    after = _size(running)
    return {
        "MB/s": before / clock.wall / 1e6,
        "MB/CPU s": before / clock.cpu / 1e6,
        "left %": after / before * 100,
        "quiet p99 ms": quiet["p99"],
    }


def compaction_noticed(running: Running) -> dict[str, float]:
    """The latency of a producer that waits for each record, during compaction and at a quiet time."""
    _fill(running)
    last = max(int(file.stem) for file in _segments(running))
    quiet, _ = requests.load(running, "quiet", seconds=5)
    _compact(running)
    _wait_for_a_cleaner(running)
    found, _ = requests.load(running, "meanwhile", seconds=3, settle=0)
    still = _cleaned_upto(running) < last
    _wait(running, last)
    return {
        "quiet p99 ms": quiet["p99"],
        "p99 ms": found["p99"],
        "of quiet x": found["p99"] / quiet["p99"],
        "was still compacting": float(still),
    }


def _fill(running: Running) -> None:
    """Write the records; all segments but the last few percent are closed."""
    create(running.address, TOPIC, 1)
    with Cluster(running.address) as cluster:
        admin.set_topic_config(cluster, TOPIC, {"segment.bytes": str(SEGMENT)})
    words = ["-P", "-b", running.address, "-t", TOPIC, "-K:", "-l", str(_keyed(running.inputs))]
    throughput.kcat(words, throughput.PRODUCE)


def _keyed(folder: Path) -> Path:
    """A file with lines of a key and a value, each key twice."""
    file = folder / "keyed"
    if not file.exists():
        value = "x" * (RECORD - 20)
        with file.open("w") as out:
            for _ in range(2):
                out.writelines(f"key-{number:08}:{value}\n" for number in range(KEYS))
    return file


def _segments(running: Running) -> list[Path]:
    return sorted((running.data_dir / f"{TOPIC}-0").glob("*.log"))


def _size(running: Running) -> int:
    return sum(file.stat().st_size for file in _segments(running))


def _compact(running: Running) -> None:
    """Make the topic a compacted one."""
    with Cluster(running.address) as cluster:
        admin.set_topic_config(cluster, TOPIC, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})


def _cleaned_upto(running: Running) -> int:
    """The offset up to which the log is compacted, from the checkpoint file."""
    try:
        lines = (running.data_dir / "cleaner-offset-checkpoint").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[2]) for line in lines[2:] if line.startswith(f"{TOPIC} 0 ")), 0)


def _wait(running: Running, last: int) -> None:
    """Wait until all segments but the active one are compacted. Raises ClientFailed."""
    until = time.monotonic() + TIMEOUT_SECONDS
    while _cleaned_upto(running) < last:
        if time.monotonic() > until:
            raise ClientFailed(f"{TOPIC} was not compacted in {TIMEOUT_SECONDS:.0f} s")
        time.sleep(LOOK_SECONDS)  # brokers do not report it


def _wait_for_a_cleaner(running: Running) -> None:
    """Wait until the cleaner has begun to write files. Raises ClientFailed."""
    folder = running.data_dir / f"{TOPIC}-0"
    until = time.monotonic() + TIMEOUT_SECONDS
    while not list(folder.glob("*.log.cleaned")):
        if time.monotonic() > until:
            raise ClientFailed(f"{TOPIC} is not compacted")
        time.sleep(LOOK_SECONDS)  # as above
