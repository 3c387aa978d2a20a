"""The tables of docs/reference, made from the code: `python -m compat_tests.site.tables` writes them again.

`barnabas.broker.doc_tables` makes the broker's tables (APIs, settings, rights); they are written together.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import groupby

import trio
from prometheus_client.core import Metric

from barnabas.broker import doc_tables
from barnabas.broker.log import EventLog
from barnabas.broker.node import Node
from barnabas.broker.settings.config import BrokerConfig
from barnabas.scripts.cli import parser
from barnabas.scripts.command_line import asked
from barnabas.scripts.statements import FORMS
from barnabas.streams.query import functions
from barnabas.streams.select import aggregates as plain_aggregates
from barnabas.streams.select import typed
from barnabas.streams.windows import aggregates as stream_aggregates
from barnabas.wire.streams import clauses, joins, windows
from compat_tests.tools import ROOT


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _code(text: str) -> str:
    """Text as code in a cell of a table."""
    return "`" + text.replace("|", "\\|") + "`" if text else ""


def _cell(text: str) -> str:
    """Prose in a cell of a table."""
    for sign in ("|", "*", "<"):
        text = text.replace(sign, "\\" + sign)
    return " ".join(text.split())


# -- SQL -------------------------------------------------------------------------------------------------------------


def statements() -> str:
    """The statements of the command `sql`, by their first word."""
    forms = sorted({form.strip(): None for text in FORMS.values() for form in _forms(text)})
    return "\n".join(["```text", *forms, "```"])


def _forms(text: str) -> Iterator[str]:
    """The alternatives of a form, each with the form's first words: `ALTER TOPIC name A | B` has two."""
    depth, begun, found = 0, 0, []
    for at, sign in enumerate(text):
        depth += (sign in "([") - (sign in ")]")
        if sign == "|" and not depth:
            found.append(text[begun:at].strip())
            begun = at + 1
    found.append(text[begun:].strip())
    first = found[0].split()
    for form in found:
        yield form if form.split()[0] == first[0] else " ".join([*first[:3], form])


def stream_clauses() -> str:
    """The clauses of a stream."""
    options = sorted(clauses.OPTIONS)
    rows = [
        ("before `AS SELECT`", ", ".join(map(_code, options))),
        ("windows, of which a stream has one", ", ".join(map(_code, _windows()))),
        ("behind `FROM topic`", ", ".join(map(_code, ["JOIN", "LEFT JOIN", "WITHIN", "WHERE", "PARTITION BY"]))),
        ("behind a window", ", ".join(map(_code, ["SLIDING", "TRUE_FOR", "FILL", "HAVING"]))),
    ]
    return _table(("where", "clauses"), rows)


def _windows() -> list[str]:
    return sorted(("INTERVAL", "SESSION", "PERIOD", *windows.ROW_WINDOWS))


def refused_clauses() -> str:
    """The clauses of TDengine and SQL that a stream does not have."""
    found = {
        **clauses.REFUSED,
        **clauses.REFUSED_IN_SELECT,
        **{f"FILL({word})": why for word, why in windows.REFUSED_FILLS.items()},
        **{word if word == "OUTER" else f"{word} JOIN": why for word, why in joins.REFUSED_JOINS.items()},
    }
    found["a second JOIN"] = found.pop("JOIN")
    return _refused(found, "clause")


def _refused(found: Mapping[str, str], what: str) -> str:
    """A table of names, grouped by their text."""
    by_reason: dict[str, list[str]] = {}
    for name, why in found.items():
        by_reason.setdefault(why, []).append(name)
    rows = sorted((", ".join(map(_code, sorted(names))), _cell(why)) for why, names in by_reason.items())
    return _table((what, "instead"), rows)


def aggregates() -> str:
    """The aggregates of streams, by their arguments."""
    by_arguments: dict[str, list[str]] = {}
    for name, found in sorted(stream_aggregates.AGGREGATES.items()):
        takes = "one" if found.arguments == 1 else "two, the second one a literal" if found.literals else "two"
        by_arguments.setdefault(takes, []).append(name)
    return _table(("arguments", "aggregates"), ((takes, " ".join(map(_code, n))) for takes, n in by_arguments.items()))


def refused_aggregates() -> str:
    """The aggregates that streams do not have."""
    return _refused(stream_aggregates.INSTEAD, "aggregate")


def query_functions() -> str:
    """The functions of queries, by their first letters."""
    names = sorted(functions.FUNCTIONS)
    signs = [name for name in names if not name[0].isalpha()]
    rows = [("operators", " ".join(_code(name) for name in signs))]
    for letter, found in groupby((name for name in names if name[0].isalpha()), lambda name: name[0]):
        rows.append((letter, " ".join(map(_code, found))))
    return _table(("", "functions"), rows)


def refused_functions() -> str:
    """Functions that are left out on purpose."""
    return _refused(functions.INSTEAD, "function")


def plain_functions() -> str:
    """The functions of small SELECTs that run without Spark."""
    names = [*sorted(typed.FUNCTIONS), *sorted(plain_aggregates.NAMES)]
    return ", ".join(map(_code, names)) + "."


# -- metrics ---------------------------------------------------------------------------------------------------------


@cache
def _families() -> list[Metric]:
    """All metric families of a broker that has just started."""

    async def collected(folder: str) -> list[Metric]:
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "barnabas.http.listen": "127.0.0.1:0", "log.dir": folder}
        node = Node(BrokerConfig(settings), EventLog(io.StringIO()))
        async with trio.open_nursery() as nursery:
            await nursery.start(node.run)
            assert node.metrics is not None
            found = await node.metrics.families()
            node.stop()
            await node.stopped.wait()
        return found

    with tempfile.TemporaryDirectory() as folder:
        return trio.run(collected, folder)


def metrics() -> str:
    """Every family, by the beginning of its name."""
    rows = []
    for family in sorted(_families(), key=lambda each: each.name):
        labels = ", ".join(map(_code, getattr(family, "_labelnames", ())))
        suffix = "_total" if family.type == "counter" else ""
        rows.append((_code(family.name + suffix), family.type, labels, _cell(family.documentation)))
    return _table(("metric", "kind", "labels", "what it says"), rows)


# -- the command line --------------------------------------------------------------------------------------------------


def commands() -> str:
    """Every command, in the order of `barnabas --help`."""
    return "\n\n".join(_commands(parser()))


def _commands(found: argparse.ArgumentParser) -> Iterator[str]:
    verbs = next((each for each in found._actions if isinstance(each, argparse._SubParsersAction)), None)
    if verbs is None:
        yield from _command(found)
        return
    helps = {choice.dest.partition(" ")[0]: choice.help or "" for choice in verbs._choices_actions}
    names = {id(each): name for name, each in reversed(verbs.choices.items())}  # the name before its aliases
    level = found.prog.count(" ")
    for each in dict.fromkeys(verbs.choices.values()):
        name = names[id(each)]
        others = [alias for alias, same in verbs.choices.items() if same is each and alias != name]
        heading = f"{'#' * (level + 2)} {_plain(found.prog)} {name}"
        also = f" Also `{', '.join(others)}`." if others else ""
        yield heading
        told = each.description if each.description and "\n" not in each.description else helps[name]
        yield _sentence(told) + also
        yield from _commands(each)


def _plain(prog: str) -> str:
    """A command's name, without argparse's text between it and its verb."""
    return " ".join(word for word in prog.split() if not word.startswith(("-", "[")))


def _sentence(text: str) -> str:
    return _cell(text[:1].upper() + text[1:]).rstrip(".") + "." if text else ""


def _command(found: argparse.ArgumentParser) -> Iterator[str]:
    """The options and arguments of a command."""
    shared = {option for action in asked()._actions for option in action.option_strings}
    rows = []
    for action in found._actions:
        if action.help == argparse.SUPPRESS or shared & {*action.option_strings} or "--help" in action.option_strings:
            continue
        rows.append((_code(_typed(action)), _cell((action.help or "").replace("%%", "%"))))
    if rows:
        yield _table(("option", "meaning"), rows)
    if found.epilog:
        yield "```text\n" + found.epilog.partition(": ")[2] + "\n```"


def _typed(action: argparse.Action) -> str:
    """An option as a user types it."""
    if action.nargs == 0:
        value = ""
    elif action.choices is not None:
        value = "|".join(map(str, action.choices))
    elif isinstance(action.metavar, str):
        value = action.metavar
    else:
        value = action.dest.upper()
    if action.option_strings:
        return ", ".join(action.option_strings) + (f" {value}" if value else "")
    return {"?": f"[{value}]", "*": f"[{value} ...]", "+": f"{value} ..."}.get(str(action.nargs), value)


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "aggregates": ("docs/reference/sql.md", aggregates),
    "clauses": ("docs/reference/sql.md", stream_clauses),
    "commands": ("docs/reference/commands.md", commands),
    "functions": ("docs/reference/sql.md", query_functions),
    "metrics": ("docs/reference/metrics.md", metrics),
    "plain-functions": ("docs/reference/sql.md", plain_functions),
    "refused-aggregates": ("docs/reference/sql.md", refused_aggregates),
    "refused-clauses": ("docs/reference/sql.md", refused_clauses),
    "refused-functions": ("docs/reference/sql.md", refused_functions),
    "statements": ("docs/reference/sql.md", statements),
}


if __name__ == "__main__":
    for tables in (doc_tables.TABLES, TABLES):
        for table, (file, make) in tables.items():
            path = ROOT / file
            path.write_text(doc_tables.put(table, make(), path.read_text()))
