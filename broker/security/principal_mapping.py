"""`ssl.principal.mapping.rules`: map the subject of a client's certificate to the name of its principal.

    RULE:^CN=([^,]*),.*$/$1/L, DEFAULT

The first rule whose pattern matches the whole name gives the principal; DEFAULT keeps the name unchanged. Clients
choose the names, so RE2 matches the patterns: its time is proportional to a name's length. A pattern that RE2 does not
support (a look-ahead, a back reference) is matched by Python's `re`.

Source: KIP-371.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import re2

from barnabas.broker.settings.keys import ConfigError

KEY = "ssl.principal.mapping.rules"
#: The longest subject; no certificate authority issues longer ones.
MAX_NAME = 4096
_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_PIECE = re.compile(r"\\(.)|\$(\d+)|\$\{|[^\\$]+|.", re.DOTALL)


class NoRuleFits(Exception):
    """No rule gives this client a name."""


@dataclass(frozen=True)
class _Rule:
    pattern: Any
    replace: Callable[[Any], str]
    case: str

    def apply(self, name: str) -> str | None:
        if not self.pattern.fullmatch(name):
            return None
        found: str = self.pattern.sub(self.replace, name)
        return {"L": found.lower, "U": found.upper}[self.case]() if self.case else found


class PrincipalMapping:
    """The rules of one listener."""

    def __init__(self, text: str) -> None:
        """Raises ConfigError if the text is not a list of rules."""
        self._rules: list[_Rule | None] = list(_parsed(text))  # None is DEFAULT

    def name_of(self, subject: str) -> str:
        """The principal's name. Raises NoRuleFits."""
        if len(subject) > MAX_NAME:
            raise NoRuleFits(f"the subject has more than {MAX_NAME} characters")
        for rule in self._rules:
            name = subject if rule is None else rule.apply(subject)
            if name is not None:
                return name
        raise NoRuleFits(f"no rule of {KEY} fits {subject}")


def _parsed(text: str) -> list[_Rule | None]:
    rules: list[_Rule | None] = []
    rest = text.strip()
    while rest:
        if rest.startswith("DEFAULT"):
            rules.append(None)
            rest = rest.removeprefix("DEFAULT").lstrip()
        elif found := _RULE.match(rest):
            rules.append(_rule(*found.groups()))
            rest = rest[found.end() :].lstrip()
        else:
            raise ConfigError(f"Invalid value {rest!r} for {KEY}: expected RULE:pattern/replacement/[LU] or DEFAULT")
        if rest and not rest.startswith(","):
            raise ConfigError(f"Invalid value {rest!r} for {KEY}: expected a comma between two rules")
        rest = rest.removeprefix(",").lstrip()
    return rules or [None]


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    compiled = _compiled(pattern)
    return _Rule(compiled, _replacement(replacement, compiled.groups), case)


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        pass
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"Invalid pattern {pattern!r} in {KEY}: {error}") from None


def _replacement(text: str, groups: int) -> Callable[[Any], str]:
    """The text for a match: `$1` is a group, a backslash escapes the next character."""
    pieces: list[str | int] = []
    for found in _PIECE.finditer(text):
        literal, digits = found.groups()
        if found[0] == "${":
            raise ConfigError(f"Invalid replacement {text!r} in {KEY}: groups have numbers here, such as $1")
        if digits is None:
            pieces.append(found[0] if literal is None else literal)
            continue
        taken = len(digits)  # with fewer than twelve groups, $12 is the first group and a 2
        while taken > 1 and int(digits[:taken]) > groups:
            taken -= 1
        if int(digits[:taken]) > groups:
            pieces.append(found[0])
        else:
            pieces += [int(digits[:taken]), digits[taken:]]
    return lambda match: "".join(each if isinstance(each, str) else match[each] or "" for each in pieces)
