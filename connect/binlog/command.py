"""`barnabas connect binlog` and `barnabas connect status`."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import sys
import time

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.connect.binlog.maker import Settings
from barnabas.connect.binlog.masks import KEY, Masks
from barnabas.connect.binlog.place import Position, positions
from barnabas.connect.binlog.reports import reports, tell
from barnabas.connect.binlog.server import Server
from barnabas.connect.binlog.sink import Sink
from barnabas.connect.binlog.snapshot import Copier
from barnabas.connect.binlog.subscribe import FinalError, Subscription, server_id_of
from barnabas.connect.loop import prepare
from barnabas.connect.mysql.source import SourceError, source_of
from barnabas.connect.telling import end_at_signals, failed, say
from barnabas.wire.subscription_reports import MOST_ERROR, Report, State
from barnabas.wire.table import table
from barnabas.wire.text import visible

_PROGRESS_SECONDS, _BAR_SECONDS = 10.0, 0.2
_BAR = 24
_COLUMNS = (
    *("NAME", "SOURCE", "GTID", "FILE", "MESSAGES", "LAST EVENT", "WRITTEN", "BEHIND S"),
    *("STATE", "MESSAGES/S", "LAST ERROR"),
)
# Seconds between two reports for `connect status`, and between two checks for a changed state.
_REPORT_SECONDS, _LOOK_SECONDS = 10.0, 0.5
_ANEW = "\r\x1b[K"  # go back, clear the line


def binlog(args: argparse.Namespace) -> int:
    """Follow a binary log. Returns 1 if it cannot continue."""
    try:
        source = source_of(args.source)
        settings = _settings(args, args.name or f"{source.host}-{source.port}")
    except (SourceError, ValueError) as error:
        return failed(str(error))
    server_id = args.server_id or server_id_of(settings.name)
    server = Server(source, server_id, args.silence, any_metadata=args.row_metadata == "any")
    in_order = args.order == "transaction"
    sink = Sink(args.server, settings.name, settings.partitions, settings.configs, args.oversize, in_order=in_order)
    prepare()
    try:
        trio.run(_follow, Subscription(server, sink, settings, say), args.server, settings.name)
    except FinalError as error:
        return failed(str(error))
    finally:
        sink.close()
    return 0


def _settings(args: argparse.Namespace, name: str) -> Settings:
    """The settings from the options. Raises ValueError for options that make no sense."""
    if args.topic_per == "server" and not args.prefix:
        raise ValueError("--topic-per server needs --prefix, the name of its topic")
    if args.partitions < 1:
        raise ValueError("--partitions is at least 1")
    if args.order == "transaction" and args.partitions > 1:
        raise ValueError("--order transaction writes to one partition: leave --partitions out")
    if args.silence < 1:
        raise ValueError("--silence is at least 1 second")
    if any("." not in pattern for pattern in args.tables):
        raise ValueError("--tables takes DATABASE.TABLE, such as 'shop.*'")
    if args.snapshot == "initial" and args.start != "now":
        raise ValueError("--snapshot initial begins where the copy of the rows is: leave --start out")
    configs = {}
    for text in args.config:
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--config {text}: expected KEY=VALUE")
        configs[key] = value
    mask_key = os.environ.get(KEY, "").encode()
    Masks(args.mask, mask_key)
    return Settings(
        name=name,
        masks=tuple(args.mask),
        mask_key=mask_key,
        format=args.format,
        per=args.topic_per,
        prefix=args.prefix,
        tables=tuple(args.tables),
        start=args.start,
        snapshot=args.snapshot,
        partitions=args.partitions,
        configs=configs,
    )


async def _follow(subscription: Subscription, servers: str, name: str) -> None:
    """Run the subscription until a signal comes. Raises FinalError."""
    final: FinalError | None = None
    reporter = _Reporter(subscription, servers, name)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_at_signals, nursery.cancel_scope)
        nursery.start_soon(_show_progress, subscription)
        nursery.start_soon(reporter.run)
        try:
            await subscription.run()
        except FinalError as error:
            final = error
        nursery.cancel_scope.cancel()
    await trio.to_thread.run_sync(reporter.tell, "ENDED", str(final or ""))
    if final is not None:
        raise final


class _Reporter:
    """Reports a subscription's state to `connect status`. A report that cannot be written is dropped."""

    def __init__(self, subscription: Subscription, servers: str, name: str) -> None:
        self._subscription, self._servers, self._name = subscription, servers, name
        self._messages, self._at = 0, time.monotonic()

    async def run(self) -> None:
        """Report at intervals, and soon after the state has changed."""
        told: State | None = None
        at = 0.0
        while True:
            state = self._state()
            if state != told or trio.current_time() - at >= _REPORT_SECONDS:
                told, at = state, trio.current_time()
                await trio.to_thread.run_sync(self.tell, state)
            await trio.sleep(_LOOK_SECONDS)

    def _state(self) -> State:
        if self._subscription.is_waiting:
            return "RETRYING"
        return "READING" if self._subscription.copier is None else "COPYING"

    def tell(self, state: State, final: str = "") -> None:
        """Write one report, over a connection of its own: brokers come and go."""
        subscription, now = self._subscription, time.monotonic()
        messages = subscription.position.messages if subscription.position is not None else self._messages
        rate = max(messages - self._messages, 0) / (now - self._at) if self._messages and now > self._at else 0.0
        self._messages, self._at = messages, now
        error, error_at = (final, int(time.time())) if final else (subscription.error, subscription.error_at)
        report = Report(
            state=state,
            at=int(time.time()),
            per_second=round(rate, 1),
            behind=0 if subscription.position is None else _behind(subscription.position),
            error=error[:MOST_ERROR],
            error_at=error_at,
        )
        with contextlib.suppress(ClientError), Cluster(self._servers, patience=0) as cluster:
            tell(cluster, self._name, report)


async def _show_progress(subscription: Subscription) -> None:
    """Print a line at intervals if something was written; for a copy on a terminal, show a bar."""
    before: Position | None = None
    is_terminal = sys.stderr.isatty()
    drawn = False
    while True:
        copier = subscription.copier
        if is_terminal and (copier is not None or drawn):
            drawn = copier is not None
            sys.stderr.write(_ANEW + (_told(copier) if copier is not None else ""))
            sys.stderr.flush()
            await trio.sleep(_BAR_SECONDS)
            continue
        await trio.sleep(_PROGRESS_SECONDS)
        if (copier := subscription.copier) is not None:
            say("info", "binlog.copied", rows=copier.done, of_about=copier.total, table=copier.table)
        now = subscription.position
        if now is not None and before is not None and now.messages > before.messages:
            say(
                "info",
                "binlog.written",
                messages=now.messages,
                per_second=round((now.messages - before.messages) / _PROGRESS_SECONDS),
                place=now.place.gtids or f"{now.place.file}:{now.place.position}",
                behind_seconds=_behind(now),
            )
        before = now


def _told(copier: Copier) -> str:
    """A bar that shows how many of the rows are done; their total is the server's estimate."""
    part = min(copier.done / copier.total, 1) if copier.total else 0
    table = visible(copier.table)
    return f"[{'#' * round(part * _BAR):-<{_BAR}}] {copier.done:,} of about {copier.total:,} rows copied, {table}"


def status(args: argparse.Namespace) -> int:
    """Print the progress of the subscriptions."""
    try:
        with Cluster(args.server) as cluster:
            found = positions(cluster)
            said = reports(cluster, found)
    except ClientError as error:
        return failed(str(error))
    rows = [
        (
            name,
            each.source,
            each.place.gtids or "-",
            f"{each.place.file}:{each.place.position}",
            each.messages,
            _time(each.made),
            _time(each.written),
            _behind(each),
            *_said(said.get(name)),
        )
        for name, each in sorted(found.items())
    ]
    print(table(_COLUMNS, rows))
    return 0


def _said(report: Report | None) -> tuple[str, str, str]:
    """What a subscription has reported: its state, messages per second, and its last error."""
    if report is None:
        return "-", "-", "-"
    state = report.state_at(time.time())
    rate = f"{report.per_second:g}" if state in ("READING", "COPYING") else "-"
    return state, rate, visible(f"{_time(report.error_at)} {report.error}") if report.error else "-"


def _behind(position: Position) -> int:
    """Seconds from when the server made the last event until it was written."""
    return max(position.written - position.made, 0) if position.made and position.written else 0


def _time(seconds: int) -> str:
    if not seconds:
        return "-"
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
