"""The parser for a stream's text: options, SELECT, FROM, WHERE, and TDengine's clauses for windows.

    [option ...] [AS] SELECT item, ... FROM topic [join] [WHERE condition] [PARTITION BY column, ...]
        INTERVAL(10s[, offset]) [SLIDING(5s)] | SESSION([column,] gap) | STATE_WINDOW(...) | EVENT_WINDOW(...)
        | COUNT_WINDOW(...) | PERIOD(10s[, offset])  [FILL(...)] [HAVING condition]

Spark SQL has no such clauses, so they are cut out here, token by token. The rest (the items and conditions) stays Spark
SQL, which the streams driver checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, cast

import msgspec

from barnabas.wire.streams.cursor import Cursor
from barnabas.wire.streams.joins import Join, alias_at, join, topic_at, without_names
from barnabas.wire.streams.tokens import NUMBER, QUOTED, WORD, Token, closing, joined, split_at
from barnabas.wire.streams.windows import (
    MAX_OVERLAP,
    ROW_WINDOWS,
    Fill,
    Interval,
    Marks,
    RowWindow,
    Session,
    Window,
    fill,
    row_window,
)

#: The record's own time, which is the default event time.
RECORD_TIME = "_timestamp"
WINDOW_CLOSE, AT_ONCE = "window_close", "at_once"
_AHEAD_MS = 60_000
#: The most windows and keys whose state is kept: each takes some 100 bytes and more on disk.
MAX_STATE_ROWS = 10_000_000
#: A window that records open and close keeps its records in parts; this is the most of one part.
MAX_PART_ROWS = 1_000_000
#: Each task has a store of its own, with files and threads.
MAX_PARALLELISM = 16
#: How much older than the watermark a recalculated window may be.
EXPIRED_MS = 86_400_000
_LEAST_DELAY_MS = 3000
_LEAST_PERIOD_MS = 1000


class Item(NamedTuple):
    """A selected or grouping expression: its tokens, and its name in the results."""

    tokens: tuple[Token, ...]
    name: str

    @property
    def text(self) -> str:
        """The expression as Spark SQL."""
        return joined(self.tokens)


class Clauses(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed stream. Conditions and expressions are tokens; an empty one is absent."""

    text: str
    items: tuple[Item, ...]
    source: str
    window: Window
    join: Join | None = None
    where: tuple[Token, ...] = ()
    having: tuple[Token, ...] = ()
    partition: tuple[Item, ...] = ()
    pre_filter: tuple[Token, ...] = ()
    key: tuple[Token, ...] = ()  # from SUBTABLE
    #: Columns of PARTITION BY that form the results' key, under their names there.
    tags: tuple[Item, ...] = ()
    #: The state of a state window, or the two conditions of an event window.
    marks: Marks = ()
    fill: Fill | None = None
    #: Whether windows follow the clock: a record belongs to the window in which it is read.
    by_clock: bool = False
    time: str = RECORD_TIME
    watermark_ms: int = 0
    trigger: str = WINDOW_CLOSE
    max_delay_ms: int = 0
    max_ahead_ms: int = _AHEAD_MS
    max_state_rows: int = MAX_STATE_ROWS
    fill_history: bool = False
    #: Late records recalculate windows that closed at most this long before the watermark; 0 for none.
    expired_ms: int = 0
    #: How many tasks hold the state.
    parallelism: int = 1


#: Clauses of TDengine that streams do not have, and what to do instead.
REFUSED = {
    "NOTIFY": "read the results with a consumer",
    "NOTIFY_OPTIONS": "read the results with a consumer",
    "CALC_NOTIFY_ONLY": "read the results with a consumer",
    "FORCE_WINDOW_CLOSE": "use MAX_DELAY",
    "DELETE_MARK": "a window's state ends when the watermark has passed it",
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
#: The same for SQL.
REFUSED_IN_SELECT = {
    "JOIN": "it stands behind FROM topic, once",
    "GROUP": "write PARTITION BY, and the window as INTERVAL(...) or SESSION(...)",
    "ORDER": "results come in the order in which windows close",
    "LIMIT": "a stream has no end",
    "UNION": "make a stream for each source",
    "DISTINCT": "write PARTITION BY",
    "WINDOW": "window functions are not possible",
    "LATERAL": "a stream reads topics",
    "OVER": "window functions are not possible",
}
_AFTER_FROM = ("WHERE", "PARTITION", "PERIOD", "INTERVAL", "SLIDING", "SESSION", *ROW_WINDOWS, "FILL", "HAVING")
_OTHERS = ("INTERVAL", "SLIDING", "SESSION")
#: Options that concern the records' times.
_OF_TIME = ("EVENT_TIME", "WATERMARK", "MAX_DELAY", "MAX_AHEAD", "FILL_HISTORY", "EXPIRED_TIME")
_FORM = (
    "[options] AS SELECT ... FROM topic [JOIN ...] [WHERE ...] [PARTITION BY ...] INTERVAL(...) [SLIDING(...)] | "
    "SESSION(...) | STATE_WINDOW(...) | EVENT_WINDOW(...) | COUNT_WINDOW(...) | PERIOD(...)"
)


def parse_stream(text: str) -> Clauses:
    """Parse a stream's text. Raises SyntaxProblem, with the position, if it is invalid or not supported."""
    return _Parser(text).stream()


class _Parser(Cursor):
    """Parses a stream's text from left to right."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.found: dict[str, object] = {}

    # --- the text -----------------------------------------------------------------------------------------------------

    def stream(self) -> Clauses:
        """Parse the whole text."""
        while not self.peek().says("AS", "SELECT"):
            self.option()
        if self.peek().says("AS"):
            self.take()
        self.expect("SELECT")
        items = self.upto(("FROM",))
        if not self.peek().says("FROM"):
            raise self.wrong(f"expected FROM: a stream is {_FORM}")
        self.take()
        items = self.source(items)
        while self.at < len(self.tokens):
            self.clause()
        return self.whole(items)

    def upto(self, words: Sequence[str]) -> list[Token]:
        """The tokens before the first of these words outside parentheses."""
        found: list[Token] = []
        depth = 0
        while self.at < len(self.tokens):
            token, before = self.peek(), found[-1] if found else None
            if before is not None and token.says("DISTINCT") and before.says("IS", "NOT"):
                found += [self.take(), self.expect("FROM")]  # an operator
                continue
            if not depth and token.says(*words) and (not token.says("FILL", "PERIOD") or self.peek(1).says("(")):
                break
            word = token.text.upper() if token.kind == WORD else ""
            if word in REFUSED_IN_SELECT and not (word == "DISTINCT" and depth):
                raise self.wrong(f"{word} is not supported: {REFUSED_IN_SELECT[word]}", token)
            if not depth and word in REFUSED and self.peek(1).says("("):
                raise self.wrong(f"{word} is not supported: {REFUSED[word]}", token)
            depth += token.says("(", "[") - token.says(")", "]")
            if depth < 0:
                raise self.wrong("the parenthesis is not opened", token)
            found.append(self.take())
        return found

    def source(self, items: list[Token]) -> list[Token]:
        """Parse the topic to read and its join. Returns the items without the topic's name.

        The name is also removed from everything that follows.
        """
        if self.peek().says(*_AFTER_FROM):
            raise self.wrong("expected the name of a topic")
        topic = topic_at(self)
        alias = alias_at(self, (*_AFTER_FROM, *REFUSED, *REFUSED_IN_SELECT))
        aliases = [] if alias is None else [alias.name]
        found = join(self, topic.name, aliases)
        mine = [*aliases, topic.name]
        if self.peek().says(","):
            raise self.wrong("topics are joined by JOIN ... ON ...")
        self.found |= {"source": topic.name, "join": found}
        if alias is None and found is None:
            return items
        for name in ("pre_filter", "key"):
            if name in self.found:
                self.found[name] = tuple(without_names(cast(Sequence[Token], self.found[name]), mine))
        self.tokens[self.at :] = without_names(self.tokens[self.at :], mine)
        return without_names(items, mine)

    def clause(self) -> None:
        """Parse one clause after FROM."""
        token = self.peek()
        word = token.text.upper() if token.kind == WORD else ""
        if word in REFUSED_IN_SELECT or word in REFUSED:
            raise self.wrong(f"{word} is not supported: {(REFUSED_IN_SELECT | REFUSED)[word]}")
        if word == "TRUE_FOR":
            raise self.wrong("TRUE_FOR goes behind STATE_WINDOW or EVENT_WINDOW; elsewhere write HAVING _wduration > n")
        if word not in _AFTER_FROM:
            raise self.wrong(f"expected {', '.join(_AFTER_FROM)}, or the end")
        self.once(self.take())
        if word in ("WHERE", "HAVING"):
            self.found[word.lower()] = tuple(self.condition(word))
        elif word == "PARTITION":
            self.expect("BY")
            self.found["partition"] = self.partition(self.upto(_AFTER_FROM))
        elif word == "PERIOD":
            self.found["by_clock"], self.found["period"] = True, self.durations(token, 1, 2)
        elif word == "INTERVAL":
            self.found["interval"] = self.durations(token, 1, 2)
        elif word == "SLIDING":
            self.found["sliding"] = self.durations(token, 1, 1)[0]
        elif word in ROW_WINDOWS:
            if "row_window" in self.found:
                raise self.wrong("a stream has one kind of window", token)
            self.found["row_window"], self.found["marks"] = row_window(self, word)
        elif word == "FILL":
            self.found["fill"] = fill(self, token)
        else:
            self.session(token)

    def condition(self, word: str) -> list[Token]:
        found = self.upto(_AFTER_FROM)
        if not found:
            raise self.wrong(f"expected a condition behind {word}")
        return found

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
        """The grouping expressions: columns, calls, or anything with a name."""
        items = tuple(self.item(part, "PARTITION BY") for part in split_at(found, ","))
        for item in items:
            primary = len(item.tokens) == 1 or (
                item.tokens[1].says("(") and closing(self.text, item.tokens, 1) == len(item.tokens) - 1
            )
            if not primary and item.name == item.text:
                raise self.wrong("give what you partition by a name: expression AS name", item.tokens[0])
        return items

    def item(self, part: Sequence[Token], clause: str) -> Item:
        """An expression with its name: the one after AS, else the column's, else its text."""
        if not part:
            raise self.wrong(f"expected a column in {clause}")
        if part[0].says("*") and len(part) == 1:
            raise self.wrong("name the columns: * has no meaning for a window", part[0])
        if len(part) > 2 and part[-2].says("AS") and part[-1].kind in (WORD, QUOTED):
            return Item(tuple(part[:-2]), part[-1].name)
        if len(part) == 1 and part[0].kind in (WORD, QUOTED):
            return Item(tuple(part), part[0].name)
        if len(part) == 3 and part[1].says(".") and {part[0].kind, part[2].kind} <= {WORD, QUOTED}:
            return Item(tuple(part), part[2].name)
        if len(part) > 1 and self._is_alias(part[-2], part[-1]):
            return Item(tuple(part[:-1]), part[-1].name)
        return Item(tuple(part), joined(part))

    @staticmethod
    def _is_alias(before: Token, last: Token) -> bool:
        """Whether a name follows an expression without AS."""
        if last.kind not in (WORD, QUOTED) or last.says("END", "NULL", "TRUE", "FALSE"):
            return False
        return before.says(")", "]", "END") or before.kind in (QUOTED, NUMBER, "string")

    # --- options ------------------------------------------------------------------------------------------------------

    def option(self) -> None:
        """Parse one option before AS."""
        token = self.take()
        word = token.text.upper() if token.kind == WORD else ""
        if word in REFUSED:
            raise self.wrong(f"{word} is not supported: {REFUSED[word]}", token)
        if word == "STREAM_OPTIONS":
            self.stream_options()
            return
        handler = self._OPTIONS.get(word)
        if handler is None:
            raise self.wrong(f"expected {', '.join(sorted(self._OPTIONS))}, or AS SELECT", token)
        if word != "IGNORE":
            self.once(token)
        handler(self)

    def stream_options(self) -> None:
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
        """An option's value: in parentheses, or the next token."""
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

    def _parallelism(self) -> None:
        found = self.value()
        if len(found) != 1 or found[0].text not in map(str, range(1, MAX_PARALLELISM + 1)):
            raise self.wrong(f"expected a number of tasks, 1 to {MAX_PARALLELISM}", found[0] if found else None)
        self.found["parallelism"] = int(found[0].text)

    def _trigger(self) -> None:
        token = self.take()
        if token.says("AT_ONCE"):
            self.found["trigger"] = AT_ONCE
        elif token.says("MAX_DELAY"):
            self.once(token)
            self._max_delay()
        elif token.says("FORCE_WINDOW_CLOSE"):
            raise self.wrong(f"FORCE_WINDOW_CLOSE is not supported: {REFUSED['FORCE_WINDOW_CLOSE']}", token)
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
        if self.peek().text == "0" and what.says("EXPIRED"):
            self.seen["IGNORE EXPIRED 0"] = self.take()
            self.found.setdefault("expired_ms", EXPIRED_MS)
        elif self.peek().text == "0":
            raise self.wrong("IGNORE UPDATE 0 is not supported: records of a topic are not changed one by one")
        elif self.peek().text == "1":
            self.take()

    def _expired_time(self) -> None:
        at = self.peek()
        self._duration_of("expired_ms")
        if not self.found["expired_ms"]:
            raise self.wrong("EXPIRED_TIME is longer than nothing", at)

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

    def _tags(self) -> None:
        opening = self.peek()
        found = []
        for part in split_at(self.inside(), ","):
            plain = [token for token in part if token.kind in (WORD, QUOTED)]
            if len(part) == 3 and len(plain) == 3 and part[1].says("AS"):
                found.append(Item((part[0],), part[2].name))
            elif len(part) == 1 == len(plain):
                found.append(Item((part[0],), part[0].name))
            else:
                raise self.wrong(
                    "expected columns of PARTITION BY: TAGS(device, site AS place)", (part or [opening])[0]
                )
        self.found["tags"] = tuple(found)

    _OPTIONS: ClassVar[dict[str, Callable[[_Parser], None]]] = {
        "EVENT_TIME": _event_time,
        "EVENT_TYPE": _event_type,
        "EXPIRED_TIME": _expired_time,
        "FILL_HISTORY": _fill_history,
        "IGNORE": _ignore,
        "MAX_AHEAD": _max_ahead,
        "MAX_DELAY": _max_delay,
        "OUTPUT_SUBTABLE": _subtable,
        "MAX_STATE_ROWS": _max_state_rows,
        "PARALLELISM": _parallelism,
        "PRE_FILTER": _pre_filter,
        "SUBTABLE": _subtable,
        "TAGS": _tags,
        "TRIGGER": _trigger,
        "WATERMARK": _watermark,
    }

    # --- together -----------------------------------------------------------------------------------------------------

    def whole(self, items: list[Token]) -> Clauses:
        """Everything found, after checks of the whole."""
        found = self.found
        window = self.window()
        if found.get("trigger") == AT_ONCE and isinstance(window, Session):
            raise self.wrong(
                "TRIGGER AT_ONCE is not supported with SESSION: Spark tells a session when it closes",
                self.seen["TRIGGER"],
            )
        if "by_clock" in found:
            of_time = next((word for word in _OF_TIME if word in self.seen), None)
            if of_time is not None:
                raise self.wrong(
                    f"{of_time} is not supported with PERIOD: a record is in the period in which it is read",
                    self.seen[of_time],
                )
        if "FILL" in self.seen and (not isinstance(window, Interval) or found.get("trigger") == AT_ONCE):
            raise self.wrong("FILL goes with INTERVAL, and not with TRIGGER AT_ONCE", self.seen["FILL"])
        self.check_expired(window)
        joined = found.get("join")
        if isinstance(joined, Join) and not joined.is_table:
            self.check_joined()
        if isinstance(window, RowWindow):
            if found.get("trigger") == AT_ONCE:
                raise self.wrong(
                    f"TRIGGER AT_ONCE is not supported with {self.row_word()}: the order of records is known when the "
                    "watermark has passed them",
                    self.seen["TRIGGER"],
                )
            found.setdefault("max_state_rows", MAX_PART_ROWS)
        windows = ("period", "interval", "sliding", "session", "row_window")
        fields = {name: value for name, value in found.items() if name not in windows}
        selected = tuple(self.item(part, "SELECT") for part in split_at(items, ","))
        return Clauses(text=self.text, items=selected, window=window, **fields)  # type: ignore[arg-type]

    def check_expired(self, window: Window) -> None:
        """Raises SyntaxProblem for windows that cannot be recalculated."""
        again = self.seen.get("IGNORE EXPIRED 0")
        if again is None and "EXPIRED_TIME" in self.seen:
            raise self.wrong("EXPIRED_TIME goes with IGNORE EXPIRED 0", self.seen["EXPIRED_TIME"])
        if again is not None and (
            not isinstance(window, Interval)
            or "by_clock" in self.found
            or "FILL" in self.seen
            or self.found.get("join") is not None
        ):
            raise self.wrong("IGNORE EXPIRED 0 goes with INTERVAL, without FILL and JOIN", again)

    def check_joined(self) -> None:
        """Raises SyntaxProblem for anything that two streams cannot have."""
        word = next((word for word in ("PERIOD", "FILL", *ROW_WINDOWS) if word in self.seen), None)
        if self.found.get("trigger") == AT_ONCE:
            word = "TRIGGER"
        if word is not None:
            what = "TRIGGER AT_ONCE" if word == "TRIGGER" else word
            raise self.wrong(
                f"{what} is not supported with JOIN ... WITHIN: have a second stream read the results of this one",
                self.seen[word],
            )

    def row_word(self) -> str:
        """The clause word of a window that records open and close."""
        return next(word for word in ROW_WINDOWS if word in self.seen)

    def window(self) -> Window:
        interval, sliding, session = (self.found.get(name) for name in ("interval", "sliding", "session"))
        period = self.found.get("period")
        if isinstance(period, list):
            other = next((self.seen[word] for word in (*_OTHERS, *ROW_WINDOWS) if word in self.seen), None)
            if other is not None:
                raise self.wrong("a stream has one kind of window", other)
            if period[0] < _LEAST_PERIOD_MS:
                raise self.wrong("PERIOD is at least 1s: a batch takes some tenths of a second", self.seen["PERIOD"])
            if period[1:] and period[1] >= period[0]:
                raise self.wrong("the offset is shorter than the period", self.seen["PERIOD"])
            return Interval(period[0], period[0], *period[1:])
        if interval is not None and session is not None:
            raise self.wrong("a stream has one kind of window", self.seen["SESSION"])
        rows = self.found.get("row_window")
        if isinstance(rows, RowWindow):
            other = next((self.seen[word] for word in _OTHERS if word in self.seen), None)
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


#: The first words of the options before AS SELECT.
OPTIONS = tuple(_Parser._OPTIONS)
