"""Where reading begins, or a group is placed: `beginning`, `end`, an offset, a number from the end, or a time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from barnabas.client.errors import ClientError

FORMS = "beginning, end, an offset, -N for the last N records, or @TIME: @2026-01-31T12:00, @-2h, @1700000000000"
_AGO = re.compile(r"-(\d+)([smhd])$")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Start(NamedTuple):
    """`number` is an offset, a count from the end, or milliseconds since 1970."""

    kind: Literal["beginning", "end", "offset", "last", "time"]
    number: int = 0


def parse_start(text: str | None, now: datetime | None = None, option: str = "--offset") -> Start | None:
    """Parse a start; None for None. A time without a zone is local time. Raises ClientError."""
    if text is None:
        return None
    word = text.strip().lower()
    if word in ("beginning", "earliest", "start", "first"):
        return Start("beginning")
    if word in ("end", "latest"):
        return Start("end")
    if word.startswith("@"):
        return Start("time", _time(word[1:], now or datetime.now(UTC), option))
    try:
        number = int(word)
    except ValueError:
        raise ClientError(f"{option} {text}: expected {FORMS}") from None
    return Start("last", -number) if number < 0 or word.startswith("-") else Start("offset", number)


def _time(text: str, now: datetime, option: str) -> int:
    ago = _AGO.match(text)
    if ago is not None:
        return int((now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).timestamp() * 1000)
    if text.isdigit():
        return int(text)
    try:
        return int(datetime.fromisoformat(text.upper()).timestamp() * 1000)
    except ValueError:
        raise ClientError(f"{option} @{text}: expected {FORMS}") from None
