"""One record per request, with the load client: rate, latency and CPU per request; and end to end with librdkafka."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bench import client, frames
from bench.client import Found
from bench.create import create, leaders
from bench.percentiles import percentiles
from bench.running import Running
from bench.servers import Clock

SECONDS = 3.0
WARM_ANSWERS = 30_000  # the JIT fully compiles code after some ten thousand calls
SYNCS = 300
END_TO_END_SECONDS, END_TO_END_WARM, RELAY_SECONDS = 10.0, 2.0, 5.0


def load(running: Running, topic: str, **options: float) -> tuple[Found, Clock]:
    """Produce one record of 100 bytes per request, each connection to one of six partitions."""
    create(running.address, topic)
    ports, nodes = leaders(running.address, topic)
    host, colon, _ = running.address.partition(":")
    address = running.address if len(nodes) == 1 else f"{host}{colon}{','.join(map(str, ports))}"
    data = frames.batch()
    connections = int(options.get("connections", 1))
    requests = [frames.opening(), *(frames.produce(topic, i % 6, data) for i in range(connections))]
    errors = frames.produce_errors(topic)
    return client.load(address, running.meter, requests, errors, **{"seconds": SECONDS, **options})


def rate(found: Found, clock: Clock) -> dict[str, float]:
    """Requests per second, and the broker's CPU time for each."""
    return {"req/s": found["requests"] / found["seconds"], "CPU us/req": clock.cpu / found["requests"] * 1e6}


def latency(found: Found, *names: str) -> dict[str, float]:
    """Percentiles in milliseconds."""
    return {f"{name} ms": found[name] for name in names}


def warm(running: Running) -> None:
    """Warm up with sixteen producers, before a broker's first row of requests; nothing is measured."""
    load(running, "warm", connections=16, warm=WARM_ANSWERS, seconds=0.1)


def single(running: Running) -> dict[str, float]:
    """Five requests in flight on one connection."""
    return rate(*load(running, "single", in_flight=5))


def sync(running: Running) -> dict[str, float]:
    """One record, its acknowledgement, the next record. With the fsync policy, also the time of a bare fsync."""
    bare = fsync_ms(running.data_dir) if running.policy == "fsync" else None
    found, clock = load(running, "sync")
    shown = {**latency(found, "p50", "p99", "p99.9"), "CPU us/req": rate(found, clock)["CPU us/req"]}
    if bare is not None:
        shown |= {"fsync alone ms": bare, "p50 above fsync ms": found["p50"] - bare}
    return shown


def producers(running: Running, count: int) -> dict[str, float]:
    """Producers that each wait for their acknowledgement: the case for group commit."""
    found, clock = load(running, f"producers-{count}", connections=count)
    return {**rate(found, clock), **latency(found, "p50", "p99")}


def end_to_end(running: Running) -> dict[str, float]:
    """From produce() until a consumer has the record, at a steady rate; also the time between two processes alone."""
    bare = client.relay(RELAY_SECONDS)
    create(running.address, "end-to-end")
    words = [running.address, "end-to-end", str(END_TO_END_SECONDS), str(END_TO_END_WARM)]
    found, clock = client.run([*client.end_to_end_command(), *words], running.meter)
    alone = {f"relay alone {name} ms": bare[name] for name in ("p50", "p99.9")} if bare else {}
    return {**latency(found, "p50", "p99", "p99.9"), "CPU us/req": clock.cpu / found["requests"] * 1e6, **alone}


def fsync_ms(folder: Path) -> float:
    """The median of a small append and its fdatasync, in a file of its own beside the logs."""
    file, data, times = folder / "fsync-alone", frames.batch(), []
    fd = os.open(file, os.O_CREAT | os.O_RDWR)
    try:
        for number in range(SYNCS):
            began = time.perf_counter()
            os.pwrite(fd, data, number * len(data))
            os.fdatasync(fd)
            times.append(time.perf_counter() - began)
    finally:
        os.close(fd)
        file.unlink()
    return percentiles(times)["p50"]
