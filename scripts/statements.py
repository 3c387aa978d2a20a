"""Parses the statements of `barnabas sql`. What follows AS is Spark SQL, and left unchanged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas.client.errors import ClientError
from barnabas.scripts.habits import habit
from barnabas.scripts.insert import Insert, parse_insert
from barnabas.scripts.mistakes import did_you_mean
from barnabas.wire.streams.cursor import Cursor
from barnabas.wire.streams.tokens import BRACKETED, COMMENT, WORD, SyntaxProblem, lexed

#: The forms of each statement, by its first word.
FORMS = {
    "CREATE": "CREATE TOPIC [IF NOT EXISTS] name [(column TYPE, ...)] [PARTITIONS n] [WITH ('key' = 'value', ...)] "
    "[AS SELECT ...] | CREATE STREAM [IF NOT EXISTS] name [option ...] [INTO topic] [PARTITIONS n] "
    "[WITH ('key' = 'value', ...)] AS SELECT ...",
    "DROP": "DROP TOPIC [IF EXISTS] name [CASCADE] | DROP STREAM [IF EXISTS] name",
    "ALTER": "ALTER TOPIC name AS SELECT ... | SET ('key' = 'value', ...) | INFER SCHEMA",
    "INSERT": "INSERT INTO topic [(column, ...)] VALUES (...), ...",
    "SHOW": "SHOW TOPICS | SHOW QUERIES | SHOW STREAMS | SHOW CONSUMERS | SHOW SUBSCRIPTIONS | SHOW CREATE TOPIC name",
    "DESCRIBE": "DESCRIBE [TOPIC] name | DESCRIBE STREAM name",
    "EXPLAIN": "EXPLAIN SELECT ... | EXPLAIN CREATE STREAM ... | EXPLAIN STREAM name",
    **{word: f"{word} STREAM name" for word in ("PAUSE", "RESUME", "STOP", "START", "RECALCULATE")},
}

_SHOWN = 60


class CreateTopic(NamedTuple):
    """An ordinary topic, perhaps with columns (DDL), or one made from a query."""

    name: str
    if_not_exists: bool
    columns: str | None
    partitions: int
    options: dict[str, str]
    query: str | None


class DropTopic(NamedTuple):
    """`cascade` also drops a topic that query topics or streams read."""

    name: str
    if_exists: bool
    cascade: bool = False


class AlterTopic(NamedTuple):
    """Exactly one of the three is given."""

    name: str
    query: str | None = None
    options: dict[str, str] | None = None
    infer: bool = False


class CreateStream(NamedTuple):
    """A stream. `text` is what the broker gets: the options, and the SELECT with its clauses."""

    name: str
    if_not_exists: bool
    into: str
    partitions: int
    options: dict[str, str]
    text: str


class DropStream(NamedTuple):
    name: str
    if_exists: bool


class ControlStream(NamedTuple):
    name: str
    word: str  # PAUSE, RESUME, STOP, START or RECALCULATE


class Show(NamedTuple):
    what: str  # TOPICS, QUERIES, STREAMS, CONSUMERS or SUBSCRIPTIONS


class ShowCreate(NamedTuple):
    name: str


class Describe(NamedTuple):
    name: str


class DescribeStream(NamedTuple):
    name: str


class Select(NamedTuple):
    query: str


class Explain(NamedTuple):
    """An existing stream, a statement that would create one, or a SELECT."""

    what: str | CreateStream | Select


Statement = (
    CreateTopic
    | DropTopic
    | Insert
    | AlterTopic
    | CreateStream
    | DropStream
    | ControlStream
    | Show
    | ShowCreate
    | Describe
    | DescribeStream
    | Explain
    | Select
)


class Written(NamedTuple):
    """A statement as written, without comments, and the line where it begins, counted from 1."""

    text: str
    line: int


def split(text: str) -> Iterator[str]:
    """The texts that `written` yields."""
    return (each.text for each in written(text))


def written(text: str) -> Iterator[Written]:
    """The statements of a text, each ended by `;`, without comments. Hints stay. Raises ClientError."""
    begin, parts, first = 0, "", -1
    try:
        for token in lexed(text):
            if token.says(";"):
                parts, begin, whole = "", token.end, parts + text[begin : token.start]
                if whole.strip():
                    yield Written(whole.strip(), text.count("\n", 0, first) + 1)
                first = -1
            elif token.kind in (COMMENT, BRACKETED) and not token.text.startswith("/*+"):
                parts, begin = f"{parts}{text[begin : token.start]} ", token.end
            elif first < 0:
                first = token.start
    except SyntaxProblem as error:
        raise ClientError(str(error)) from None
    if (parts + text[begin:]).strip():
        yield Written((parts + text[begin:]).strip(), text.count("\n", 0, max(first, 0)) + 1)


def parse(text: str) -> Statement:
    """Parse one statement. Raises ClientError with the expected form."""
    word = (re.match(r"[A-Za-z]+", text) or [""])[0].upper()
    if word in ("SELECT", "WITH", "FROM", "VALUES"):
        return Select(text)
    word = "DESCRIBE" if word == "DESC" else word
    if (instead := habit(text)) is not None:
        raise ClientError(instead)
    if word not in FORMS:
        near = did_you_mean(word, ["SELECT", *FORMS]) if word else ""
        raise ClientError(f"{text.split()[0][:_SHOWN]}: expected SELECT, {', '.join(FORMS)}{near}")
    try:
        return _Parser(text).statement(word)
    except SyntaxProblem as error:
        raise ClientError(f"{error}; the form is: {FORMS[word]}") from None


class _Parser(Cursor):
    """Reads a statement from left to right. All methods raise SyntaxProblem."""

    def statement(self, word: str) -> Statement:
        if word == "INSERT":
            return parse_insert(self.text)
        self.expect(word, *(("DESC",) if word == "DESCRIBE" else ()))
        makers: dict[str, Callable[[], Statement]] = {
            "CREATE": self._create,
            "DROP": self._drop,
            "ALTER": self._alter,
            "SHOW": self._show,
            "DESCRIBE": self._describe,
            "EXPLAIN": self._explain,
        }
        found = makers[word]() if word in makers else self._control(word)
        self.end()
        return found

    def _create(self) -> CreateTopic | CreateStream:
        if self.expect("TOPIC", "STREAM").says("STREAM"):
            return self._create_stream()
        quiet, name = self.takes("IF", "NOT", "EXISTS"), self.topic()
        columns, partitions, options, query = None, -1, dict[str, str](), None
        if self.peek().says("("):
            columns = self._columns()
        while query is None and self.at < len(self.tokens):
            clause = self.expect("PARTITIONS", "WITH", "AS")
            if clause.says("PARTITIONS"):
                partitions = self._number()
            elif clause.says("WITH"):
                options = self.options()
            else:
                query = self._query()
        return CreateTopic(name, quiet, columns, partitions, options, query)

    def _columns(self) -> str:
        """The content of the parentheses that begin here."""
        opening = self.peek()
        self.inside()
        return self.text[opening.end : self.tokens[self.at - 1].start].strip()

    def _number(self) -> int:
        if not self.peek().text.isdecimal():
            raise self.wrong("expected a number")
        return int(self.take().text)

    def _query(self) -> str:
        """The rest, which is Spark SQL."""
        if self.peek().kind != WORD and not self.peek().says("("):
            raise self.wrong("expected SELECT")
        query, self.at = self.rest(), len(self.tokens)
        return query

    def _create_stream(self) -> CreateStream:
        """The target of the stream is cut out; the rest of the text is the stream itself."""
        quiet, name = self.takes("IF", "NOT", "EXISTS"), self.topic("stream")
        into, partitions, options = name, -1, dict[str, str]()
        first = self.at
        kept = list(self.text)
        while self.at < len(self.tokens) and not self.peek().says("AS", "SELECT"):
            begin = self.take()
            if begin.says("INTO"):
                into = self.topic()
            elif begin.says("PARTITIONS") and self.peek().text.isdecimal():
                partitions = self._number()
            elif begin.says("WITH") and self.peek().says("("):
                options = self.options()
            else:
                if self.peek().says("("):
                    self.inside()
                continue
            end = self.tokens[self.at - 1].end
            kept[begin.start : end] = " " * (end - begin.start)
        body = "".join(kept[self.tokens[first].start :]).strip() if first < len(self.tokens) else ""
        self.at = len(self.tokens)
        return CreateStream(name, quiet, into, partitions, options, body)

    def _drop(self) -> DropTopic | DropStream:
        is_topic = self.expect("TOPIC", "STREAM").says("TOPIC")
        quiet = self.takes("IF", "EXISTS")
        if not is_topic:
            return DropStream(self.topic("stream"), quiet)
        return DropTopic(self.topic(), quiet, self.takes("CASCADE"))

    def _control(self, word: str) -> ControlStream:
        self.expect("STREAM")
        name = self.topic("stream")
        if self.at < len(self.tokens):
            raise self.wrong(f"{self.rest()} is not supported: a stream goes on where it was")
        return ControlStream(name, word)

    def _explain(self) -> Explain:
        if self.peek().says("SELECT", "WITH", "FROM", "VALUES"):
            return Explain(Select(self._query()))
        if self.takes("CREATE", "STREAM"):
            return Explain(self._create_stream())
        self.expect("STREAM")
        return Explain(self.topic("stream"))

    def _alter(self) -> AlterTopic:
        self.expect("TOPIC")
        name, clause = self.topic(), self.expect("AS", "SET", "INFER")
        if clause.says("AS"):
            return AlterTopic(name, query=self._query())
        if clause.says("SET"):
            return AlterTopic(name, options=self.options())
        self.expect("SCHEMA")
        return AlterTopic(name, infer=True)

    def _show(self) -> Show | ShowCreate | Describe:
        if self.takes("TABLES"):
            return Show("TOPICS")
        if self.takes("CREATE"):
            self.expect("TOPIC", "TABLE")
            return ShowCreate(self.topic())
        if self.takes("COLUMNS"):
            self.expect("FROM", "IN")
            return Describe(self.topic())
        return Show(self.expect("TOPICS", "QUERIES", "STREAMS", "CONSUMERS", "SUBSCRIPTIONS").text.upper())

    def _describe(self) -> Describe | DescribeStream:
        is_named = self.peek(1).kind != "end" and self.peek().end < self.peek(1).start
        if is_named and self.takes("STREAM"):
            return DescribeStream(self.topic("stream"))
        if is_named and not self.takes("TOPIC"):
            self.takes("TABLE")
        return Describe(self.topic())
