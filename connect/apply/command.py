"""`barnabas connect apply`."""

from __future__ import annotations

import argparse

import trio

from barnabas.connect.apply.applier import Applier, FinalError, Settings
from barnabas.connect.loop import prepare
from barnabas.connect.mysql.source import SourceError, source_of
from barnabas.connect.telling import end_at_signals, failed, say

_PROGRESS_SECONDS = 10.0


def apply(args: argparse.Namespace) -> int:
    """Apply topics to a server. Returns 1 if it cannot continue."""
    try:
        target = source_of(args.target)
    except SourceError as error:
        return failed(str(error).replace("the source", "the target"))
    if len(args.name) > 100 or not args.name.isascii():
        return failed("--name has at most 100 ASCII characters")
    settings = Settings(
        name=args.name,
        topics=tuple(dict.fromkeys(args.topic)),
        tables=tuple(args.tables),
        ddl=args.ddl,
        until_end=args.until_end,
        wait=max(args.wait, 0),
    )
    applier = Applier(args.server, target, settings, say)
    prepare()
    try:
        trio.run(_follow, applier)
    except FinalError as error:
        return failed(str(error))
    say("info", "apply.ended", name=args.name, rows=applier.rows)
    return 0


async def _follow(applier: Applier) -> None:
    """Run the applier until it ends or a signal comes. Raises FinalError."""
    final: FinalError | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_at_signals, nursery.cancel_scope)
        nursery.start_soon(_show_progress, applier)
        try:
            await applier.run()
        except FinalError as error:
            final = error
        nursery.cancel_scope.cancel()
    if final is not None:
        raise final


async def _show_progress(applier: Applier) -> None:
    before = 0
    while True:
        await trio.sleep(_PROGRESS_SECONDS)
        if applier.rows > before:
            say(
                "info",
                "apply.applied",
                rows=applier.rows,
                per_second=round((applier.rows - before) / _PROGRESS_SECONDS),
            )
        before = applier.rows
