"""`barnabas export`."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime

from barnabas.client.errors import ClientError
from barnabas.wire.text import visible


def run(args: argparse.Namespace) -> int:
    """Export, and print in the last line what was written. Returns 1 if a partition failed. Raises ClientError."""
    try:
        from barnabas.streams.export import Request, export
        from barnabas.streams.export.progress import megabytes
        from barnabas.streams.wal import WalError
    except ImportError as error:
        raise ClientError(str(error)) from None
    request = Request(
        topics=tuple(args.topic),
        data_dir=args.data_dir,
        to=args.to,
        pattern=args.pattern,
        since_ms=_since(args.start),
        format=args.format,
        schema=args.schema,
        master=args.master,
        rows_per_file=args.rows_per_file,
    )
    try:
        totals = export(request)
    except WalError as error:
        raise ClientError(str(error)) from None
    for line in totals.warnings + totals.errors:
        print(visible(f"barnabas: {line}"), file=sys.stderr)
    print(
        f"{totals.rows:,} rows in {totals.files:,} files, {megabytes(totals.bytes)}, {totals.seconds:.1f} s "
        f"to {args.to}" + (f"; {len(totals.errors)} partitions failed" if totals.errors else "")
    )
    return 1 if totals.errors else 0


def _since(text: str) -> int | None:
    """Milliseconds since 1970; None for `earliest`. A time without a zone is local time. Raises ClientError."""
    if text == "earliest":
        return None
    try:
        return int(text) if text.isdigit() else int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ClientError(
            f"--from {text}: expected earliest, milliseconds since 1970, or a time like 2024-05-01T12:00:00Z"
        ) from None
