"""Whether the parser knows a `barnabas` command that a page only names. The command is not run."""

from __future__ import annotations

import argparse
import functools
import re
import shlex

from barnabas.scripts.cli import parser

#: The placeholders of a page for words that its reader chooses: PLACE, FILE, ..., a|b.
_CHOSEN = re.compile(r"[A-Z][A-Z_-]*|\.\.\.|.*\|.*|TOPIC.*")


def mistake(command: str) -> str:
    """The first wrong word of a command, or of its synopsis; "" if all are right."""
    try:
        words = shlex.split(command.replace("[", " ").replace("]", " "), comments=True)
    except ValueError as error:
        return str(error)
    if words[1:2] == ["__complete"]:  # the word with which shells ask for completions
        return ""
    reached = _parser()
    wanted = 0
    for word in words[1:]:
        if word in ("|", ">", "<", "&&", "&"):
            return ""
        if wanted:
            wanted -= 1
        elif word.startswith("-") and len(word) > 1:
            option, equals, _ = word.partition("=")
            action = reached._option_string_actions.get(option)
            if action is None:
                return f"{reached.prog} has no option {option}"
            wanted = 0 if equals or action.nargs == 0 else 1
        elif inside := _verbs(reached):
            if word not in inside and not _CHOSEN.fullmatch(word):
                return f"{reached.prog} has no {word}"
            reached = inside.get(word, reached)
    return ""


@functools.cache
def _parser() -> argparse.ArgumentParser:
    return parser()


def _verbs(reached: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = (each.choices for each in reached._actions if isinstance(each, argparse._SubParsersAction))
    return dict(next(found, {}))
