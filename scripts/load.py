"""`barnabas load`: load a CSV file or JSON lines into a topic."""

from __future__ import annotations

import argparse
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO

from barnabas.client.admin import create_topic, topic_configs
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, check
from barnabas.wire.compression import CompressionType
from barnabas.wire.queries.keys import FORMAT, SCHEMA, VALUES
from barnabas.wire.text import SPARK_REMEDY, visible

if TYPE_CHECKING:
    from barnabas.streams.load.rows import Bad, Reader, Rows
    from barnabas.streams.load.sender import Sender
    from barnabas.streams.load.text import Piece
    from barnabas.streams.load.values import Form

_SHOWN = 10


def run(args: argparse.Namespace) -> int:
    """Load, and print in the last line what was written. Returns 1 if a line was left out. Raises ClientError."""
    try:
        from barnabas.streams.wal import WalError
    except ImportError as error:
        raise ClientError(f"this needs PyArrow ({error.name or error}): {SPARK_REMEDY}") from None
    if args.resume and args.file == "-":
        raise ClientError("--resume needs a file: standard input cannot be read from its middle")
    try:
        with _opened(args.file) as file, Cluster(args.server) as cluster:
            return _Load(args, file, cluster).run()
    except WalError as error:
        raise ClientError(str(error)) from None


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise ClientError(f"{path}: {error.strerror}") from None
    with file:
        yield file


class _Load:
    """One load. Raises ClientError and WalError."""

    def __init__(self, args: argparse.Namespace, file: BinaryIO, cluster: Cluster) -> None:
        self._args, self._file, self._cluster = args, file, cluster
        status = os.fstat(file.fileno())
        self._size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        self._left_out = 0
        self._is_csv: bool = (args.format or ("csv" if args.file.endswith((".csv", ".tsv")) else "json")) == "csv"
        separator: str = args.separator or ("\t" if args.file.endswith(".tsv") else ",")
        self._separator = separator.replace("\\t", "\t")
        if len(self._separator.encode()) != 1 or self._separator in '"\r\n':
            raise ClientError(f"--separator {args.separator!r}: expected one character, no quote or end of a line")

    def run(self) -> int:
        """Load, and return the exit status."""
        from barnabas.streams.load.sender import Sender
        from barnabas.streams.load.text import Piece, pieces
        from barnabas.streams.progress import shown

        stream = pieces(self._file, quoted=self._is_csv)
        first = next(stream, Piece([], [], 0, 1))
        reader, first = self._reader(first)
        sender = Sender(self._cluster, self._args.topic, compression=CompressionType[self._args.compression.upper()])
        if self._args.resume:
            sender.resume(self._args.resume)
        begun = sender.place
        if begun.bytes > self._size:
            raise ClientError(f"{self._args.file} is shorter than what was loaded of it as {self._args.resume}")
        if begun.bytes:
            self._file.seek(begun.bytes)
            stream = pieces(self._file, quoted=self._is_csv, at=begun.bytes, line=begun.line)
        else:
            stream = chain([first], stream)
        began = time.monotonic()

        def look() -> tuple[float | None, str]:
            rows, seconds = sender.place.rows - begun.rows, time.monotonic() - began
            part = sender.place.bytes / self._size if self._size else None
            return part, f"{sender.place.rows:,} rows, {rows / max(seconds, 0.001):,.0f} rows/s"

        with shown(sys.stderr, look):
            for piece in stream:
                self._send(sender, reader, piece)
        seconds = time.monotonic() - began
        more = f"; {self._left_out:,} lines left out" if self._left_out else ""
        before = f" ({begun.rows:,} of them before)" if begun.rows else ""
        print(f"{sender.place.rows:,} rows to {self._args.topic}{before} in {seconds:.1f} s{more}.")
        return int(bool(self._left_out))

    # -- what the rows are -------------------------------------------------------------------------------------------

    def _reader(self, first: Piece) -> tuple[Reader, Piece]:
        """The reader that makes rows of the records, and the first piece's rows. The topic exists from now on."""
        from barnabas.streams.load.rows import CsvRows, JsonRows, Picks, header_of

        args = self._args
        picks = Picks(args.key or "", args.time or "")
        found = topic_configs(self._cluster, [args.topic], [*VALUES]).get(args.topic)
        if not self._is_csv:
            return JsonRows(self._form(found, ""), picks), first
        if args.columns:
            columns = [name.strip() for name in args.columns.split(",")]
        elif first.records:
            columns = header_of(first.records[0], self._separator)
            first = first._replace(lines=first.lines[1:], records=first.records[1:])
        else:
            raise ClientError(f"{args.file} is empty: the first line names the columns, or --columns does")
        form = self._form(found, "" if args.schema else self._inferred(columns, first))
        assert form is not None
        return CsvRows(form, columns, picks, separator=self._separator, null=args.null), first

    def _inferred(self, columns: list[str], first: Piece) -> str:
        from barnabas.streams.load.rows import inferred
        from barnabas.streams.schema.ddl import ddl_text

        return ddl_text(inferred(columns, first, separator=self._separator, null=self._args.null))

    def _form(self, configs: dict[str, str] | None, inferred: str) -> Form | None:
        """The form of the topic's values. A missing topic is created."""
        from barnabas.streams.load.values import form_of

        topic, schema = self._args.topic, self._args.schema or inferred
        if configs is None:
            configs = {FORMAT: "json", **({SCHEMA: schema} if schema else {})}
            form = form_of(topic, configs)  # before a topic is created with an invalid schema
            made = create_topic(self._cluster, topic, configs, partitions=self._args.partitions)
            check(made.error_code, f"Topic {topic}", made.error_message)
            of = f" of {schema}" if schema else ""
            print(visible(f"Created topic {topic} with {made.num_partitions} partition(s){of}."), file=sys.stderr)
            return form
        form = form_of(topic, configs)
        if form is not None and self._args.schema:
            raise ClientError(f"{topic} has its schema: leave --schema out")
        if form is None and self._args.schema:
            return form_of(topic, {FORMAT: "json", SCHEMA: schema})
        if form is None and self._is_csv:
            raise ClientError(
                f"{topic} has no schema that says what the columns are: give one with --schema, such as "
                f"--schema '{inferred}'"
            )
        return form

    # -- piece by piece ----------------------------------------------------------------------------------------------

    def _send(self, sender: Sender, reader: Reader, piece: Piece) -> None:
        begun = sender.place.line
        rows = reader.rows(piece)
        stopped = rows.bad[0] if rows.bad and not self._args.skip_bad else None
        if stopped is not None:
            rows = _before(rows, stopped.line) if not self._args.resume else rows
        else:
            self._tell(rows.bad)
        try:
            if stopped is None or not self._args.resume:
                sender.send(rows, piece.end, piece.end_line)
        except ClientError as error:
            raise ClientError(f"{error}; the rows before line {begun} are in {self._args.topic}") from None
        if stopped is not None:
            so_far = begun if self._args.resume else stopped.line
            raise ClientError(
                f"line {stopped.line}: {stopped.why}; the rows before line {so_far} are in {self._args.topic}. "
                "--skip-bad skips such lines"
            )

    def _tell(self, bad: list[Bad]) -> None:
        for each in bad[: max(_SHOWN - self._left_out, 0)]:
            print(visible(f"line {each.line} left out: {each.why}"), file=sys.stderr)
        self._left_out += len(bad)


def _before(rows: Rows, line: int) -> Rows:
    """The rows before a line."""
    count = sum(each < line for each in rows.lines)
    return rows._replace(
        lines=rows.lines[:count], values=rows.values[:count], keys=rows.keys[:count], times=rows.times[:count]
    )
