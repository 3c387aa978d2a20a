"""Clients' regular expressions, matched in linear time.

A pattern is untrusted text, and Python's own engine backtracks: on `(a+)+b` it may never finish. RE2 never backtracks,
and Kafka uses it for subscriptions by pattern (KIP-848), so one syntax serves both. It has no back-references and no
look-around.

Invariant: no text of a client is ever given to `re` as a pattern.
"""

from __future__ import annotations

from functools import lru_cache

import re2

#: Limits for a pattern's characters and its program's instructions: matching takes at most text times program.
MAX_CHARS, MAX_PROGRAM = 1000, 2000
_MAX_MEMORY = 1 << 20
_KEPT = 256


class PatternError(ValueError):
    """Why a text is not a pattern, in one line."""


class Pattern:
    """A compiled regular expression."""

    def __init__(self, text: str) -> None:
        """Raises PatternError if RE2 does not accept the text, or it is too large."""
        if len(text) > MAX_CHARS:
            raise PatternError(f"the regular expression has {len(text)} characters: at most {MAX_CHARS} are possible")
        options = re2.Options()
        options.max_mem = _MAX_MEMORY
        options.log_errors = False
        try:
            self._compiled = re2.compile(text, options)
        except (re2.error, UnicodeError) as error:
            reason = error.args[0] if isinstance(error, re2.error) and error.args else "it is no Unicode text"
            told = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            raise PatternError(f"{text!r} is not a regular expression of RE2's syntax: {told}") from None
        self.text = text
        #: The number of the program's instructions, which limits how often a text is read.
        self.size: int = self._compiled.programsize
        self.groups: int = self._compiled.groups
        if self.size > MAX_PROGRAM:
            raise PatternError(f"{text!r} compiles to {self.size} instructions: at most {MAX_PROGRAM} are possible")

    def matches(self, text: str) -> bool:
        """Whether the pattern matches the whole text."""
        return self._compiled.fullmatch(text) is not None


@lru_cache(_KEPT)
def pattern(text: str) -> Pattern:
    """The compiled pattern; recent ones are cached. Raises PatternError."""
    return Pattern(text)
