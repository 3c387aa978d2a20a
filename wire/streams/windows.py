"""The kinds of windows that a stream may have, and the parsers of those clauses that have words inside.

STATE_WINDOW(state) [TRUE_FOR(least)]
EVENT_WINDOW(START WITH condition END WITH condition) [TRUE_FOR(least)]
COUNT_WINDOW(records[, step])
INTERVAL(10s) FILL(NULL | PREV | NEXT | LINEAR | VALUE, value, ...)
least: 10s | COUNT 5 | 10s AND COUNT 5 | 10s OR COUNT 5
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from barnabas.wire.streams.cursor import Cursor
from barnabas.wire.streams.tokens import NUMBER, STRING, Token, split_at

#: The most overlapping windows that one record may fall into.
MAX_OVERLAP = 100
_WORDS = ("TRUE", "FALSE", "NULL")
#: The most records of a stream's window.
MAX_COUNT = 1_000_000


class Interval(msgspec.Struct, frozen=True, tag="interval"):
    """Windows of one length, each beginning `sliding_ms` after the previous one, counted from 1970 plus `offset_ms`."""

    length_ms: int
    sliding_ms: int
    offset_ms: int = 0


class Session(msgspec.Struct, frozen=True, tag="session"):
    """Windows that end when no record has come for `gap_ms`."""

    gap_ms: int


class Least(msgspec.Struct, frozen=True):
    """How long a window must be, and how many records it must have, to count: both, or one of them."""

    duration_ms: int = 0
    count: int = 0
    both: bool = True

    def is_met(self, duration_us: int, count: int) -> bool:
        """Whether a window counts."""
        met = duration_us >= self.duration_ms * 1000, count >= self.count
        return all(met) if self.both else any(met)


class StateWindow(msgspec.Struct, frozen=True, tag="state"):
    """Windows of consecutive records with the same state."""

    least: Least = Least()


class EventWindow(msgspec.Struct, frozen=True, tag="event"):
    """Windows from a record that meets one condition to a record that meets another."""

    least: Least = Least()


class CountWindow(msgspec.Struct, frozen=True, tag="count"):
    """Windows of `count` records, each beginning `sliding` records after the previous one."""

    count: int
    sliding: int


NULL, VALUE, PREV, LINEAR, NEXT = "null", "value", "prev", "linear", "next"


class Fill(msgspec.Struct, frozen=True):
    """The values of empty windows between two windows with records. `at` is the clause's position."""

    kind: str
    values: tuple[tuple[Token, ...], ...] = ()
    at: int = 0


#: Windows that records open and close, in event time order.
RowWindow: TypeAlias = StateWindow | EventWindow | CountWindow
Window: TypeAlias = Interval | Session | RowWindow

#: The clauses of these windows.
ROW_WINDOWS = ("STATE_WINDOW", "EVENT_WINDOW", "COUNT_WINDOW")
#: The expressions to evaluate for each record: its state, or the two conditions.
Marks: TypeAlias = tuple[tuple[Token, ...], ...]


def row_window(cursor: Cursor, word: str) -> tuple[RowWindow, Marks]:
    """Parse a window that records open and close, after its word. Raises SyntaxProblem."""
    opening = cursor.peek()
    inside = cursor.inside()
    if word == "COUNT_WINDOW":
        return _count_window(cursor, inside, opening), ()
    if word == "STATE_WINDOW":
        parts = split_at(inside, ",") if inside else []
        if len(parts) != 1 or not parts[0]:
            raise cursor.wrong("STATE_WINDOW takes one column or expression", opening)
        return StateWindow(_true_for(cursor)), (tuple(inside),)
    ends = next((n for n, t in enumerate(inside[:-1]) if t.says("END") and inside[n + 1].says("WITH")), 0)
    marks = tuple(inside[2:ends]), tuple(inside[ends + 2 :])
    if len(inside) < 2 or not (inside[0].says("START") and inside[1].says("WITH")) or not all(marks):
        raise cursor.wrong("expected START WITH condition END WITH condition", opening)
    return EventWindow(_true_for(cursor)), marks


#: Parts of TDengine's FILL that streams do not have, and what to do instead.
REFUSED_FILLS = {
    "NULL_F": "a range of time without any record gives no result: use NULL",
    "VALUE_F": "a range of time without any record gives no result: use VALUE",
    "NEAR": "use PREV, NEXT or LINEAR",
    "SURROUND": "use WHERE",
}


def fill(cursor: Cursor, clause: Token) -> Fill | None:
    """Parse FILL, after its word; None for FILL(NONE). Raises SyntaxProblem."""
    opening = cursor.peek()
    inside = cursor.inside()
    parts = split_at(inside, ",") if inside else [[]]
    word = parts[0][0].text.upper() if len(parts[0]) == 1 else ""
    if word in REFUSED_FILLS:
        raise cursor.wrong(f"FILL({word}) is not supported: {REFUSED_FILLS[word]}", parts[0][0])
    if word.lower() not in (NULL, VALUE, PREV, LINEAR, NEXT, "none"):
        raise cursor.wrong("expected NULL, VALUE, PREV, LINEAR, NEXT or NONE", parts[0][0] if parts[0] else opening)
    if (word == "VALUE") != (len(parts) > 1):
        raise cursor.wrong(
            "values stand behind VALUE: FILL(VALUE, 0)", parts[1][0] if len(parts) > 1 and parts[1] else opening
        )
    for part in parts[1:]:
        plain = part[1:] if part and part[0].says("-") else part
        if len(plain) != 1 or not (
            plain[0].kind == NUMBER or (plain is part and (plain[0].kind == STRING or plain[0].says(*_WORDS)))
        ):
            raise cursor.wrong("expected a number, a text, TRUE, FALSE or NULL", part[0] if part else opening)
    return None if word == "NONE" else Fill(word.lower(), tuple(map(tuple, parts[1:])), clause.start)


def _count_window(cursor: Cursor, inside: Sequence[Token], opening: Token) -> CountWindow:
    """The numbers of COUNT_WINDOW."""
    numbers = [_count(cursor, part, opening) for part in (split_at(inside, ",") if inside else [])]
    if not 1 <= len(numbers) <= 2:
        raise cursor.wrong(
            "COUNT_WINDOW takes the number of records, and the step to the next window; for those with a value write "
            "WHERE column IS NOT NULL",
            opening,
        )
    count, sliding = numbers[0], numbers[-1]
    if sliding > count:
        raise cursor.wrong("the step is at most the number of records", opening)
    if count > MAX_OVERLAP * sliding:
        raise cursor.wrong(f"a record may be in at most {MAX_OVERLAP} windows: make the step larger", opening)
    return CountWindow(count, sliding)


def _count(cursor: Cursor, part: Sequence[Token], opening: Token) -> int:
    if len(part) != 1 or not part[0].text.isdecimal() or not 0 < int(part[0].text[:12]) <= MAX_COUNT:
        raise cursor.wrong(f"expected a number from 1 to {MAX_COUNT:,}", part[0] if part else opening)
    return int(part[0].text)


def _true_for(cursor: Cursor) -> Least:
    """Parse TRUE_FOR, if it comes next."""
    if not cursor.peek().says("TRUE_FOR"):
        return Least()
    cursor.once(cursor.take())
    opening = cursor.peek()
    inside = cursor.inside()
    between = next((n for n, token in enumerate(inside) if token.says("AND", "OR")), len(inside))
    parts = [inside[:between], inside[between + 1 :]] if between < len(inside) else [inside]
    duration = count = 0
    if not parts[0] or not parts[0][0].says("COUNT"):
        duration = cursor.duration(parts.pop(0), opening)
    if parts:
        part = parts.pop(0)
        if parts or not part or not part[0].says("COUNT"):
            raise cursor.wrong("TRUE_FOR takes a duration, COUNT n, or both in this order with AND or OR", opening)
        count = _count(cursor, part[1:], part[0])
    return Least(duration, count, not (between < len(inside) and inside[between].says("OR")))
