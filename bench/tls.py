"""TLS compared with Apache Kafka: `python -m bench.tls [--rounds 3] [--servers barnabas kafka] [--key rsa2048 ec]`.

Both brokers have a plain listener and a TLS listener with the same key and certificate. They use TLS 1.3, the client's
preferred cipher suite, and the page-cache policy. The rows, over each listener:

    produce, consume   kcat, 500,000 records of 1 KiB, 6 partitions; MB/s, and MB per CPU second of the broker
    requests           one client, one small record per request with acks=all, one request at a time; p50 and p99
    handshakes         new connections one after the other, each with one request; per second, and CPU of the broker

Each row has one pass that is not measured, to warm the peer's JIT. Rounds are interleaved.
"""

from __future__ import annotations

import argparse
import socket
import ssl
import statistics
import struct
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from barnabas.broker.tests.client import frame_of
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from bench.create import create
from bench.percentiles import percentiles
from bench.rows.throughput import CONSUME, COUNT_1K, PRODUCE, SIZE_1K, kcat, lines
from bench.servers import NEVER, SERVERS, BenchKafka, Clock, Meter
from bench.starving import batch, produce
from compat_tests.apache_kafka import free_ports
from compat_tests.broker_process import Barnabas, Server
from compat_tests.security.certificates import Authority
from compat_tests.tools import missing

SECONDS = 4.0
HANDSHAKES = 1000
MB = SIZE_1K * COUNT_1K / 1e6


class Files:
    """The key and certificate of both brokers, and the authority that signed it."""

    def __init__(self, folder: Path, key: str) -> None:
        ca = Authority()
        self.trust = ca.trust_pem(folder / f"{key}-ca.pem")
        self.store = ca.issue(kind=key).pem(folder / f"{key}.pem")

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.trust)


def make(name: str, folder: Path, files: Files) -> tuple[Server, int, int]:
    """A broker that is not started yet, its plain port and its TLS port."""
    plain, tls, controller = free_ports(3)
    listeners = [f"PLAINTEXT://127.0.0.1:{plain}", f"SSL://127.0.0.1:{tls}"]
    settings = {
        "num.partitions": "6",
        "log.flush.interval.messages": NEVER,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": files.store,
    }
    if name == "kafka":
        settings |= {
            "listeners": ",".join([*listeners, f"CONTROLLER://127.0.0.1:{controller}"]),
            "advertised.listeners": ",".join(listeners),
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        }
        return BenchKafka(folder, settings), plain, tls
    return Barnabas(folder, {**settings, "listeners": ",".join(listeners)}), plain, tls


def throughput(port: int, options: list[str], meter: Meter, topic: str, inputs: Path) -> dict[str, float]:
    """Produce and consume with kcat."""
    file, address = lines(inputs, SIZE_1K, COUNT_1K), f"127.0.0.1:{port}"
    write = ["-P", "-b", address, "-l", str(file), "-t"]
    read = ["-C", "-c", str(COUNT_1K), "-o", "beginning", "-f", "", "-b", address, "-t", topic]
    kcat([*write, f"warm-{topic}"], [*PRODUCE, *options])
    with Clock(meter) as clock:
        kcat([*write, topic], [*PRODUCE, *options])
    figures = {"produce MB/s": MB / clock.wall, "produce MB/CPU s": MB / clock.cpu}
    kcat(read, [*CONSUME, *options])
    with Clock(meter) as clock:
        kcat(read, [*CONSUME, *options])
    return {**figures, "consume MB/s": MB / clock.wall, "consume MB/CPU s": MB / clock.cpu}


def opened(port: int, context: ssl.SSLContext | None) -> socket.socket:
    """A new connection; with a context, over TLS."""
    sock = socket.create_connection(("127.0.0.1", port), 60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock if context is None else context.wrap_socket(sock, server_hostname="localhost")


def ask(sock: socket.socket, frame: bytes) -> None:
    """Send a request, and receive its answer."""
    sock.sendall(frame)
    head = b""
    while len(head) < 4:
        head += sock.recv(4 - len(head))
    (left,) = struct.unpack(">i", head)
    while left:
        left -= len(sock.recv(left))


def requests(port: int, context: ssl.SSLContext | None, meter: Meter, topic: str) -> dict[str, float]:
    """Measure small requests, one at a time."""
    frame = produce(topic, batch(100, 1), -1)
    with opened(port, context) as sock:
        until = time.perf_counter() + SECONDS
        while time.perf_counter() < until:
            ask(sock, frame)
        times: list[float] = []
        with Clock(meter) as clock:
            until = time.perf_counter() + SECONDS
            while (began := time.perf_counter()) < until:
                ask(sock, frame)
                times.append(time.perf_counter() - began)
    found = percentiles(times)
    return {"p50 ms": found["p50"], "p99 ms": found["p99"], "CPU us/req": clock.cpu / len(times) * 1e6}


def handshakes(port: int, context: ssl.SSLContext, meter: Meter) -> dict[str, float]:
    """Measure new connections, each with one request."""
    frame = frame_of(ApiVersionsRequest("bench", "1"), 3, 1)
    for measured in (False, True):
        with Clock(meter) as clock:
            for _ in range(HANDSHAKES):
                with opened(port, context) as sock:
                    ask(sock, frame)
        if measured:
            break
    return {"handshakes/s": HANDSHAKES / clock.wall, "CPU ms/handshake": clock.cpu / HANDSHAKES * 1e3}


def one(name: str, key: str, folder: Path, inputs: Path) -> dict[tuple[str, str], float]:
    """Start one broker, and measure it over both listeners."""
    files = Files(folder, key)
    server, plain, tls = make(name, folder / "broker", files)
    server.start()
    found: dict[tuple[str, str], float] = {}
    try:
        assert server.process is not None
        meter = Meter(server.process.pid)
        secure = ["security.protocol=ssl", f"ssl.ca.location={files.trust}"]
        for over, port, options, context in (
            ("plain", plain, [], None),
            (f"TLS, {key}", tls, secure, files.context()),
        ):
            topics = [f"{over[:3]}-1k".lower(), f"warm-{over[:3]}-1k".lower(), f"{over[:3]}-small".lower()]
            for topic in topics:
                create(f"127.0.0.1:{plain}", topic)
            figures = throughput(port, options, meter, topics[0], inputs)
            figures |= requests(port, context, meter, topics[2])
            if context is not None:
                figures |= handshakes(port, context, meter)
            found |= {(over, unit): value for unit, value in figures.items()}
            print(f"  {name}, {over}: {figures}", file=sys.stderr, flush=True)
    finally:
        server.stop()
    return found


def main() -> None:
    """Measure, and print a table in Markdown."""
    options = argparse.ArgumentParser(description="TLS beside Apache Kafka, in one run.")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    options.add_argument("--key", nargs="+", default=["rsa2048"])
    args = options.parse_args()
    for tool in ("kcat", "java") if "kafka" in args.servers else ("kcat",):
        if reason := missing(tool):
            raise SystemExit(reason)
    results: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory() as inputs:
        for _ in range(args.rounds):
            for key in args.key:
                for name in args.servers:
                    with tempfile.TemporaryDirectory() as folder:
                        for what, value in one(name, key, Path(folder), Path(inputs)).items():
                            results[what][name].append(value)
    print(f"| over | unit | {' | '.join(args.servers)} |\n| --- | --- |{' --- |' * len(args.servers)}")
    for (over, unit), by_server in results.items():
        cells = [f"{statistics.median(by_server[name]):.3g}" for name in args.servers]
        print(f"| {over} | {unit} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
