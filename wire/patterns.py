"""Regular expressions of clients, in linear time.

A pattern is a stranger's text, and Python's own engine backtracks: `(a+)+b` takes longer than the broker lives.
RE2 never does, and Kafka has it for subscriptions by a pattern (KIP-848), so one syntax serves both. It has no
back-references and no look-around.

Invariant: no text of a client is ever given to `re` as a pattern.
"""

from __future__ import annotations

from functools import lru_cache

import re2

#: Characters of a pattern, and instructions of its program: matching takes at most text times program.
MAX_CHARS, MAX_PROGRAM = 1000, 2000
_MAX_MEMORY = 1 << 20
_KEPT = 256


class PatternError(ValueError):
    """Why a text is no pattern, in one line."""


class Pattern:
    """A compiled regular expression."""

    def __init__(self, text: str) -> None:
        """Raises PatternError for what is no regular expression of RE2's, or too large a one."""
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
            raise PatternError(f"{text!r} is no regular expression of RE2's syntax: {told}") from None
        self.text = text
        #: Instructions of its program; how often its text is looked at is bounded by that.
        self.size: int = self._compiled.programsize
        self.groups: int = self._compiled.groups
        if self.size > MAX_PROGRAM:
            raise PatternError(f"{text!r} compiles to {self.size} instructions: at most {MAX_PROGRAM} are possible")

    def matches(self, text: str) -> bool:
        """Whether it matches the whole text."""
        return self._compiled.fullmatch(text) is not None


@lru_cache(_KEPT)
def pattern(text: str) -> Pattern:
    """The compiled pattern; those used last are kept. Raises PatternError."""
    return Pattern(text)
