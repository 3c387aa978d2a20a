"""The SELECTs of `barnabas sql`: answered without Spark if the result is the same, otherwise by a Spark that stays up.

Nothing is printed before it is certain which engine answers. The exceptions are formats that print rows as they come:
there, a row that only Spark can compute is an error that says so.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TextIO

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.scripts.chart import chart
from barnabas.scripts.mistakes import check_query
from barnabas.scripts.rows import shortened, tabular, upright, write_csv, write_json, write_parquet
from barnabas.wire.text import SPARK_REMEDY

_EVERYTHING = sys.maxsize


@dataclass
class Settings:
    """How to answer and show SELECTs."""

    server: str
    data_dir: str | None = None
    master: str = "local[*]"
    limit: int = 1000  # 0: all rows
    format: str = "table"
    output: str | None = None
    plot: bool = False
    upright: bool = False
    engine: str = "auto"  # or plain, or spark
    timing: bool = True


class Given(NamedTuple):
    """The rows of an answer, and the engine that gave it."""

    schema: Any
    made: Iterator[Any]
    by: str

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    def batches(self) -> Iterator[Any]:
        """The Arrow record batches."""
        return self.made

    def plain(self) -> Iterator[list[list[Any]]]:
        """The rows in pieces, with JSON values."""
        plain_rows = _streams("select.plain_values").plain_rows
        for batch in self.made:
            yield plain_rows(batch)


def _streams(module: str) -> Any:
    try:
        return importlib.import_module(f"barnabas.streams.{module}")
    except ImportError as error:
        raise ClientError(f"this needs Spark ({error.name or error}): {SPARK_REMEDY}") from None


class Selects:
    """Runs SELECTs with these settings, one after the other."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._spark: Any = None
        self._begun: set[str] = set()  # files that already have rows of ours: more are appended

    def run(self, query: str, show: Callable[[str], None] = print) -> None:
        """Answer a SELECT, and print the result. Raises ClientError."""
        began = time.monotonic()
        settings = self.settings
        _check(settings)
        with Cluster(settings.server) as cluster:
            check_query(query, cluster)
            given, why = self._given(cluster, query)
            try:
                count, more = self._written(given, show)
            except _errors("select.run", "TooLateError") as error:
                if settings.format != "table":
                    raise ClientError(f"a row needs Spark ({error}): give --engine spark") from None
                given, why = self._by_spark(query), str(error)
                count, more = self._written(given, show)
            except _errors("wal", "WalError") as error:
                raise ClientError(str(error)) from None
        del why
        if settings.timing:
            said = f"-- {count} row{'' if count == 1 else 's'}{more}, {time.monotonic() - began:.2f} s, {given.by}"
            dim = sys.stderr.isatty() and "NO_COLOR" not in os.environ
            print(f"\x1b[2m{said}\x1b[0m" if dim else said, file=sys.stderr, flush=True)

    def explain(self, query: str) -> list[str]:
        """Which engine would answer, and why. Raises ClientError."""
        with Cluster(self.settings.server) as cluster:
            check_query(query, cluster)
            answer = _streams("select.answer")
            try:
                return list(answer.explained(answer.prepare(cluster, query)))
            except _errors("select.errors", "NeedsSpark") as error:
                return [f"with Spark: {error}"]
            except _errors("query.errors", "QueryError") as error:
                raise ClientError(str(error)) from None

    def _given(self, cluster: Cluster, query: str) -> tuple[Given, str]:
        if self.settings.engine == "spark":
            return self._by_spark(query), "it was asked for"
        try:
            return self._plainly(cluster, query), ""
        except _errors("select.errors", "NeedsSpark") as error:
            if self.settings.engine == "plain":
                raise ClientError(f"this needs Spark ({error}): leave --engine plain out") from None
            return self._by_spark(query), str(error)
        except (*_errors("query.errors", "QueryError"), *_errors("wal", "WalError")) as error:
            raise ClientError(str(error)) from None

    def _plainly(self, cluster: Cluster, query: str) -> Given:
        _streams("quick_arrow").import_arrow()
        answer, settings = _streams("select.answer"), self.settings
        prepared = answer.prepare(cluster, query)
        result = answer.answer(cluster, settings.server, settings.data_dir, prepared, self._most())
        progress = _streams("progress").shown if sys.stderr.isatty() else None
        batches = iter(result.batches)

        def told() -> tuple[None, str]:
            return None, f"reading, {result.read():,} records so far"

        def rows() -> Iterator[Any]:
            while True:
                with progress(sys.stderr, told) if progress else contextlib.nullcontext():
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch

        made = rows()
        first = next(made, None)  # this may need Spark
        return Given(result.schema, _chained(first, made), "without Spark")

    def _by_spark(self, query: str) -> Given:
        if self._spark is None:
            settings = self.settings
            self._spark = _streams("adhoc").AdHoc(settings.server, settings.data_dir, settings.master)
        found = self._spark.select(query, None if self._most() == _EVERYTHING else self._most())
        return Given(found.schema, iter(found.to_batches()), "with Spark")

    def _most(self) -> int:
        """One row more than is shown, to find out whether there are more."""
        return self.settings.limit + 1 if self.settings.limit else _EVERYTHING

    def _written(self, given: Given, show: Callable[[str], None]) -> tuple[int, str]:
        """Write the rows. Returns how many, and a note if there are more."""
        settings = self.settings
        limited = _Limited(given, settings.limit)
        if settings.format == "table":
            whole = settings.plot or settings.upright
            rows = [row if whole else [shortened(value) for value in row] for piece in limited.plain() for row in piece]
            count = len(rows)
            self._show(given.names, rows, show)
        elif settings.format == "parquet":
            count = write_parquet(settings.output or "", limited)
        else:
            write = write_csv if settings.format == "csv" else write_json
            with self._output() as out:
                count = write(out, limited)
        return count, ", and more: raise --limit" if limited.is_cut else ""

    def _show(self, names: list[str], rows: list[list[Any]], show: Callable[[str], None]) -> None:
        settings = self.settings
        if settings.plot:
            text = chart(names, rows)
        elif settings.upright:
            text = "\n".join(upright(names, rows))
        else:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() and not settings.output else None
            text = tabular(names, rows, width)
        if settings.output is None:
            show(text)
            return
        with self._output() as out:
            out.write(text + "\n")

    @contextlib.contextmanager
    def _output(self) -> Iterator[TextIO]:
        """The settings' output file, or standard output. Raises ClientError."""
        path = self.settings.output
        if path is None:
            yield sys.stdout
            return
        try:
            with open(path, "a" if path in self._begun else "w", encoding="utf-8") as out:
                self._begun.add(path)
                yield out
        except OSError as error:
            raise ClientError(f"{path} cannot be written: {error.strerror}") from None


class _Limited:
    """Rows up to a limit."""

    def __init__(self, given: Given, limit: int) -> None:
        self._given, self._left = given, limit or _EVERYTHING
        self.is_cut = False
        self.names, self.schema = given.names, given.schema

    def batches(self) -> Iterator[Any]:
        for batch in self._given.batches():
            self.is_cut = batch.num_rows > self._left
            kept = batch.slice(0, self._left)
            self._left -= kept.num_rows
            if kept.num_rows:
                yield kept
            if self.is_cut:
                return

    def plain(self) -> Iterator[list[list[Any]]]:
        return Given(self.schema, self.batches(), "").plain()


def _check(settings: Settings) -> None:
    """Raises ClientError for settings that exclude each other."""
    if settings.format == "parquet" and settings.output is None:
        raise ClientError("Parquet is for files: give --output FILE")
    if settings.format != "table" and (settings.plot or settings.upright):
        raise ClientError(f"a chart and upright rows are for --format table, not {settings.format}")


def _errors(module: str, name: str) -> tuple[type[Exception], ...]:
    """An exception class of streams, if its module is loaded; otherwise none."""
    loaded = sys.modules.get(f"barnabas.streams.{module}")
    return (getattr(loaded, name),) if loaded is not None else ()


def _chained(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    if first is not None:
        yield first
        yield from rest
