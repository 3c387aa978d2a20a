"""The same work with more and more partitions or connections: figures that should stay the same, and their growth."""

from __future__ import annotations

from bench import client, frames
from bench.create import create, create_many
from bench.limits import need_files
from bench.rows.requests import latency, rate
from bench.running import IDLE_SECONDS, Running
from bench.session import measure

REQUESTS = 10_000
WAIT_MS = int(IDLE_SECONDS * 1000)


def partitions(running: Running, count: int) -> dict[str, float]:
    """One small record per request to each partition in turn, one request at a time; then idle; then a session."""
    topics = create_many(running.address, "scale", count)
    data = frames.batch()
    requests = [frames.opening()]
    requests += [frames.produce(name, p, data) for name, share in topics for p in range(share)]
    errors = frames.produce_errors(topics[0][0])
    found, clock = client.load(running.address, running.meter, requests, errors, requests=REQUESTS)
    idle = running.idle()
    fetched = measure(running.address, running.meter, topics)
    return {
        **rate(found, clock),
        **latency(found, "p50"),
        **idle,
        "session CPU us/req": fetched["CPU us/req"],
        "session p50 ms": fetched["p50 ms"],
    }


def connections(running: Running, count: int) -> dict[str, float]:
    """A fixed number of requests: one at a time, the connections in turn; then all connections at once.

    Then each connection is a consumer at the end of a partition, with a fetch that waits for data. The measurement ends
    when each fetch is answered, so the figure holds one fetch of every consumer.
    """
    need_files(count)
    topic = "scale"
    create(running.address, topic)
    before = running.meter.rss()
    data = frames.batch()
    requests = [frames.opening(), *(frames.produce(topic, i % 6, data) for i in range(count))]
    errors = frames.produce_errors(topic)
    shown: dict[str, float] = {}
    for busy, window in (("in turn", 1), ("all busy", 0)):
        found, clock = client.load(
            running.address,
            running.meter,
            requests,
            errors,
            connections=count,
            requests=max(REQUESTS, 2 * count),
            window=window,
        )
        shown |= {
            f"{name}, {busy}": value for name, value in (rate(found, clock) | latency(found, "p50", "p99")).items()
        }
    create(running.address, "idle")
    polls = [frames.opening(), *(frames.fetch("idle", i % 6, 0, WAIT_MS) for i in range(count))]
    found, clock = client.load(
        running.address,
        running.meter,
        polls,
        frames.fetch_errors("idle"),
        connections=count,
        settle=0.1,
        seconds=IDLE_SECONDS,
    )
    if found["requests"] > 2 * count:
        raise client.ClientFailed("fetches at the end of a partition did not wait")
    return {
        **shown,
        "idle CPU %": clock.cpu / clock.wall * 100,
        "MiB": clock.rss,
        "KiB/connection": (clock.rss - before) * 1024 / count,
    }
