"""A stream's text, taken apart: options, SELECT, FROM, WHERE, and TDengine's clauses for windows.

    [option ...] [AS] SELECT item, ... FROM topic [WHERE condition] [PARTITION BY column, ...]
        INTERVAL(10s[, offset]) [SLIDING(5s)] | SESSION([column,] gap) | STATE_WINDOW(state)
        | EVENT_WINDOW(START WITH condition END WITH condition) | COUNT_WINDOW(records[, step])
        [HAVING condition]

Spark's SQL has no such clauses, so they are cut out here, by tokens. What is left of the text (the items, the
conditions) stays Spark's SQL, and is looked at by the streams driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, TypeAlias

import msgspec

from barnabas.wire.streams.durations import milliseconds
from barnabas.wire.streams.tokens import (
    NUMBER,
    QUOTED,
    WORD,
    SyntaxProblem,
    Token,
    closing,
    joined,
    problem,
    split_at,
    tokens,
)

#: A record may fall into at most so many sliding windows.
MAX_OVERLAP = 100
#: The record's own time: the default event time.
RECORD_TIME = "_timestamp"
WINDOW_CLOSE, AT_ONCE = "window_close", "at_once"
_AHEAD_MS = 60_000
#: Windows and keys whose state is kept: one takes some 100 bytes and more on disk.
MAX_STATE_ROWS = 10_000_000
#: Of a window that records open and close, its records are kept, in parts: a part has at most so many.
MAX_PART_ROWS = 1_000_000
#: A window of more records than that is none of a stream.
MAX_COUNT = 1_000_000
_LEAST_DELAY_MS = 3000


class Interval(msgspec.Struct, frozen=True, tag="interval"):
    """Windows of one length, each `sliding_ms` after the one before, counted from 1970 plus `offset_ms`."""

    length_ms: int
    sliding_ms: int
    offset_ms: int = 0


class Session(msgspec.Struct, frozen=True, tag="session"):
    """Windows that end when nothing has come for `gap_ms`."""

    gap_ms: int


class StateWindow(msgspec.Struct, frozen=True, tag="state"):
    """Windows of records with one state."""


class EventWindow(msgspec.Struct, frozen=True, tag="event"):
    """Windows from a record that meets one condition to one that meets another."""


class CountWindow(msgspec.Struct, frozen=True, tag="count"):
    """Windows of so many records, each `sliding` records after the one before."""

    count: int
    sliding: int


#: Windows that records open and close, in the order of event time.
RowWindow: TypeAlias = StateWindow | EventWindow | CountWindow
Window: TypeAlias = Interval | Session | RowWindow


class Item(NamedTuple):
    """Something that is selected or grouped by: its tokens, and its name in the results."""

    tokens: tuple[Token, ...]
    name: str

    @property
    def text(self) -> str:
        """As Spark's SQL."""
        return joined(self.tokens)


class Clauses(msgspec.Struct, frozen=True, kw_only=True):
    """A stream's text. Conditions and expressions are tokens; an empty one is not there."""

    text: str
    items: tuple[Item, ...]
    source: str
    window: Window
    where: tuple[Token, ...] = ()
    having: tuple[Token, ...] = ()
    partition: tuple[Item, ...] = ()
    pre_filter: tuple[Token, ...] = ()
    key: tuple[Token, ...] = ()  # of SUBTABLE
    #: The state of a state window, or the two conditions of an event window.
    marks: tuple[tuple[Token, ...], ...] = ()
    time: str = RECORD_TIME
    watermark_ms: int = 0
    trigger: str = WINDOW_CLOSE
    max_delay_ms: int = 0
    max_ahead_ms: int = _AHEAD_MS
    max_state_rows: int = MAX_STATE_ROWS
    fill_history: bool = False


#: What TDengine has and a stream does not, and what to do instead.
_NOT = {
    "TAGS": "select the value as a column",
    "NOTIFY": "read the results with a consumer",
    "NOTIFY_OPTIONS": "read the results with a consumer",
    "CALC_NOTIFY_ONLY": "read the results with a consumer",
    "FILL": "a window without records gives no result",
    "PERIOD": "use INTERVAL, whose windows follow the time of the records",
    "TRUE_FOR": "use HAVING _wduration > n, in milliseconds",
    "FORCE_WINDOW_CLOSE": "use MAX_DELAY",
    "DELETE_MARK": "a window's state ends when the watermark has passed it",
    "EXPIRED_TIME": "use WATERMARK: later records are ignored and counted",
    "IGNORE_DISORDER": "use WATERMARK: later records are ignored and counted",
    "DELETE_RECALC": "records of a topic are not deleted one by one",
    "DELETE_OUTPUT_TABLE": "drop the topic of the results by DROP TOPIC",
    "FILL_HISTORY_FIRST": "use FILL_HISTORY 1: history comes first in any case",
    "LOW_LATENCY_CALC": "leave it out",
    "FORCE_OUTPUT": "a window without records gives no result",
    "IGNORE_NODATA_TRIGGER": "a window without records gives no result",
    "WINDOW_OPEN": "results come when a window closes, or at once",
    "COMPOSITE": "leave COMPOSITE KEY out",
}
_NOT_SELECT = {
    "JOIN": "a stream reads one topic",
    "GROUP": "write PARTITION BY, and the window as INTERVAL(...) or SESSION(...)",
    "ORDER": "results come in the order in which windows close",
    "LIMIT": "a stream has no end",
    "UNION": "make a stream for each source",
    "DISTINCT": "write PARTITION BY",
    "WINDOW": "window functions are not possible",
    "LATERAL": "a stream reads one topic",
    "OVER": "window functions are not possible",
}
_ROW_WINDOWS = ("STATE_WINDOW", "EVENT_WINDOW", "COUNT_WINDOW")
_AFTER_FROM = ("WHERE", "PARTITION", "INTERVAL", "SLIDING", "SESSION", *_ROW_WINDOWS, "HAVING")
_FORM = (
    "[options] AS SELECT ... FROM topic [WHERE ...] [PARTITION BY ...] INTERVAL(...) [SLIDING(...)] | SESSION(...) | "
    "STATE_WINDOW(...) | EVENT_WINDOW(...) | COUNT_WINDOW(...)"
)


def parse_stream(text: str) -> Clauses:
    """A stream's text. Raises SyntaxProblem, with the place, for what is none or is not supported."""
    return _Parser(text).stream()


class _Parser:
    """The tokens of one text, from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens(text)
        self.at = 0
        self.seen: dict[str, Token] = {}
        self.found: dict[str, object] = {}

    # --- moving -------------------------------------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> Token:
        """A token from here; behind the last one there is an empty one."""
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else Token("end", "", len(self.text), len(self.text))

    def take(self) -> Token:
        """The next token."""
        token = self.peek()
        self.at += 1
        return token

    def wrong(self, what: str, token: Token | None = None) -> SyntaxProblem:
        """An error about a token, by default the next one."""
        return problem(self.text, (token or self.peek()).start, what)

    def expect(self, *words: str) -> Token:
        """The next token, which must be one of these."""
        if not self.peek().says(*words):
            raise self.wrong(f"expected {' or '.join(words)}")
        return self.take()

    def inside(self) -> list[Token]:
        """The tokens in the parentheses that begin here."""
        if not self.peek().says("("):
            raise self.wrong("expected (")
        end = closing(self.text, self.tokens, self.at)
        found = self.tokens[self.at + 1 : end]
        self.at = end + 1
        return found

    def once(self, token: Token) -> None:
        """Note a clause, which may stand there once."""
        word = token.text.upper()
        if word in self.seen:
            raise self.wrong(f"{word} is given twice", token)
        self.seen[word] = token

    # --- the text -----------------------------------------------------------------------------------------------------

    def stream(self) -> Clauses:
        """All of it."""
        while not self.peek().says("AS", "SELECT"):
            self.option()
        if self.peek().says("AS"):
            self.take()
        self.expect("SELECT")
        items = self.upto(("FROM",))
        if not self.peek().says("FROM"):
            raise self.wrong(f"expected FROM: a stream is {_FORM}")
        self.take()
        self.found["source"] = self.source()
        while self.at < len(self.tokens):
            self.clause()
        return self.whole(items)

    def upto(self, words: Sequence[str]) -> list[Token]:
        """The tokens before one of these words that stands in no parentheses."""
        found: list[Token] = []
        depth = 0
        while self.at < len(self.tokens):
            token, before = self.peek(), found[-1] if found else None
            if before is not None and token.says("DISTINCT") and before.says("IS", "NOT"):
                found += [self.take(), self.expect("FROM")]  # an operator
                continue
            if not depth and token.says(*words):
                break
            word = token.text.upper() if token.kind == WORD else ""
            if word in _NOT_SELECT and not (word == "DISTINCT" and depth):
                raise self.wrong(f"{word} is not supported: {_NOT_SELECT[word]}", token)
            if not depth and word in _NOT and self.peek(1).says("("):
                raise self.wrong(f"{word} is not supported: {_NOT[word]}", token)
            depth += token.says("(", "[") - token.says(")", "]")
            if depth < 0:
                raise self.wrong("the parenthesis is not opened", token)
            found.append(self.take())
        return found

    def source(self) -> str:
        """The topic that is read."""
        token = self.take()
        if token.kind not in (WORD, QUOTED) or token.says(*_AFTER_FROM):
            raise self.wrong("expected the name of a topic", token)
        following = self.peek()
        if following.says(".", "-"):
            raise self.wrong("a topic's name with . or - stands in backquotes", token)
        if following.says(","):
            raise self.wrong("a stream reads one topic", following)
        return token.name

    def clause(self) -> None:
        """One clause behind FROM."""
        token = self.peek()
        word = token.text.upper() if token.kind == WORD else ""
        if word in _NOT_SELECT or word in _NOT:
            raise self.wrong(f"{word} is not supported: {(_NOT_SELECT | _NOT)[word]}")
        if word not in _AFTER_FROM:
            raise self.wrong(f"expected {', '.join(_AFTER_FROM)}, or the end")
        self.once(self.take())
        if word in ("WHERE", "HAVING"):
            self.found[word.lower()] = tuple(self.condition(word))
        elif word == "PARTITION":
            self.expect("BY")
            self.found["partition"] = self.partition(self.upto(_AFTER_FROM))
        elif word == "INTERVAL":
            self.found["interval"] = self.durations(token, 1, 2)
        elif word == "SLIDING":
            self.found["sliding"] = self.durations(token, 1, 1)[0]
        elif word in _ROW_WINDOWS:
            self.row_window(token, word)
        else:
            self.session(token)

    def row_window(self, clause: Token, word: str) -> None:
        """A window that records open and close."""
        if "row_window" in self.found:
            raise self.wrong("a stream has one kind of window", clause)
        opening = self.peek()
        inside = self.inside()
        if word == "COUNT_WINDOW":
            self.found["row_window"] = self.count_window(inside, opening)
            return
        if word == "STATE_WINDOW":
            parts = split_at(inside, ",") if inside else []
            if len(parts) != 1 or not parts[0]:
                raise self.wrong("STATE_WINDOW takes one column or expression", opening)
            self.found["row_window"], self.found["marks"] = StateWindow(), (tuple(inside),)
            return
        ends = next((n for n, t in enumerate(inside[:-1]) if t.says("END") and inside[n + 1].says("WITH")), 0)
        marks = tuple(inside[2:ends]), tuple(inside[ends + 2 :])
        if len(inside) < 2 or not (inside[0].says("START") and inside[1].says("WITH")) or not all(marks):
            raise self.wrong("expected START WITH condition END WITH condition", opening)
        self.found["row_window"], self.found["marks"] = EventWindow(), marks

    def count_window(self, inside: list[Token], opening: Token) -> CountWindow:
        """The numbers of COUNT_WINDOW."""
        numbers = []
        for part in split_at(inside, ",") if inside else []:
            if len(part) != 1 or not part[0].text.isdecimal() or not 0 < int(part[0].text[:12]) <= MAX_COUNT:
                raise self.wrong(f"expected a number from 1 to {MAX_COUNT:,}", part[0] if part else opening)
            numbers.append(int(part[0].text))
        if not 1 <= len(numbers) <= 2:
            raise self.wrong("COUNT_WINDOW takes the number of records, and the step to the next window", opening)
        count, sliding = numbers[0], numbers[-1]
        if sliding > count:
            raise self.wrong("the step is at most the number of records", opening)
        if count > MAX_OVERLAP * sliding:
            raise self.wrong(f"a record may be in at most {MAX_OVERLAP} windows: make the step larger", opening)
        return CountWindow(count, sliding)

    def condition(self, word: str) -> list[Token]:
        found = self.upto(_AFTER_FROM)
        if not found:
            raise self.wrong(f"expected a condition behind {word}")
        return found

    def durations(self, clause: Token, least: int, most: int) -> list[int]:
        """The durations in the parentheses of a clause."""
        opening = self.peek()
        parts = split_at(self.inside(), ",")
        if not least <= len(parts) <= most:
            raise self.wrong(f"{clause.text.upper()} takes {least} or {most} durations", opening)
        return [self.duration(part, opening) for part in parts]

    def duration(self, part: Sequence[Token], opening: Token) -> int:
        """A duration, which may stand in quotes."""
        if len(part) != 1:
            raise self.wrong("expected a duration, such as 10s", part[0] if part else opening)
        try:
            return milliseconds(part[0].text.strip("'\""))
        except ValueError as error:
            raise self.wrong(str(error), part[0]) from None

    def session(self, clause: Token) -> None:
        opening = self.peek()
        parts = split_at(self.inside(), ",")
        if len(parts) == 2:
            if len(parts[0]) != 1 or parts[0][0].kind not in (WORD, QUOTED):
                raise self.wrong("expected the column of the time", parts[0][0] if parts[0] else opening)
            self.time(parts[0][0])
        if len(parts) > 2:
            raise self.wrong("SESSION takes a column and a duration", opening)
        self.found["session"] = self.duration(parts[-1], opening)

    def time(self, column: Token) -> None:
        if self.found.setdefault("time", column.name) != column.name:
            raise self.wrong(f"the time is {self.found['time']} already", column)

    def partition(self, found: list[Token]) -> tuple[Item, ...]:
        """What is grouped by: columns, calls, or anything with a name."""
        items = tuple(self.item(part, "PARTITION BY") for part in split_at(found, ","))
        for item in items:
            primary = len(item.tokens) == 1 or (
                item.tokens[1].says("(") and closing(self.text, item.tokens, 1) == len(item.tokens) - 1
            )
            if not primary and item.name == item.text:
                raise self.wrong("give what you partition by a name: expression AS name", item.tokens[0])
        return items

    def item(self, part: Sequence[Token], clause: str) -> Item:
        """An expression with its name: what stands behind AS, else the column's, else its text."""
        if not part:
            raise self.wrong(f"expected a column in {clause}")
        if part[0].says("*") and len(part) == 1:
            raise self.wrong("name the columns: * has no meaning for a window", part[0])
        if len(part) > 2 and part[-2].says("AS") and part[-1].kind in (WORD, QUOTED):
            return Item(tuple(part[:-2]), part[-1].name)
        if len(part) == 1 and part[0].kind in (WORD, QUOTED):
            return Item(tuple(part), part[0].name)
        if len(part) > 1 and self._is_alias(part[-2], part[-1]):
            return Item(tuple(part[:-1]), part[-1].name)
        return Item(tuple(part), joined(part))

    @staticmethod
    def _is_alias(before: Token, last: Token) -> bool:
        """Whether a name stands behind an expression, without AS."""
        if last.kind not in (WORD, QUOTED) or last.says("END", "NULL", "TRUE", "FALSE"):
            return False
        return before.says(")", "]", "END") or before.kind in (QUOTED, NUMBER, "string")

    # --- options ------------------------------------------------------------------------------------------------------

    def option(self) -> None:
        """One option before AS."""
        token = self.take()
        word = token.text.upper() if token.kind == WORD else ""
        if word in _NOT:
            raise self.wrong(f"{word} is not supported: {_NOT[word]}", token)
        if word == "STREAM_OPTIONS":
            self.options()
            return
        handler = self._OPTIONS.get(word)
        if handler is None:
            raise self.wrong(f"expected {', '.join(sorted(self._OPTIONS))}, or AS SELECT", token)
        if word != "IGNORE":
            self.once(token)
        handler(self)

    def options(self) -> None:
        """STREAM_OPTIONS(a | b): the same options in another form."""
        opening = self.at
        end = closing(self.text, self.tokens, opening) if self.peek().says("(") else -1
        if end < 0:
            raise self.wrong("expected (")
        kept, self.tokens, self.at = self.tokens, self.tokens[:end], opening + 1
        while self.at < end:
            self.option()
            if self.at < end:
                self.expect("|")
        self.tokens, self.at = kept, end + 1

    def value(self) -> list[Token]:
        """What belongs to an option: in parentheses, or the next token."""
        return self.inside() if self.peek().says("(") else [self.take()]

    def _duration_of(self, name: str) -> None:
        opening = self.peek()
        self.found[name] = self.duration(self.value(), opening)

    def _watermark(self) -> None:
        self._duration_of("watermark_ms")

    def _max_delay(self) -> None:
        at = self.peek()
        self._duration_of("max_delay_ms")
        self._check_delay(at)

    def _check_delay(self, at: Token) -> None:
        least = self.found["max_delay_ms"]
        assert isinstance(least, int)
        if least < _LEAST_DELAY_MS:
            raise self.wrong(f"MAX_DELAY is at least {_LEAST_DELAY_MS // 1000}s", at)

    def _max_ahead(self) -> None:
        self._duration_of("max_ahead_ms")

    def _max_state_rows(self) -> None:
        found = self.value()
        if len(found) != 1 or not found[0].text.isdecimal() or not 0 < int(found[0].text[:12]) < 10**10:
            raise self.wrong("expected a number of rows", found[0] if found else None)
        self.found["max_state_rows"] = int(found[0].text)

    def _trigger(self) -> None:
        token = self.take()
        if token.says("AT_ONCE"):
            self.found["trigger"] = AT_ONCE
        elif token.says("MAX_DELAY"):
            self.once(token)
            self._max_delay()
        elif token.says("FORCE_WINDOW_CLOSE"):
            raise self.wrong(f"FORCE_WINDOW_CLOSE is not supported: {_NOT['FORCE_WINDOW_CLOSE']}", token)
        elif not token.says("WINDOW_CLOSE"):
            raise self.wrong("expected WINDOW_CLOSE, AT_ONCE or MAX_DELAY", token)

    def _event_type(self) -> None:
        for part in split_at(self.value(), ",", "|"):
            if len(part) != 1 or not part[0].says("WINDOW_CLOSE"):
                raise self.wrong("expected WINDOW_CLOSE: results come when a window closes", part[0] if part else None)

    def _event_time(self) -> None:
        found = self.value()
        if len(found) != 1 or found[0].kind not in (WORD, QUOTED):
            raise self.wrong("expected the column of the time", found[0] if found else None)
        self.time(found[0])

    def _ignore(self) -> None:
        what = self.expect("EXPIRED", "UPDATE")
        self.once(what)
        if self.peek().says("0") or self.peek().text == "0":
            raise self.wrong(
                f"IGNORE {what.text.upper()} 0 is not supported: use a longer WATERMARK, or RECALCULATE STREAM later"
            )
        if self.peek().text == "1":
            self.take()

    def _fill_history(self) -> None:
        token = self.peek()
        found = self.value() if token.says("(") or token.text in ("0", "1") else []
        if found and (len(found) != 1 or found[0].text not in ("0", "1")):
            raise self.wrong("FILL_HISTORY is 0 or 1: a time is not supported", found[0])
        self.found["fill_history"] = not found or found[0].text == "1"

    def _pre_filter(self) -> None:
        self.found["pre_filter"] = tuple(self.inside())

    def _subtable(self) -> None:
        self.found["key"] = tuple(self.inside())

    _OPTIONS: ClassVar[dict[str, Callable[[_Parser], None]]] = {
        "EVENT_TIME": _event_time,
        "EVENT_TYPE": _event_type,
        "FILL_HISTORY": _fill_history,
        "IGNORE": _ignore,
        "MAX_AHEAD": _max_ahead,
        "MAX_DELAY": _max_delay,
        "OUTPUT_SUBTABLE": _subtable,
        "MAX_STATE_ROWS": _max_state_rows,
        "PRE_FILTER": _pre_filter,
        "SUBTABLE": _subtable,
        "TRIGGER": _trigger,
        "WATERMARK": _watermark,
    }

    # --- together -----------------------------------------------------------------------------------------------------

    def whole(self, items: list[Token]) -> Clauses:
        """What was found, checked as a whole."""
        found = self.found
        window = self.window()
        if found.get("trigger") == AT_ONCE and isinstance(window, Session):
            raise self.wrong(
                "TRIGGER AT_ONCE is not supported with SESSION: Spark tells a session when it closes",
                self.seen["TRIGGER"],
            )
        if isinstance(window, RowWindow):
            for option in ("TRIGGER", "MAX_DELAY"):
                if option in self.seen and (option == "MAX_DELAY" or found.get("trigger") == AT_ONCE):
                    raise self.wrong(
                        f"{option} is not supported here: such a window closes with a record", self.seen[option]
                    )
            found.setdefault("max_state_rows", MAX_PART_ROWS)
        windows = ("interval", "sliding", "session", "row_window")
        fields = {name: value for name, value in found.items() if name not in windows}
        selected = tuple(self.item(part, "SELECT") for part in split_at(items, ","))
        return Clauses(text=self.text, items=selected, window=window, **fields)  # type: ignore[arg-type]

    def window(self) -> Window:
        interval, sliding, session = (self.found.get(name) for name in ("interval", "sliding", "session"))
        if interval is not None and session is not None:
            raise self.wrong("a stream has one kind of window", self.seen["SESSION"])
        rows = self.found.get("row_window")
        if isinstance(rows, RowWindow):
            other = next((self.seen[word] for word in ("INTERVAL", "SLIDING", "SESSION") if word in self.seen), None)
            if other is not None:
                raise self.wrong("a stream has one kind of window", other)
            return rows
        if isinstance(session, int):
            if sliding is not None:
                raise self.wrong("SLIDING goes with INTERVAL", self.seen["SLIDING"])
            if session == 0:
                raise self.wrong("the gap of a session is longer than nothing", self.seen["SESSION"])
            return Session(session)
        if not isinstance(interval, list):
            raise self.wrong(f"expected a window: a stream is {_FORM}")
        length, offset = interval[0], interval[1] if len(interval) == 2 else 0
        step = sliding if isinstance(sliding, int) else length
        if not 0 < step <= length:
            raise self.wrong(
                "SLIDING is longer than nothing, and at most INTERVAL", self.seen.get("SLIDING", self.seen["INTERVAL"])
            )
        if length > MAX_OVERLAP * step:
            raise self.wrong(
                f"a record may be in at most {MAX_OVERLAP} windows: make SLIDING longer", self.seen["SLIDING"]
            )
        if offset >= step:
            raise self.wrong("the offset is shorter than a window's step", self.seen["INTERVAL"])
        return Interval(length, step, offset)
