"""FROM with a join: a topic's records, each with those of another topic, or with a table's row.

    FROM topic [[AS] name] [[INNER] | LEFT [OUTER]] JOIN other [[AS] name] [WITHIN 10m]
        ON name.column = name.column [AND ...]

With WITHIN both are streams: two records are joined if these columns are equal and their times are no further apart
than that. Without it, the other topic is a table: the latest value of each key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from barnabas.wire.streams.cursor import Cursor
from barnabas.wire.streams.tokens import QUOTED, WORD, Token

#: The key of a record, which is also the key of a table's rows.
KEY = "_key"
MAX_KEYS = 8
#: Words that begin or end a join.
JOIN_WORDS = ("INNER", "LEFT", "OUTER", "JOIN", "WITHIN", "ON", "RIGHT", "FULL", "CROSS", "NATURAL", "SEMI", "ANTI")
REFUSED_JOINS = {
    "RIGHT": "name the topics the other way round, with LEFT JOIN",
    "FULL": "a result is in a window of the first topic's time; use LEFT JOIN",
    "CROSS": "write JOIN ... WITHIN 10s ON ...",
    "NATURAL": "write JOIN ... ON ...",
    "SEMI": "use JOIN",
    "ANTI": "use LEFT JOIN, and WHERE name._key IS NULL",
    "OUTER": "write LEFT JOIN",
}


class Join(msgspec.Struct, frozen=True):
    """The other topic of a stream, under the name that its columns have in the text.

    `keys` are pairs of equal columns, of the stream's topic and of the other one; `within_ms` is 0 for a table. `at` is
    the topic's position in the text.
    """

    source: str
    name: str
    keys: tuple[tuple[str, str], ...]
    is_left: bool = False
    within_ms: int = 0
    at: int = 0

    @property
    def is_table(self) -> bool:
        """Whether only the latest value of each key counts, rather than each record."""
        return not self.within_ms


def join(cursor: Cursor, source: str, aliases: Iterable[str]) -> Join | None:
    """Parse the join that begins here, if there is one.

    `source` is the stream's topic, which may have another name in the text. Raises SyntaxProblem.
    """
    _refuse_others(cursor)
    word = cursor.peek()
    if not word.says("INNER", "LEFT", "JOIN"):
        return None
    is_left = word.says("LEFT")
    if not word.says("JOIN"):
        cursor.take()
        if is_left:
            cursor.takes("OUTER")
        _refuse_others(cursor)
    cursor.once(cursor.expect("JOIN"))
    mine = {each.lower() for each in (source, *aliases)}
    topic, name = _joined(cursor, source, mine)
    within = _within(cursor)
    if not cursor.peek().says("ON"):
        raise cursor.wrong(f"expected {'' if within else 'WITHIN, or '}ON with the columns that are equal")
    clause = cursor.take()
    keys = [_equal(cursor, mine, name)]
    while cursor.peek().says("AND"):
        cursor.take()
        keys.append(_equal(cursor, mine, name))
    if len(keys) > MAX_KEYS:
        raise cursor.wrong(f"at most {MAX_KEYS} columns can be compared", clause)
    if not within and (len(keys) > 1 or keys[0][1].lower() != KEY):
        raise cursor.wrong(
            f"a table has a row for each key: write ON ... = {name}.{KEY}, or WITHIN for each record of {topic.name}",
            clause,
        )
    return Join(topic.name, name, tuple(keys), is_left, within, topic.start)


def _refuse_others(cursor: Cursor) -> None:
    """Raises SyntaxProblem for an unsupported kind of join."""
    word = cursor.peek()
    if word.says(*REFUSED_JOINS):
        raise cursor.wrong(f"{word.text.upper()} is not supported: {REFUSED_JOINS[word.text.upper()]}")


def _joined(cursor: Cursor, source: str, mine: Collection[str]) -> tuple[Token, str]:
    """The joined topic, and its name in the text."""
    topic = topic_at(cursor)
    alias = alias_at(cursor)
    name = alias.name if alias is not None else topic.name
    if topic.name == source:
        raise cursor.wrong("a topic is not joined with itself: have a stream write another one first", topic)
    if name.lower() in mine:
        raise cursor.wrong("two topics have one name: give the second one another", alias)
    if name.startswith("_"):
        raise cursor.wrong("names with _ are those of a record's parts: use another", alias or topic)
    return topic, name


def _within(cursor: Cursor) -> int:
    """The duration of WITHIN in milliseconds; 0 if it does not come next."""
    if not cursor.peek().says("WITHIN"):
        return 0
    clause = cursor.take()
    opening = cursor.peek()
    within = cursor.duration(cursor.inside() if opening.says("(") else [cursor.take()], opening)
    if not within:
        raise cursor.wrong("WITHIN is longer than nothing", clause)
    return within


def topic_at(cursor: Cursor) -> Token:
    """The name of a topic. Raises SyntaxProblem."""
    token = cursor.take()
    if token.kind not in (WORD, QUOTED) or token.says(*JOIN_WORDS):
        raise cursor.wrong("expected the name of a topic", token)
    if cursor.peek().says(".", "-"):
        raise cursor.wrong("a topic's name with . or - stands in backquotes", token)
    return token


def alias_at(cursor: Cursor, but: Sequence[str] = ()) -> Token | None:
    """The alias of a topic in the text, if one comes next; these words are not aliases."""
    if cursor.peek().says("AS"):
        cursor.take()
        if cursor.peek().kind not in (WORD, QUOTED):
            raise cursor.wrong("expected a name behind AS")
        return cursor.take()
    token = cursor.peek()
    if token.kind not in (WORD, QUOTED) or token.says(*JOIN_WORDS, *but) or cursor.peek(1).says("("):
        return None
    return cursor.take()


def _equal(cursor: Cursor, mine: Iterable[str], name: str) -> tuple[str, str]:
    """Two equal columns: that of the stream's topic, and that of the other one."""
    first = cursor.peek()
    one = _column(cursor)
    if not cursor.peek().says("=", "=="):
        raise cursor.wrong("expected =: columns are compared, for anything else write WHERE")
    cursor.take()
    other = _column(cursor)
    if one[0] == name.lower() and other[0] in mine:
        one, other = other, one
    if one[0] not in mine or other[0] != name.lower():
        raise cursor.wrong(f"expected a column of each topic: {min(mine)}.column = {name}.column", first)
    return one[1], other[1]


def _column(cursor: Cursor) -> tuple[str, str]:
    """NAME.COLUMN."""
    found = [cursor.take() for _ in range(3)]
    if found[0].kind not in (WORD, QUOTED) or not found[1].says(".") or found[2].kind not in (WORD, QUOTED):
        raise cursor.wrong("expected name.column", found[0])
    return found[0].name.lower(), found[2].name


def without_names(found: Sequence[Token], mine: Iterable[str]) -> list[Token]:
    """The tokens, without the stream's own topic names before its columns."""
    mine = {each.lower() for each in mine}
    kept: list[Token] = []
    at = 0
    while at < len(found):
        token = found[at]
        if (
            at + 2 < len(found)
            and token.kind in (WORD, QUOTED)
            and token.name.lower() in mine
            and found[at + 1].says(".")
            and found[at + 2].kind in (WORD, QUOTED)
            and not (kept and kept[-1].says("."))
        ):
            at += 2
            continue
        kept.append(token)
        at += 1
    return kept
