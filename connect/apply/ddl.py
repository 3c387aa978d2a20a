"""Which statements of a topic are run in the target, without I/O.

A statement is a text from any client that may write to the topic. It is run only if the operator allowed it (`--ddl`),
and only if it creates, changes or drops tables, indexes, views or databases and reads or reaches nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.connect.binlog.ddl import Token, tables_of, tokens

SYSTEM = frozenset({"mysql", "information_schema", "performance_schema", "sys", "barnabas_apply"})
_VERBS = frozenset({"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"})
#: Words that may stand between a verb and its object.
_BETWEEN = frozenset(("OR", "REPLACE", "TEMPORARY", "ONLINE", "OFFLINE", "IGNORE", "UNIQUE", "FULLTEXT", "SPATIAL"))
_BETWEEN |= {"ALGORITHM", "UNDEFINED", "MERGE", "TEMPTABLE", "SQL", "SECURITY", "INVOKER", "DEFINER"}
_RUN = frozenset({"TABLE", "TABLES", "INDEX", "VIEW", "DATABASE", "SCHEMA"})
#: The target does not need these: the rows already contain what triggers did, and the rest does not concern rows.
_LEFT_OUT = frozenset(("TRIGGER", "EVENT", "PROCEDURE", "FUNCTION", "AGGREGATE", "PACKAGE", "SERVER", "USER", "ROLE"))
_LEFT_OUT |= {"GRANT", "REVOKE", "SET", "FLUSH", "ANALYZE", "OPTIMIZE", "REPAIR", "CHECK"}
_ENGINES = frozenset({"INNODB", "MYISAM", "ARIA", "MEMORY", "HEAP", "ROCKSDB", "ARCHIVE", "BLACKHOLE"})


class Judged(NamedTuple):
    """Whether to run a statement and, if not, why. `refused`: the applier must stop as well.

    `tables` are the tables it concerns; `database` is the one that it creates or drops itself.
    """

    run: bool
    refused: bool = False
    reason: str = ""
    tables: tuple[tuple[str, str], ...] = ()
    database: str = ""


def judged(sql: str, database: str) -> Judged:
    """Decide about a statement that was issued in a database."""
    found = tokens(sql)
    verb = found[0].text if found and found[0].kind == "word" else ""
    if verb == "XA":
        return _judged_xa(found)
    if verb in _LEFT_OUT:
        return Judged(False, reason=f"{verb} is not about rows")
    if verb not in _VERBS:
        return Judged(False, refused=True, reason=f"{verb or 'it'} is not a statement that is run")
    about, rest = _about(found[1:])
    if verb == "TRUNCATE":
        about = "TABLE"
    if about in _LEFT_OUT:
        return Judged(False, reason=f"{about} is not applied")
    if about not in _RUN:
        return Judged(False, refused=True, reason=f"{verb} {about} is not a statement that is run")
    if about in ("DATABASE", "SCHEMA"):
        return _allowed([], next((t.text if t.kind == "name" else t.raw for t in rest if _is_name(t)), database))
    if about == "VIEW":
        return _allowed([(database, "")], "")
    reason = _reaches_out(found)
    if reason:
        return Judged(False, refused=True, reason=reason)
    tables = tables_of(sql, database)
    if not tables:
        return Judged(False, refused=True, reason="it names no table")
    return _allowed(tables, "")


def _judged_xa(found: list[Token]) -> Judged:
    if len(found) > 1 and found[1].text == "ROLLBACK":
        return Judged(
            False,
            refused=True,
            reason="a prepared transaction was rolled back whose changes were applied when it was prepared: undo them",
        )
    return Judged(False, reason="the changes were applied when the transaction was prepared")


def _about(found: list[Token]) -> tuple[str, list[Token]]:
    """The kind of object that a statement concerns, and the tokens after it."""
    at = 0
    while at < len(found):
        token = found[at]
        if token.kind == "word" and token.text in _BETWEEN:
            if token.text == "DEFINER":  # = user@host
                at += 1
                while at < len(found) and found[at].text not in _RUN | _LEFT_OUT and found[at].text != "SQL":
                    at += 1
                continue
        elif token.text != "=":
            return token.text if token.kind == "word" else "", found[at + 1 :]
        at += 1
    return "", []


def _is_name(token: Token) -> bool:
    return token.kind == "name" or (token.kind == "word" and token.text not in ("IF", "NOT", "EXISTS"))


def _allowed(tables: list[tuple[str, str]], database: str) -> Judged:
    for name in [*(each for each, _ in tables), *filter(None, [database])]:
        if name.lower() in SYSTEM:
            return Judged(False, refused=True, reason=f"the database {name} is none of the subscription's")
        if not name:
            return Judged(False, refused=True, reason="it names no database")
    return Judged(True, tables=tuple(tables), database=database)


def _reaches_out(found: list[Token]) -> str:
    """Why a statement about tables does more than that: it reads other tables, files or servers."""
    depth = 0
    for number, token in enumerate(found):
        depth += {"(": 1, ")": -1}.get(token.raw, 0)
        if token.kind != "word":
            continue
        behind = [each for each in found[number + 1 : number + 3] if each.text != "="]
        after = behind[0] if behind else Token("", "", "")
        if token.text in ("SELECT", "EXCHANGE", "OUTFILE", "DUMPFILE"):
            return f"it has the word {token.text}: a statement must not read other tables or files"
        if token.text in ("DATA", "INDEX") and after.text == "DIRECTORY":
            return "it names a directory"
        if token.text == "CONNECTION" and after.kind == "text":
            return "it names a connection"
        # inside parentheses it is the name of a column
        if token.text == "ENGINE" and not depth and after.text.strip("'\"").upper() not in _ENGINES:
            return "it names an engine that may read files or other servers"
    return ""
