"""How long a broker takes to come back after kill -9, with gigabytes of log."""

from __future__ import annotations

from barnabas.client.connection import connect, parse_servers
from bench.client import ClientFailed
from bench.create import end_offsets
from bench.rows.throughput import fill
from bench.running import Running

TOPIC = "recovery"


def recovery(running: Running, gigabytes: int) -> dict[str, float]:
    """Until the end offsets of all partitions are told again; under both policies they must be those before."""
    count = fill(running, TOPIC, gigabytes)
    running.server.kill()
    seconds = running.start(TOPIC)
    cpu, rss = running.meter.cpu(), running.meter.rss()
    wire = connect(parse_servers(running.address))
    there = sum(end_offsets(wire, TOPIC) or [])
    wire.close()
    if there != count:
        raise ClientFailed(f"{there} of {count} records are there after kill -9")
    return {"first answer s": seconds, "CPU s": cpu, "MiB": rss}
