"""Makes untrusted text safe to show.

Characters that would end a line, control a terminal or turn the direction of writing are replaced by an escape (`\\n`,
`\\x1b`, `\\u2028`).
Names, keys and error texts come from clients and brokers. Wherever a person reads them, in the log and on the terminal,
they are shown through `visible`. Letters of every script, spaces of any width, and the two joiners that some scripts
and emoji need stay unchanged. A backslash stays too: a caller that needs the original text back must escape it first.
"""

from __future__ import annotations

import sys
import unicodedata

#: How to install what query topics, `barnabas sql` and `barnabas export` need; no package index has barnabas.
SPARK_REMEDY = "run `make setup-all` in its checkout, or pip install 'PATH[spark]' with PATH the checkout or a wheel"
if sys.implementation.name == "pypy":
    SPARK_REMEDY = "PyPy cannot have it: run this command, or `barnabas streams` for a broker on PyPy, under CPython"

_JOINERS = "\u200c\u200d"
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, *, keep: str = "") -> str:
    """The text without control, format, surrogate and unassigned characters, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(c if _is_plain(c) or c in keep else _escape(c) for c in text)


def visible_bytes(data: bytes, *, keep: str = "") -> str:
    """The same for bytes that should be UTF-8; other bytes become `\\xNN`."""
    return visible(data.decode("utf-8", "surrogateescape"), keep=keep)


def _is_plain(c: str) -> bool:
    return c.isprintable() or c in _JOINERS or unicodedata.category(c) == "Zs"


def _escape(c: str) -> str:
    code = ord(c)
    if c in _SHORT:
        return _SHORT[c]
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as `surrogateescape` stores it
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
