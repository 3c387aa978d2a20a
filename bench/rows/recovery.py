"""How long a broker takes to come back after kill -9, with gigabytes of log or with many transactions."""

from __future__ import annotations

import time
from pathlib import Path

from barnabas.client.connection import connect, parse_servers
from barnabas.wire.batch import LOG_OVERHEAD, PREFIX, Marker, Record, build_batch, build_marker
from bench.client import ClientFailed
from bench.create import create, end_offsets
from bench.rows.throughput import fill
from bench.running import Running

TOPIC = "recovery"
VALUE = b"v" * 1600
PRODUCERS = 10


def recovery(running: Running, gigabytes: int) -> dict[str, float]:
    """Measure until all partitions report their end offsets again; under both policies these must be the old ones."""
    return _come_back(running, fill(running, TOPIC, gigabytes))


def aborted_recovery(running: Running, transactions: int) -> dict[str, float]:
    """The same for one partition with that many aborted transactions: a prepared log replaces the empty one."""
    create(running.address, TOPIC)
    running.server.kill()
    _write_aborted(running.server.segment(TOPIC), transactions)
    return _come_back(running, 2 * transactions)


def _come_back(running: Running, count: int) -> dict[str, float]:
    running.server.kill()
    seconds = running.start(TOPIC)
    cpu, rss = running.meter.cpu(), running.meter.rss()
    wire = connect(parse_servers(running.address))
    there = sum(end_offsets(wire, TOPIC) or [])
    wire.close()
    if there != count:
        raise ClientFailed(f"{there} of {count} records are there after kill -9")
    return {"first answer s": seconds, "CPU s": cpu, "MiB": rss}


def _write_aborted(segment: Path, transactions: int) -> None:
    """Write a log of transactions with one record each, by some producers in turn."""
    now = time.time_ns() // 1_000_000
    with segment.open("wb") as log:
        for number in range(transactions):
            producer_id, sequence = 1000 + number % PRODUCERS, number // PRODUCERS
            batch = build_batch(
                [Record(b"%d" % number, VALUE, now)],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
            marker = build_marker(Marker(producer_id, 0, False, 0), now)
            for offset, data in enumerate((batch, marker), 2 * number):
                placed = bytearray(data)
                PREFIX.pack_into(placed, 0, offset, len(placed) - LOG_OVERHEAD, 0)
                log.write(placed)
