"""`make bench`: barnabas and Apache Kafka in turn on fresh data directories, the same clients, medians and ratios.

    python -m bench.run [--rounds 3] [--policy page-cache fsync] [--rows produce-1k consume ...] [--json FILE]

Rounds are interleaved (A B A B) on one machine, so that what else it does hits both. Throughput is wall time at the
client; CPU is the broker's own, children counted, from /proc. Without Kafka's jars only barnabas is measured.
"""

from __future__ import annotations

import argparse
import json
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.servers import POLICIES, SERVERS, Clock, Meter, make
from compat_tests.broker_process import Server
from compat_tests.tools import missing
from scripts.output import table

Row = dict[str, float]
COUNT_1K = 500_000


def load(work: str, server: Server, **options: Any) -> dict[str, Any]:
    """Run a client process; gives what it measured."""
    words = [f"{key}={value}" for key, value in options.items()]
    done = subprocess.run(
        [sys.executable, "-m", "bench.load", work, server.address, *words], capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        raise SystemExit(f"{work} against {server.name} failed: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def load_idle(
    work: str, server: Server, meter: Meter, seconds: float = 5, **options: Any
) -> tuple[dict[str, Any], Row]:
    """Run clients that say `ready` and then stay quiet: what they measured, and what the broker cost meanwhile."""
    words = [f"{key}={value}" for key, value in {**options, "hold": seconds + 1}.items()]
    with subprocess.Popen(
        [sys.executable, "-m", "bench.load", work, server.address, *words], stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        if client.stdout.readline() != "ready\n":
            raise SystemExit(f"{work} against {server.name} failed")
        with Clock(meter) as clock:
            time.sleep(seconds)  # the state that is measured is to be idle
        rss = meter.rss()
        found: dict[str, Any] = json.loads(client.stdout.read().splitlines()[-1])
    return found, {"idle CPU %": clock.cpu / clock.wall * 100, "MiB": rss}


def throughput(clock: Clock, found: dict[str, Any]) -> Row:
    """MB/s, and CPU seconds of the broker per GB."""
    size = found["bytes"]
    return {"MB/s": size / found["seconds"] / 1e6, "CPU s/GB": clock.cpu / (size / 1e9)}


def row_start(server: Server, meter: Meter, scratch: Path) -> Row:
    """Nothing but the process: measured by `start`."""
    return {"idle MiB": meter.rss()}


def lines(scratch: Path, size: int, count: int) -> Path:
    """A file of lines for kcat."""
    file = scratch.parent / f"barnabas-bench-{size}x{count}"
    if not file.exists() or file.stat().st_size != (size + 1) * count:
        with file.open("wb") as out:
            piece = (b"x" * size + b"\n") * 1000
            for _ in range(count // 1000):
                out.write(piece)
    return file


def row_produce(size: int, count: int) -> Callable[[Server, Meter, Path], Row]:
    """Throughput of records of one size, acks=all, linger 5 ms, batches up to 1 MB."""

    def measure(server: Server, meter: Meter, scratch: Path) -> Row:
        topic = f"produce-{size}"
        load("create", server, topic=f"warm-{size}")
        load("create", server, topic=topic)
        load("produce-kcat", server, topic=f"warm-{size}", file=lines(scratch, size, count // 10))
        file = lines(scratch, size, count)
        with Clock(meter) as clock:
            found = load("produce-kcat", server, topic=topic, file=file, bytes_=size * count)
        return throughput(clock, found)

    return measure


def row_consume(server: Server, meter: Meter, scratch: Path) -> Row:
    """Reads what `produce-1k` wrote, from the page cache."""
    load("consume-kcat", server, topic="produce-1024")  # warm
    with Clock(meter) as clock:
        found = load("consume-kcat", server, topic="produce-1024", bytes_=1024 * COUNT_1K)
    return throughput(clock, found)


def row_single(server: Server, meter: Meter, scratch: Path) -> Row:
    """One record per request, five in flight."""
    load("create", server, topic="single")
    with Clock(meter) as clock:
        found = load("single", server, topic="single")
    return {"req/s": found["requests"] / found["seconds"], "CPU us/req": clock.cpu / found["requests"] * 1e6}


def row_latency(work: str) -> Callable[[Server, Meter, Path], Row]:
    """Percentiles in milliseconds."""

    def measure(server: Server, meter: Meter, scratch: Path) -> Row:
        load("create", server, topic=work)
        with Clock(meter) as clock:
            found = load(work, server, topic=work)
        shown = {f"{name} ms": found[name] for name in ("p50", "p99", "p99.9")}
        return {**shown, "CPU us/req": clock.cpu / found["requests"] * 1e6}

    return measure


def row_producers(count: int) -> Callable[[Server, Meter, Path], Row]:
    """Producers that each wait for their acknowledgement: what group commit is for."""

    def measure(server: Server, meter: Meter, scratch: Path) -> Row:
        load("create", server, topic=f"producers-{count}")
        with Clock(meter) as clock:
            found = load("producers", server, topic=f"producers-{count}", count=count)
        rate = found["requests"] / found["seconds"]
        return {"req/s": rate, "p50 ms": found["p50"], "p99 ms": found["p99"],
                "CPU us/req": clock.cpu / found["requests"] * 1e6}  # fmt: skip

    return measure


def row_connections(count: int) -> Callable[[Server, Meter, Path], Row]:
    """Connections that do nothing."""

    def measure(server: Server, meter: Meter, scratch: Path) -> Row:
        before = meter.rss()
        found, idle = load_idle("connections", server, meter, count=count)
        return {"connect s": found["seconds"], "KiB/connection": (idle["MiB"] - before) * 1024 / count,
                "idle CPU %": idle["idle CPU %"]}  # fmt: skip

    return measure


def row_partitions(count: int) -> Callable[[Server, Meter, Path], Row]:
    """Many partitions: what it costs to make them, to ask for them, to write to all, to fetch in a session, to have."""

    def measure(server: Server, meter: Meter, scratch: Path) -> Row:
        found = load("partitions", server, count=count)
        del found["partitions"]
        with Clock(meter) as clock:
            time.sleep(5)  # the state that is measured is to be idle
        return {**found, "idle CPU %": clock.cpu / clock.wall * 100, "MiB": meter.rss()}

    return measure


def row_groups(count: int) -> Callable[[Server, Meter, Path], Row]:
    """Groups of four: join, steady heartbeats, one rebalance."""

    def measure(server: Server, meter: Meter, scratch: Path) -> Row:
        found, idle = load_idle("groups", server, meter, count=count)
        return {"join s": found["join s"], "rebalance s": found["rebalance s"], "steady CPU %": idle["idle CPU %"]}

    return measure


def row_memory(server: Server, meter: Meter, scratch: Path) -> Row:
    """What the process holds after the rows before."""
    return {"loaded MiB": meter.rss()}


ROWS: dict[str, Callable[[Server, Meter, Path], Row]] = {
    "start": row_start,
    "produce-1k": row_produce(1024, COUNT_1K),
    "consume": row_consume,
    "produce-100": row_produce(100, 3_000_000),
    "single": row_single,
    "sync": row_latency("sync"),
    "end-to-end": row_latency("end-to-end"),
    "memory": row_memory,
    "producers-1": row_producers(1),
    "producers-16": row_producers(16),
    "producers-128": row_producers(128),
    "connections-2000": row_connections(2000),
    "partitions-1000": row_partitions(1000),
    "partitions-10000": row_partitions(10_000),
    "groups-1000": row_groups(1000),
}


def first_answer(server: Server, began: float) -> float:
    """Seconds from the start of the process until it has answered an ApiVersions request."""
    from scripts.client import Wire

    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=30):
        pass
    Wire(host, int(port)).close()
    return time.perf_counter() - began


def measure(name: str, policy: str, rows: list[str]) -> dict[str, Row]:
    """One broker, started afresh, through all rows."""
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
        server = make(name, policy, Path(folder) / name)
        if name == "kafka":
            server.format()  # type: ignore[attr-defined]
        began = time.perf_counter()
        server.start()
        started = first_answer(server, began)
        try:
            assert server.process is not None
            meter = Meter(server.process.pid)
            found = {}
            for row in rows:
                print(f"  {name}, {policy}: {row}", file=sys.stderr)
                found[row] = ROWS[row](server, meter, Path(folder))
            if "start" in found:
                found["start"]["first answer s"] = started
        finally:
            server.stop()
    return found


def main() -> None:
    """Measure, print the table, write the JSON."""
    options = argparse.ArgumentParser(description="barnabas beside Apache Kafka, in one run.")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--policy", nargs="+", choices=POLICIES, default=list(POLICIES))
    options.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    options.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    options.add_argument("--json", metavar="FILE")
    args = options.parse_args()
    if reason := missing("kcat"):
        raise SystemExit(f"the benchmark needs kcat: {reason}")
    servers = list(args.servers)
    if "kafka" in servers and (reason := missing("java")):
        print(f"Apache Kafka is left out: {reason}", file=sys.stderr)
        servers.remove("kafka")
    series: dict[tuple[str, str, str, str], list[float]] = {}
    for number in range(args.rounds):
        for policy in args.policy:
            for name in servers:
                print(f"round {number + 1}/{args.rounds}", file=sys.stderr)
                for row, values in measure(name, policy, args.rows).items():
                    for unit, value in values.items():
                        series.setdefault((policy, row, unit, name), []).append(value)
    lines = []
    for policy, row, unit in dict.fromkeys(key[:3] for key in series):
        medians = [statistics.median(series.get((policy, row, unit, name), [float("nan")])) for name in servers]
        spread = series.get((policy, row, unit, "barnabas"), [0.0])
        ratio = f"{medians[0] / medians[1]:.2f}x" if len(medians) > 1 and medians[1] else "-"
        shown = [f"{m:.3g}" if m < 100 else f"{m:.0f}" for m in medians]
        lines.append((policy, row, unit, *shown, ratio, f"{min(spread):.3g}..{max(spread):.3g}"))
    print(f"{platform.machine()}, {platform.python_implementation()} {platform.python_version()}, "
          f"{args.rounds} round(s), medians")  # fmt: skip
    print(table(("POLICY", "ROW", "UNIT", *servers, *(["RATIO"] if len(servers) > 1 else ["-"]), "SPREAD"), lines))
    if args.json:
        rows = [{"policy": p, "row": r, "unit": u, "server": s, "values": v} for (p, r, u, s), v in series.items()]
        Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
