"""The docs quote messages and events in the words of the code, and name only existing commands."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from functools import cache

from barnabas.scripts.cli import parser
from barnabas.wire.errors import ErrorCode
from compat_tests.site.pages import DOCS
from compat_tests.tools import ROOT

ROOMS = ("wire", "storage", "groupcoord", "broker", "client", "connect", "streams", "scripts")
TROUBLE = (DOCS / "reference" / "when-something-is-wrong.md").read_text()
#: A command in code: at the beginning of a line, or after a pipe.
_TYPED = re.compile(r"(?:^|\||\$\()[ \t]*barnabas ([a-z][a-z-]*(?: [a-z][a-z-]*)?)(?=\s|$)", re.MULTILINE)


@cache
def code() -> str:
    """The product's code, with texts that continue on the next line joined."""
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*.py") if "tests" not in path.parts]
    return "\n".join(re.sub(r'"\s*\n\s*f?"', "", path.read_text()) for path in files)


def symptoms() -> Iterator[str]:
    """The code in the first column."""
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
        if part.strip() and symptom not in names and part.strip() not in code()
    ]
    assert wrong == []


def verbs(found: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next((dict(a.choices) for a in found._actions if isinstance(a, argparse._SubParsersAction)), {})


def is_command(words: list[str]) -> bool:
    """Whether there is a command that begins with these words."""
    found = parser()
    for word in words:
        inside = verbs(found)
        if not inside:
            return any(not action.option_strings for action in found._actions)  # a topic, group or file
        if word not in inside:
            return False
        found = inside[word]
    return True


def typed(text: str) -> list[list[str]]:
    """The words of each command in code."""
    return [found[1].split() for found in _TYPED.finditer(text)]


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
    assert typed("echo x | barnabas produce t") == [["produce", "t"]]
    assert typed("barnabas streams status says why") == [["streams", "status"]]
