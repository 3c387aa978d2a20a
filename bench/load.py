"""`bench/load.c` in Python, for machines without a C compiler: the same arguments, input and output.

Its figures are comparable between brokers, but the client takes about as much CPU as they do.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import NoReturn

from bench.limits import raise_open_files
from bench.percentiles import percentiles
from bench.warm import SLICE_SECONDS, settled


def fail(text: str) -> NoReturn:
    """End with one line and status 1."""
    raise SystemExit(text)


def split(data: bytes) -> list[bytes]:
    """The length-prefixed requests in a byte string."""
    frames, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if len(data) - at < 16 or end > len(data):
            fail("standard input ends inside a request")
        frames.append(data[at:end])
        at = end
    if not frames:
        fail("no request on standard input")
    return frames


@dataclass(eq=False)
class Connection:
    """A socket, the send times of the requests in flight, and the incomplete answer."""

    socket: socket.socket
    cursor: int
    sent: deque[float] = field(default_factory=deque)
    buffer: bytes = b""


class Load:
    """A closed loop over some connections."""

    def __init__(self, frames: list[bytes], errors_at: list[int], connections: int, window: int) -> None:
        self.opening, self.frames = frames[0], frames[1:]
        self.errors_at, self.count, self.window = errors_at, connections, window
        self.all: list[Connection] = []
        self.times: list[float] = []
        self.answers = self.on_their_way = self.turn = 0
        self.opened = self.measuring = False
        self.sending = True
        self.epoll = select.epoll()
        self.by_fd: dict[int, Connection] = {}

    def connect(self, host: str, ports: list[int]) -> None:
        """Open the connections, one after the other."""
        for number in range(self.count):
            wire = socket.create_connection((host, ports[number % len(ports)]))
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(wire, number % len(self.frames) if self.frames else 0)
            self.all.append(connection)
            self.by_fd[wire.fileno()] = connection
            self.transmit(connection, self.opening)
            while connection.sent:
                self.receive(connection)
            self.epoll.register(wire, select.EPOLLIN)
        self.opened, self.answers = True, 0

    def transmit(self, connection: Connection, frame: bytes) -> None:
        """Send a request. The socket blocks: its buffer holds a few requests."""
        connection.socket.sendall(frame)
        connection.sent.append(time.perf_counter())
        self.on_their_way += 1

    def send_next(self, connection: Connection) -> None:
        """Send the connection's next request of the load."""
        frame = self.frames[connection.cursor]
        connection.cursor = (connection.cursor + self.count) % len(self.frames)
        self.transmit(connection, frame)

    def whose_turn(self) -> Connection:
        """The next connection, if a window covers all connections."""
        self.turn += 1
        return self.all[(self.turn - 1) % self.count]

    def begin(self, in_flight: int) -> None:
        """Send the first requests."""
        if self.frames:
            for number in range(self.window or in_flight * self.count):
                self.send_next(self.whose_turn() if self.window else self.all[number % self.count])

    def receive(self, connection: Connection) -> None:
        """Receive once and handle every answer that is complete."""
        got = connection.socket.recv(1 << 18)
        at = time.perf_counter()
        if not got:
            fail("the broker closed a connection")
        data = connection.buffer + got
        while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4], "big")):
            self.answered(connection, data[4:end], at)
            data = data[end:]
        connection.buffer = data

    def answered(self, connection: Connection, answer: bytes, at: float) -> None:
        """Check an answer, note its time, and send the next request."""
        asked = self.frames[0] if self.opened else self.opening
        if not connection.sent or answer[:4] != asked[8:12]:
            fail("an answer to nothing that was asked")
        for place in self.errors_at if self.opened else ():
            if place + 2 > len(answer):
                fail(f"an answer of {len(answer)} bytes has no error code")
            if code := int.from_bytes(answer[place : place + 2], "big", signed=True):
                fail(f"the broker answered with error {code}")
        sent = connection.sent.popleft()
        if self.measuring:
            self.times.append(at - sent)
        self.answers += 1
        self.on_their_way -= 1
        if self.sending and self.opened:
            self.send_next(self.whose_turn() if self.window else connection)

    def handle_events(self) -> None:
        """Wait for answers, for at most 20 ms."""
        for fd, _ in self.epoll.poll(0.02):
            self.receive(self.by_fd[fd])

    def warm(self, settle: float, least: int) -> list[float]:
        """Run until the rate has settled and `least` answers came, each request at least once; returns the rates."""
        rates: list[float] = []
        began, enough = time.perf_counter(), max(len(self.frames), self.count)
        while settle > 0 and self.frames:
            start, before = time.perf_counter(), self.answers
            while time.perf_counter() < start + SLICE_SECONDS:
                self.handle_events()
            rates.append((self.answers - before) / (time.perf_counter() - start))
            late = time.perf_counter() - began >= settle
            if self.answers >= enough and (late or (self.answers >= least and settled(rates))):
                break
        return rates

    def measure(self, seconds: float, requests: int) -> float:
        """Run and note the times; returns the seconds that it took."""
        self.measuring = True
        start = time.perf_counter()
        while time.perf_counter() - start < seconds if seconds > 0 else len(self.times) < requests:
            self.handle_events()
        self.measuring = self.sending = False
        return time.perf_counter() - start


def run(host: str, ports: list[int], frames: list[bytes], options: dict[str, str]) -> None:
    """Run a whole load; prints the same as load.c."""
    errors_at = [int(word) for word in options.get("errors-at", "").split(",") if word]
    load = Load(frames, errors_at, int(options.get("connections", 1)), int(options.get("window", 0)))
    began = time.perf_counter()
    load.connect(host, ports)
    connected = time.perf_counter()
    load.begin(int(options.get("in-flight", 1)))
    rates = load.warm(float(options.get("settle", 0)), int(options.get("warm", 0)))
    warmed = time.perf_counter()
    print("measuring", flush=True)
    took = load.measure(float(options.get("seconds", 0)), int(options.get("requests", 0)))
    print("measured", flush=True)
    while load.on_their_way:
        load.handle_events()
    found = {"requests": len(load.times), "seconds": took, "connect s": connected - began}
    shown = percentiles(load.times) if load.times else {}
    print(json.dumps({**found, "warm s": warmed - connected, "warm req/s": rates, **shown}))


def main() -> None:
    """Read the requests and the options."""
    host, ports, *words = sys.argv[1:]
    raise_open_files()
    options = dict(word.split("=", 1) for word in words)
    run(host, [int(port) for port in ports.split(",")], split(sys.stdin.buffer.read()), options)


if __name__ == "__main__":
    main()
