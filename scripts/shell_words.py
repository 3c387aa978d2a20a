"""Completes a statement while it is typed (topics, columns, functions, keywords), and colours its words.

Names come from a broker, which may have very many topics or be unreachable. At most as many as fit a menu are offered,
and none if the broker does not answer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from barnabas.client.admin import topic_configs
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.wire.queries.keys import SCHEMA
from barnabas.wire.streams.tokens import (
    BRACKETED,
    COMMENT,
    NUMBER,
    QUOTED,
    STRING,
    WORD,
    SyntaxProblem,
    Token,
    lexed,
)

MOST_SHOWN = 100
_FRESH_SECONDS = 5.0
_PARTS = ("_key", "_value", "_topic", "_partition", "_offset", "_timestamp", "_headers")
_BEFORE_TOPICS = ("FROM", "JOIN", "INTO", "TOPIC", "TABLE", "DESCRIBE", "DESC")
_LAST_WORD = re.compile(r"(?:`[^`]*|[\w.-]*)$")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
KEYWORDS = frozenset(
    """
    ALL ALTER AND AS ASC BETWEEN BY CASCADE CASE CAST CONSUMERS CREATE DESC DESCRIBE DISTINCT DROP ELSE END EXISTS
    EXPLAIN FALSE FROM GROUP HAVING IF IN INFER INNER INSERT INTERVAL INTO IS JOIN LEFT LIKE LIMIT NOT NULL OFFSET ON OR
    ORDER OVER PARTITION PARTITIONS PAUSE QUERIES RECALCULATE RESUME SCHEMA SELECT SESSION SET SHOW SLIDING START
    STATE_WINDOW STOP STREAM STREAMS SUBSCRIPTIONS THEN TIMESTAMP TOPIC TOPICS TRUE UNION VALUES WATERMARK WHEN WHERE
    WITH
    """.split()  # noqa: SIM905
)


class Completion(NamedTuple):
    """A word that replaces the last `replaced` characters."""

    text: str
    replaced: int
    what: str


class Names(Protocol):
    """The names that a statement may use."""

    def topics(self) -> Sequence[str]:
        """All topics; none if the broker is unreachable."""

    def columns(self, topic: str) -> Sequence[str]:
        """The columns of a topic's values."""


class Catalog:
    """The names of a broker, refreshed when they are some seconds old."""

    def __init__(self, server: str, now: Callable[[], float] = time.monotonic) -> None:
        self._server, self._now = server, now
        self._topics: tuple[float, list[str]] = (float("-inf"), [])
        self._columns: dict[str, tuple[float, list[str]]] = {}

    def forget(self) -> None:
        """Call this after a statement that may have changed something."""
        self._topics = (float("-inf"), [])
        self._columns.clear()

    def topics(self) -> list[str]:
        """All topics except internal ones, sorted."""
        if self._now() - self._topics[0] > _FRESH_SECONDS:
            self._topics = self._now(), self._asked_topics()
        return self._topics[1]

    def columns(self, topic: str) -> list[str]:
        """The columns of the topic's schema."""
        at, found = self._columns.get(topic, (float("-inf"), []))
        if self._now() - at > _FRESH_SECONDS:
            found = self._asked_columns(topic) if topic in self.topics() else []
            self._columns = {topic: (self._now(), found), **dict([*self._columns.items()][:MOST_SHOWN])}
        return found

    def _asked_topics(self) -> list[str]:
        try:
            with Cluster(self._server) as cluster, cluster.without_patience():
                return sorted(topic.name or "" for topic in cluster.metadata(None) if not topic.is_internal)
        except ClientError:
            return []

    def _asked_columns(self, topic: str) -> list[str]:
        try:
            with Cluster(self._server) as cluster, cluster.without_patience():
                schema = topic_configs(cluster, [topic], [SCHEMA]).get(topic, {}).get(SCHEMA, "")
        except ClientError:
            return []
        return column_names(schema)


def column_names(schema: str) -> list[str]:
    """The names of a schema's columns, without those inside structs."""
    found, depth, begin = list[str](), 0, True
    for part in re.finditer(r"`(?:[^`]|``)+`|[<>(),]|\w+|\S", schema):
        text = part[0]
        if begin and depth == 0 and (text[0] == "`" or text[0].isalnum() or text[0] == "_"):
            found.append(text[1:-1].replace("``", "`") if text[0] == "`" else text)
            begin = False
        depth += text in ("<", "(")
        depth -= text in (">", ")")
        begin = begin or (text == "," and depth == 0)
    return found


def completions(before: str, whole: str, names: Names, commands: Mapping[str, str]) -> list[Completion]:
    """What may complete `before`, which is the beginning of `whole`."""
    if before.startswith("\\") and " " not in before:
        return [Completion(name, len(before), what) for name, what in commands.items() if name.startswith(before)]
    last = _LAST_WORD.search(before)
    prefix = last[0] if last else ""
    start = before[: len(before) - len(prefix)]
    found = _tokens(start)
    if found is None:  # inside a quoted text
        return []
    is_topic = (bool(found) and found[-1].says(*_BEFORE_TOPICS)) or start.startswith("\\d ")
    plain = prefix.lstrip("`").lower()
    if is_topic:
        groups: Iterable[tuple[str, Iterable[str]]] = [("topic", map(written_name, names.topics()))]
    elif not prefix:
        return []
    else:
        columns = [name for topic in _topics_of(whole) for name in names.columns(topic)]
        groups = [
            ("column", map(written_name, dict.fromkeys([*columns, *_PARTS]))),
            ("function", functions()),
            ("keyword", sorted(KEYWORDS)),
        ]
    made = []
    for what, words in groups:
        for word in words:
            if word.lstrip("`").lower().startswith(plain):
                made.append(Completion(word, len(prefix), what))
            if len(made) == MOST_SHOWN:
                return made
    return made


def written_name(name: str) -> str:
    """The name as a statement needs it: in backquotes if it is not plain."""
    is_plain = _PLAIN_NAME.fullmatch(name) and name.upper() not in KEYWORDS
    return name if is_plain else "`" + name.replace("`", "``") + "`"


def functions() -> list[str]:
    """Spark's functions, if the extra is installed."""
    try:
        from barnabas.streams.query.spark_words import SPARK_FUNCTIONS
    except ImportError:
        return []
    return sorted(SPARK_FUNCTIONS)


def _tokens(text: str) -> list[Token] | None:
    """The tokens of a text that may end anywhere; None if it ends inside a quoted text or comment."""
    try:
        found = list(lexed(text))
    except SyntaxProblem:
        return None
    if found and found[-1].kind in (COMMENT, BRACKETED) and found[-1].end == len(text):
        return None
    return [token for token in found if token.kind not in (COMMENT, BRACKETED)]


def _topics_of(text: str) -> Iterator[str]:
    """The names after FROM and JOIN."""
    for name in re.findall(r"(?:FROM|JOIN)\s+(`(?:[^`]|``)+`|[\w.-]+)", text[-10_000:], re.IGNORECASE):
        yield name[1:-1].replace("``", "`") if name.startswith("`") else name


_STYLES = {COMMENT: "comment", BRACKETED: "comment", STRING: "text", NUMBER: "number", QUOTED: "name"}
_MOST_COLOURED = 20_000


def coloured(text: str) -> list[tuple[str, str]]:
    """A text in parts, each with its kind: keyword, function, text, number, name, comment, or nothing."""
    if len(text) > _MOST_COLOURED:
        return [("", text)]
    parts, at = list[tuple[str, str]](), 0
    try:
        for token in lexed(text):
            parts += [("", text[at : token.start]), (_style(token, text), token.text)]
            at = token.end
    except SyntaxProblem:
        return [*parts, ("text", text[at:])]
    return [*parts, ("", text[at:])]


def _style(token: Token, text: str) -> str:
    if token.kind == WORD and text[token.end : token.end + 1] == "(":
        return "function"
    if token.kind == WORD and token.text.upper() in KEYWORDS:
        return "keyword"
    return _STYLES.get(token.kind, "")
