"""JAAS texts as in `sasl.jaas.config`: a login module's name, a flag, and options.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";

A module's name only selects the mechanism: no class is ever loaded, and names other than Kafka's own are refused.

Source: Kafka's documentation, "Security: Authentication using SASL"; KIP-85 (`sasl.jaas.config`); the grammar of
javax.security.auth.login.Configuration.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_SECURITY = "org.apache.kafka.common.security"
#: The known modules, and their mechanisms.
MODULES = {
    f"{_SECURITY}.plain.PlainLoginModule": ("PLAIN",),
    f"{_SECURITY}.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
}
#: The known SASL mechanisms.
MECHANISMS = tuple(each for mechanisms in MODULES.values() for each in mechanisms)
FLAGS = ("required", "requisite", "sufficient", "optional")
# A quoted text, a sign, or a word. Comments and white space come between them.
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/|(?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<sign>[=;])"""
    r"""|(?P<word>[^\s=;"'#]+)""",
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class JaasError(ValueError):
    """A text that is not JAAS, or has an unknown module. The message shows no option's value."""


class JaasEntry(NamedTuple):
    """One login module with its options."""

    module: str
    options: dict[str, str]

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that the module is for."""
        return MODULES[self.module]


def parse_jaas(text: str) -> JaasEntry:
    """The only module of a text. Raises JaasError."""
    tokens = _tokens(text)
    if not tokens:
        raise JaasError("it is empty")
    module = tokens[0][1]
    if module not in MODULES:
        raise JaasError(f"the login module {module[:200]!r} is not known; known are {', '.join(MODULES)}")
    if len(tokens) < 2 or tokens[1][1].lower() not in FLAGS:
        raise JaasError(f"one of {', '.join(FLAGS)} must follow the login module's name")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and tokens[at] != ("sign", ";"):
        name = tokens[at][1]
        if tokens[at][0] != "word" or len(tokens) < at + 3 or tokens[at + 1] != ("sign", "="):
            raise JaasError('an option is not of the form name="value"')
        if tokens[at + 2][0] == "sign":
            raise JaasError(f"the option {name[:200]!r} has no value")
        if name in options:
            raise JaasError(f"the option {name[:200]!r} stands twice")
        options[name] = tokens[at + 2][1]
        at += 3
    if at >= len(tokens):
        raise JaasError("the ; at its end is missing")
    if at != len(tokens) - 1:
        raise JaasError("it has more than one login module")
    return JaasEntry(module, options)


def _tokens(text: str) -> list[tuple[str, str]]:
    """The kind and text of each token. Raises JaasError for invalid text, such as an unclosed quote."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise JaasError("a quote is not closed")
        at = match.end()
        kind = match.lastgroup
        if kind == "quoted":
            found.append((kind, re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), match[0][1:-1], flags=re.DOTALL)))
        elif kind is not None:
            found.append((kind, match[0]))
    return found
