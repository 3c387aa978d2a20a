"""What a statement of the log concerns, judged by its words: which tables it creates, changes or drops.

Only the words that matter are understood; about the rest nothing is claimed. Comments are skipped, but the content of
executable comments (`/*!50100 ... */`) counts, as it does for the server.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<space>\s+|/\*M?!\d*|\*/|/\*.*?\*/|--(?=\s|$)[^\n]*|\#[^\n]*)
    |(?P<name>`(?:[^`]|``)*`)
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<word>[\w$]+)
    |(?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)
Table = tuple[str, str]


class Token(NamedTuple):
    """`kind` is name (quoted), text, word or mark. A name is stored without its quotes, a word in capitals."""

    kind: str
    text: str
    raw: str


def tokens(sql: str) -> list[Token]:
    """The tokens of a statement, without comments."""
    found = []
    for match in _TOKEN.finditer(sql):
        kind = match.lastgroup or "mark"
        raw = match[0]
        if kind == "name":
            found.append(Token(kind, raw[1:-1].replace("``", "`"), raw))
        elif kind != "space":
            found.append(Token(kind, raw.upper() if kind == "word" else raw, raw))
    return found


class _Words:
    """Tokens, read from left to right."""

    def __init__(self, found: Sequence[Token], database: str) -> None:
        self._found, self._database = found, database
        self._at = 0

    def take(self, *wanted: str) -> bool:
        """Consume a word if it is one of these, and return whether it was."""
        if self._at < len(self._found):
            token = self._found[self._at]
            if token.kind in ("word", "mark") and token.text in wanted:
                self._at += 1
                return True
        return False

    def take_all(self, *wanted: str) -> None:
        while self.take(*wanted):
            pass

    def seek(self, word: str) -> bool:
        """Skip past the next such word, and return whether there is one."""
        while self._at < len(self._found):
            if self.take(word):
                return True
            self._at += 1
        return False

    def name(self) -> str:
        if self._at < len(self._found):
            token = self._found[self._at]
            if token.kind in ("name", "word"):
                self._at += 1
                return token.text if token.kind == "name" else token.raw
        return ""

    def table(self) -> list[Table]:
        """The table that is named next; empty if no name follows."""
        first = self.name()
        if not first:
            return []
        if self.take("."):
            return [(first, self.name())]
        return [(self._database, first)]

    def tables(self) -> list[Table]:
        found = self.table()
        while self.take(","):
            found += self.table()
        return found


def tables_of(sql: str, database: str) -> list[Table] | None:
    """The tables that a statement creates, changes, renames (both names) or drops; None if it concerns no table."""
    words = _Words(tokens(sql), database)
    if words.take("RENAME"):
        return _renamed(words) if words.take("TABLE", "TABLES") else None
    if words.take("TRUNCATE"):
        words.take("TABLE")
        return words.table()
    is_drop = words.take("DROP")
    if not is_drop and not words.take("CREATE", "ALTER"):
        return None
    words.take_all("OR", "REPLACE", "TEMPORARY", "ONLINE", "OFFLINE", "IGNORE", "UNIQUE", "FULLTEXT", "SPATIAL")
    if words.take("INDEX"):
        return words.table() if words.seek("ON") else None
    if not words.take("TABLE", "TABLES"):
        return None
    words.take_all("IF", "NOT", "EXISTS")
    if is_drop:
        return words.tables()
    found = words.table()
    while words.seek("RENAME"):
        if words.take("COLUMN", "INDEX", "KEY"):
            continue
        words.take("TO", "AS", "=")
        found += words.table()
    return found


def _renamed(words: _Words) -> list[Table]:
    words.take_all("IF", "EXISTS")
    found: list[Table] = []
    while True:
        found += words.table()
        if not words.seek("TO"):
            return found
        found += words.table()
        if not words.take(","):
            return found


def renames_of(sql: str, database: str) -> list[tuple[Table, Table]]:
    """The old and new names of the tables that a statement renames, in the server's order."""
    words = _Words(tokens(sql), database)
    found = tables_of(sql, database) or []
    if words.take("RENAME"):
        return list(zip(found[::2], found[1::2], strict=False))
    return [(found[0], found[-1])] if words.take("ALTER") and len(found) > 1 else []


def is_drop(sql: str) -> bool:
    """Whether a statement removes things."""
    found = tokens(sql)
    return bool(found) and found[0].kind == "word" and found[0].text == "DROP"
