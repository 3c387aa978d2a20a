"""The cost of a request, a metadata change and a node as the number of nodes grows: `python -m bench.nodes`.

    python -m bench.nodes [--counts 1 2 4 8 16] [--seconds 3]

On a machine with fewer cores than nodes, the rates do not show what more cores would give. CPU per request does: if it
stays the same as nodes are added, N cores do N times the work, up to the limits of shared resources (the disk, the
kernel's loopback, and the owner of the metadata for changes). Memory is PSS, which counts shared pages once.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from barnabas.client.connection import connect, parse_servers
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from bench import client, frames
from bench.create import create, leaders
from bench.servers import NEVER, Clock, Meter
from compat_tests.broker_process import Barnabas

#: The number of producers to each node, each with one request in flight.
CONNECTIONS = 64
CREATED, IDLE_SECONDS = 100, 10.0


def measured(folder: Path, count: int, seconds: float) -> dict[str, float]:
    """Start a broker with `count` nodes and measure it."""
    server = Barnabas(folder, {"log.flush.interval.messages": NEVER})
    server.processes = count
    began = time.perf_counter()
    with server:
        started = time.perf_counter() - began
        assert server.process
        meter = Meter(server.process.pid)
        create(server.address, "load", partitions := max(6, 2 * count))
        ports = ",".join(map(str, leaders(server.address, "load")[0]))
        data = frames.batch()
        connections = CONNECTIONS * count
        requests = [frames.opening(), *(frames.produce("load", i % partitions, data) for i in range(connections))]
        found, clock = client.load(
            f"127.0.0.1:{ports}", meter, requests, frames.produce_errors("load"),
            connections=connections, seconds=seconds, warm=30_000,
        )  # fmt: skip
        wire = connect(parse_servers(server.address))
        times = []
        owner = Meter(server.process.pid if count == 1 else _first_node(server.process.pid))
        with Clock(meter) as changes, Clock(owner) as owners:
            for number in range(CREATED):
                asked = CreateTopicsRequest(topics=[CreatableTopic(f"t{number}", 1, 1)], timeout_ms=60_000)
                at = time.perf_counter()
                answer = wire.ask(asked, CreateTopicsResponse)
                times.append(time.perf_counter() - at)
                assert not answer.topics[0].error_code
        wire.close()
        with Clock(meter) as idle:
            time.sleep(IDLE_SECONDS)  # the idle state is measured
        pss = sum(_pss_mib(pid) for pid in meter.pids())
        server.stop()
    return {
        "start s": started,
        "req/s": found["requests"] / found["seconds"],
        "CPU us/req": clock.cpu / found["requests"] * 1e6,
        "create p50 ms": statistics.median(times) * 1000,
        "CPU ms/create": changes.cpu / CREATED * 1000,
        "of the owner": owners.cpu / CREATED * 1000,
        "idle CPU %/node": idle.cpu / idle.wall * 100 / count,
        "PSS MiB/node": pss / count,
    }


def _first_node(supervisor: int) -> int:
    """The process of the first node, which owns the metadata: the supervisor starts it first."""
    return int(Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()[0])


def _pss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    """Measure each count, and print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--counts", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    options.add_argument("--seconds", type=float, default=3.0)
    args = options.parse_args()
    header = False
    for count in args.counts:
        with tempfile.TemporaryDirectory() as folder:
            figures = measured(Path(folder), count, args.seconds)
        if not header:
            header = True
            print(f"| nodes | {' | '.join(figures)} |")
            print(f"| {' | '.join(['---'] * (1 + len(figures)))} |")
        print(f"| {count} | {' | '.join(f'{value:.3g}' for value in figures.values())} |", flush=True)


if __name__ == "__main__":
    main()
