"""Throughput with kcat, a client written in C: produce, consume, and consume from a cold page cache.

Each row has one pass of full size that is not measured, to warm the peer's JIT.
"""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

from bench import page_cache
from bench.client import TIMEOUT_SECONDS, ClientFailed
from bench.create import create, records
from bench.limits import need_disk
from bench.running import Running
from bench.servers import Clock

KCAT = ["kcat", "-q", "-X", "batch.size=1000000", "-X", "batch.num.messages=100000"]
PRODUCE = ["acks=all", "linger.ms=5", "queue.buffering.max.messages=1000000", "queue.buffering.max.kbytes=262144"]
CONSUME = ["fetch.message.max.bytes=8388608", "queued.max.messages.kbytes=262144", "check.crcs=false"]
SIZE_1K, COUNT_1K = 1024, 500_000
SIZE_100, COUNT_100 = 100, 3_000_000
TOPIC_1K = "produce-1k"


def kcat(words: list[str], settings: list[str]) -> None:
    """Run kcat. Raises ClientFailed."""
    options = [word for setting in settings for word in ("-X", setting)]
    try:
        done = subprocess.run([*KCAT, *words, *options], capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ClientFailed(f"kcat did not end in {error.timeout:.0f} s") from None
    if done.returncode:
        raise ClientFailed(f"kcat: {done.stderr.strip()}")


def lines(folder: Path, size: int, count: int) -> Path:
    """A file of lines."""
    file = folder / f"{size}x{count}"
    if not file.exists():
        with file.open("wb") as out:
            piece = (b"x" * size + b"\n") * 1000
            for _ in range(count // 1000):
                out.write(piece)
    return file


def write(running: Running, topic: str, size: int, count: int) -> None:
    """Write the lines of a file: acks=all, linger 5 ms, batches up to 1 MB. Checks that all records arrived."""
    before = records(running.address, topic)
    file = lines(running.inputs, size, count)
    kcat(["-P", "-b", running.address, "-t", topic, "-l", str(file)], PRODUCE)
    if (there := records(running.address, topic) - before) != count:
        raise ClientFailed(f"{topic}: {there} of {count} records are there")


def read(running: Running, topic: str, count: int) -> None:
    """Read `count` records from the beginning, without output."""
    words = ["-C", "-c", str(count), "-o", "beginning", "-f", "", "-b", running.address, "-t", topic]
    kcat(words, CONSUME)


def figures(clock: Clock, size: int) -> dict[str, float]:
    """MB/s, and CPU seconds of the broker per GB."""
    return {"MB/s": size / clock.wall / 1e6, "CPU s/GB": clock.cpu / (size / 1e9)}


def produce(running: Running, topic: str, size: int, count: int) -> dict[str, float]:
    """Throughput of records of one size."""
    create(running.address, f"warm-{topic}")
    create(running.address, topic)
    write(running, f"warm-{topic}", size, count)
    with Clock(running.meter) as clock:
        write(running, topic, size, count)
    return figures(clock, size * count)


def produce_1k(running: Running) -> dict[str, float]:
    """Records of 1 KiB."""
    return produce(running, TOPIC_1K, SIZE_1K, COUNT_1K)


def produce_100(running: Running) -> dict[str, float]:
    """Records of 100 bytes."""
    return produce(running, "produce-100", SIZE_100, COUNT_100)


def consume(running: Running) -> dict[str, float]:
    """Read the records of `produce-1k` from the page cache."""
    if not any(running.data_dir.glob(f"{TOPIC_1K}-*")):
        create(running.address, TOPIC_1K)
        write(running, TOPIC_1K, SIZE_1K, COUNT_1K)
    read(running, TOPIC_1K, COUNT_1K)
    with Clock(running.meter) as clock:
        read(running, TOPIC_1K, COUNT_1K)
    return figures(clock, SIZE_1K * COUNT_1K)


def fill(running: Running, topic: str, gigabytes: int) -> int:
    """Write `gigabytes` of 1 KiB records to a new topic; returns their number. Raises Skip if the disk is too small."""
    passes = math.ceil(gigabytes * 1e9 / (SIZE_1K * COUNT_1K))
    need_disk(running.data_dir.parent, int(passes * SIZE_1K * COUNT_1K * 1.1))
    create(running.address, topic)
    for _ in range(passes):
        write(running, topic, SIZE_1K, COUNT_1K)
    return passes * COUNT_1K


def cold(running: Running, gigabytes: int) -> dict[str, float]:
    """Consume from the disk: the segments are synced and dropped from the page cache first."""
    count = fill(running, "cold", gigabytes)
    read(running, "cold", count)
    segments = sorted(running.data_dir.glob("cold-*/*.log"))
    cached = page_cache.drop(segments)
    with Clock(running.meter) as clock:
        read(running, "cold", count)
    return {**figures(clock, SIZE_1K * count), "cached before %": cached * 100}
