"""Docs speak of what there is: messages in the words of the code, events that are logged, commands that can be typed."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from barnabas.scripts.cli import parser
from barnabas.wire.errors import ErrorCode
from compat_tests.site.pages import DOCS, code_of, pages
from compat_tests.tools import ROOT

ROOMS = ("wire", "storage", "groupcoord", "broker", "client", "connect", "streams", "scripts")
TROUBLE = (DOCS / "reference" / "when-something-is-wrong.md").read_text()
#: A command in code: at the beginning of a line, or behind a pipe.
_TYPED = re.compile(r"(?:^|\||\$\()[ \t]*barnabas ([a-z][a-z-]*(?: [a-z][a-z-]*)?)(?=\s|$)", re.MULTILINE)


@cache
def texts() -> frozenset[str]:
    """The constant parts of all texts in the product's code."""
    found: set[str] = set()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            if "tests" not in path.parts:
                tree = ast.walk(ast.parse(path.read_text()))
                found.update(n.value for n in tree if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return frozenset(found)


def symptoms() -> Iterator[str]:
    """What stands as code in the first column."""
    for row in re.findall(r"^\| ([^|]+) \|", TROUBLE, re.MULTILINE):
        yield from re.findall(r"`([^`]+)`", row)


def test_symptoms_are_in_the_words_of_the_code() -> None:
    names = {code.name for code in ErrorCode}
    found = list(symptoms())
    assert len(found) > 30
    wrong = [
        part.strip()
        for symptom in found
        for part in symptom.split("...")
        if part.strip() and symptom not in names and not any(part.strip() in text for text in texts())
    ]
    assert wrong == []


def verbs(found: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next((dict(a.choices) for a in found._actions if isinstance(a, argparse._SubParsersAction)), {})


def is_command(words: list[str]) -> bool:
    """Whether there is a command that begins so."""
    found = parser()
    for word in words:
        inside = verbs(found)
        if not inside:
            return any(not action.option_strings for action in found._actions)  # its topic, group or file
        if word not in inside:
            return False
        found = inside[word]
    return True


def typed(text: str) -> list[list[str]]:
    """The commands in code, by their first words."""
    return [found[1].split() for found in _TYPED.finditer(text)]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_docs_can_be_typed(page: Path) -> None:
    found = [words for code in code_of(page.read_text()) for words in typed(code)]
    assert [words for words in found if not is_command(words)] == []


def test_commands_in_the_alerts_can_be_typed() -> None:
    remedies = re.findall(r'remedy: "(.*)"$', (DOCS / "deploy" / "alerts.yml").read_text(), re.MULTILINE)
    found = [words for remedy in remedies for part in re.split(r"[();:.] ?", remedy) for words in typed(part)]
    assert ["groups", "describe"] in found
    assert [words for words in found if not is_command(words)] == []


def test_what_cannot_be_typed_is_seen() -> None:
    assert is_command(["topics", "create"])
    assert is_command(["consume", "orders"])
    assert not is_command(["topics", "make"])
    assert not is_command(["streams", "status"])
    code = code_of("barnabas is one. `barnabas streams status` says:\n```sh\necho x | barnabas produce t\n```\n")
    assert [typed(each) for each in code] == [[["produce", "t"]], [["streams", "status"]]]
