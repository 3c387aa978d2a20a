"""`barnabas produce`: lines of standard input become records."""

from __future__ import annotations

import argparse
import base64
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import msgspec

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, check
from barnabas.client.partitioner import murmur2
from barnabas.client.produce import Batch, produce
from barnabas.scripts.form import unescape
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.compression import CompressionType
from barnabas.wire.lines import NATIVE, Encoded, LineRules, encode_lines
from barnabas.wire.text import visible_bytes

BATCH_RECORDS = 1000
# The most lines of a batch that is built from many at a time.
MOST_LINES = 20_000
BATCH_BYTES = 512 << 10
# How many seconds a line waits for more before it is sent.
LINGER_SECONDS = 0.1
_PIECE = 256 << 10
# A smaller file gets no progress bar.
BAR_BYTES = 4 << 20

#: A record, and its line number.
Numbered = tuple[int, Record]


class BadLineError(ClientError):
    """A line of the input is not a record."""


class Lines:
    """Turns the input's lines into records with line numbers. Raises ClientError for options that make no sense."""

    def __init__(self, args: argparse.Namespace) -> None:
        headers = []
        for text in args.header:
            name, equals, value = text.partition("=")
            if not equals:
                raise ClientError(f"--header {text}: expected NAME=VALUE")
            headers.append((name, value.encode()))
        self.rules = LineRules(
            separator=unescape(args.key_separator, "--key-separator") if args.key_separator else None,
            null=None if args.null_value is None else args.null_value.encode(),
            headers=tuple(headers),
            strip_cr=args.strip_cr,
        )

    def records(self, lines: Iterable[bytes]) -> Iterator[Numbered]:
        """The records. Raises BadLineError at the first line that is not one."""
        rules = self.rules
        for number, raw in enumerate(lines, 1):
            line = raw.rstrip(b"\r\n") if rules.strip_cr else raw.removesuffix(b"\n")
            key: bytes | None = None
            if rules.separator:
                key, found, line = line.partition(rules.separator)
                if not found:
                    raise BadLineError(f"Line {number} has no key separator: {visible_bytes(key[:60])}")
            value = None if line == rules.null else line
            yield number, Record(key, value, time.time_ns() // 1_000_000, rules.headers)


class Sender:
    """Collects records by partition, and sends them in batches."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        partition: int | None = None,
        codec: CompressionType = CompressionType.NONE,
        unit: str = "Line",
    ) -> None:
        """`unit` is what one record is in the input. It is used when refused records are reported."""
        self._topic, self._cluster, self._codec, self._unit = topic, cluster, codec, unit
        leaders = cluster.leaders(topic, create=True)
        if partition is not None and partition not in leaders:
            raise ClientError(f"Topic {topic} has no partition {partition}: it has {len(leaders)}")
        self._partitions = len(leaders)
        self._fixed = partition
        self._pending: dict[int, list[Numbered]] = {}
        self._bytes = self._turn = 0
        self.sent = 0

    @property
    def has_records(self) -> bool:
        """Whether there are collected records that were not sent."""
        return bool(self._pending)

    def add(self, number: int, record: Record, partition: int | None = None) -> None:
        """Take a record, for the named partition if there is one, and send what was collected if that is enough.

        Raises ClientError, and BadLineError for a partition that does not exist.
        """
        if partition is None or self._fixed is not None:
            partition = self._partition(record)
        elif not 0 <= partition < self._partitions:
            where = f"{self._topic} has {self._partitions} partition(s)"
            raise BadLineError(f"{self._unit} {number} is for partition {partition}, and {where}")
        self._pending.setdefault(partition, []).append((number, record))
        self._bytes += len(record.value or b"") + len(record.key or b"") + 64
        if self._bytes >= BATCH_BYTES or sum(map(len, self._pending.values())) >= BATCH_RECORDS:
            self.send()

    def _partition(self, record: Record) -> int:
        if self._fixed is not None:
            return self._fixed
        return (self._turn if record.key is None else murmur2(record.key)) % self._partitions

    def send(self) -> None:
        """Send what was collected. Raises ClientError with the refused lines."""
        for partition, batch in self._pending.items():
            data = build_batch([record for _, record in batch], compression=self._codec)
            part = produce(self._cluster, [Batch(self._topic, partition, data)])[self._topic, partition]
            refused = [batch[e.batch_index][0] for e in part.record_errors or () if e.batch_index < len(batch)]
            what = f"{self._numbers(refused or [number for number, _ in batch])} to {self._topic}-{partition}"
            check(part.error_code, what, part.error_message)
            self.sent += len(batch)
        self._pending.clear()
        self._bytes, self._turn = 0, self._turn + 1

    def _numbers(self, found: list[int]) -> str:
        if len(found) == 1:
            return f"{self._unit} {found[0]}"
        return f"{self._unit}s {min(found)} to {max(found)}"


class Gathers(Protocol):
    """The part of a sender that a reader of lines uses."""

    @property
    def has_records(self) -> bool: ...

    def send(self) -> None: ...


def pieces_of(descriptor: int, sender: Gathers) -> Iterator[bytes]:
    """The bytes of a file, pipe or terminal, as they arrive.

    What the sender has collected is sent after at most LINGER_SECONDS; on a terminal, as soon as no more input is
    there.
    """
    linger = 0 if os.isatty(descriptor) else LINGER_SECONDS
    poll, due = select.poll(), 0.0
    poll.register(descriptor, select.POLLIN)
    while True:
        if sender.has_records:
            due = due or time.monotonic() + linger
            if not poll.poll(max(0, due - time.monotonic()) * 1000):
                sender.send()
        due = due if sender.has_records else 0.0
        piece = os.read(descriptor, _PIECE)
        if not piece:
            return
        yield piece


def lines_of(descriptor: int, sender: Gathers) -> Iterator[bytes]:
    """The lines in what `pieces_of` yields."""
    begun = list[bytes]()  # the beginning of a line whose end has not arrived
    for piece in pieces_of(descriptor, sender):
        first, *more = piece.split(b"\n")
        begun.append(first)
        if more:
            yield b"".join(begun)
            begun = [more.pop()]
            yield from more
    yield from [b"".join(begun)] if any(begun) else []


class JsonRecord(msgspec.Struct):
    """A line of `produce --json`, as printed by `consume --json`; topic and offset are ignored."""

    value: Any = None
    key: Any = None
    headers: list[tuple[str, Any]] = []
    partition: int | None = None
    timestamp: int | None = None


def record_of(line: bytes, number: int) -> tuple[int | None, Record]:
    """The partition and the record that a line of JSON describes. Raises BadLineError."""
    try:
        found = msgspec.json.decode(line, type=JsonRecord)
        headers = tuple((name, _bytes_of(value)) for name, value in found.headers)
        now = time.time_ns() // 1_000_000 if found.timestamp is None else found.timestamp
        return found.partition, Record(_bytes_of(found.key), _bytes_of(found.value), now, headers)
    except (msgspec.DecodeError, ValueError) as error:
        raise BadLineError(f"Line {number} is not a record in JSON: {error}") from None


def _bytes_of(value: Any) -> bytes | None:
    """Text unchanged, base64 as bytes, or null; any other JSON value as JSON text. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        return base64.b64decode(value["base64"], validate=True)
    return msgspec.json.encode(value)


def _as_json(args: argparse.Namespace, cluster: Cluster, codec: CompressionType) -> int:
    """Send lines of JSON, up to the first that is not a record; those before it are sent. Raises ClientError."""
    sender = Sender(cluster, args.topic, partition=args.partition, codec=codec)
    try:
        for number, line in enumerate(lines_of(sys.stdin.fileno(), sender), 1):
            partition, record = record_of(line, number)
            sender.add(number, record, partition)
    except BadLineError as error:
        sender.send()
        raise ClientError(f"{error}; {sender.sent} record(s) before it were sent") from None
    sender.send()
    print(f"{sender.sent} record(s) sent to {args.topic}.", file=sys.stderr)
    return 0


class TextSender:
    """Collects text, and sends its lines in batches, each to one partition: the next in turn, or the requested one."""

    def __init__(
        self, cluster: Cluster, topic: str, rules: LineRules, codec: CompressionType, partition: int | None = None
    ) -> None:
        leaders = cluster.leaders(topic, create=True)
        if partition is not None and partition not in leaders:
            raise ClientError(f"Topic {topic} has no partition {partition}: it has {len(leaders)}")
        self._cluster, self._topic, self._rules, self._codec = cluster, topic, rules, codec
        self._partitions = [partition] if partition is not None else sorted(leaders)
        self._turn = 0
        self._text = bytearray()
        self.sent = 0

    @property
    def has_records(self) -> bool:
        """Whether a complete line was collected."""
        return b"\n" in self._text

    def add(self, piece: bytes) -> None:
        """Take text, and send what was collected if that is enough. Raises ClientError."""
        self._text += piece
        if len(self._text) >= BATCH_BYTES:
            self.send()

    def send(self, *, is_end: bool = False) -> None:
        """Send the complete lines; at the end, everything. Raises ClientError with the refused lines."""
        whole = len(self._text) if is_end else self._text.rfind(b"\n") + 1
        text, at = bytes(memoryview(self._text)[:whole]), 0
        del self._text[:whole]
        while at < whole:
            now = time.time_ns() // 1_000_000
            encoded = encode_lines(
                text, at, self._rules, now, most_records=MOST_LINES, most_bytes=BATCH_BYTES, codec=self._codec
            )
            if encoded.records:
                self._produce(encoded)
            if encoded.is_bad:
                line = text[encoded.end :].partition(b"\n")[0]
                raise BadLineError(f"Line {self.sent + 1} has no key separator: {visible_bytes(line[:60])}")
            at = encoded.end

    def _produce(self, encoded: Encoded) -> None:
        partition = self._partitions[self._turn % len(self._partitions)]
        self._turn += 1
        part = produce(self._cluster, [Batch(self._topic, partition, encoded.batch)])[self._topic, partition]
        refused = [error.batch_index for error in part.record_errors or () if error.batch_index < encoded.records]
        first, last = min(refused, default=0), max(refused, default=encoded.records - 1)
        numbers = (self.sent + 1 + first, self.sent + 1 + last)
        what = f"Line {numbers[0]}" if first == last else f"Lines {numbers[0]} to {numbers[1]}"
        check(part.error_code, f"{what} to {self._topic}-{partition}", part.error_message)
        self.sent += encoded.records


def _bar(descriptor: int) -> Callable[[], None]:
    """Draws on a terminal how much of a file was read; does nothing for other input or output."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size < BAR_BYTES or not sys.stderr.isatty():
        return lambda: None
    width, told = 40, -1

    def draw() -> None:
        nonlocal told
        done = min(os.lseek(descriptor, 0, os.SEEK_CUR) / status.st_size, 1.0)
        if (percent := int(done * 100)) != told:
            told = percent
            bar = "#" * round(done * width)
            print(f"\r[{bar:<{width}}] {percent:3d} %", end="\n" if done == 1.0 else "", file=sys.stderr, flush=True)

    return draw


def _many(args: argparse.Namespace, cluster: Cluster, rules: LineRules, codec: CompressionType) -> int:
    """Send the input's lines many at a time, and return how many. A line waits at most LINGER_SECONDS."""
    sender = TextSender(cluster, args.topic, rules, codec, args.partition)
    descriptor = sys.stdin.fileno()
    bar = _bar(descriptor)
    try:
        for piece in pieces_of(descriptor, sender):
            bar()
            sender.add(piece)
        sender.send(is_end=True)
        return sender.sent
    except BadLineError as error:
        raise ClientError(f"{error}; {sender.sent} record(s) before it were sent") from None


def run(args: argparse.Namespace) -> int:
    """Send until the input ends. A batch is sent when it is full, or when its first line has waited for LINGER_SECONDS.

    A bad line ends the input; the lines before it are sent. Raises ClientError.
    """
    lines = Lines(args)
    with Cluster(args.server) as cluster:
        codec = CompressionType[args.compression.upper()]
        if args.json:
            return _as_json(args, cluster, codec)
        leaders = cluster.leaders(args.topic, create=True)
        if NATIVE and (args.partition is not None or lines.rules.separator is None or len(leaders) == 1):
            sent = _many(args, cluster, lines.rules, codec)
            print(f"{sent} record(s) sent to {args.topic}.", file=sys.stderr)
            return 0
        sender = Sender(cluster, args.topic, partition=args.partition, codec=codec)
        try:
            for number, record in lines.records(lines_of(sys.stdin.fileno(), sender)):
                sender.add(number, record)
        except BadLineError as error:
            sender.send()
            raise ClientError(f"{error}; {sender.sent} record(s) before it were sent") from None
        sender.send()
    print(f"{sender.sent} record(s) sent to {args.topic}.", file=sys.stderr)
    return 0
