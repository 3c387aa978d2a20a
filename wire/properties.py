"""Text of Java properties files, which Kafka's configuration and `meta.properties` are.

Source: the documentation of `java.util.Properties.load`.
"""

from __future__ import annotations

import re

_ENTRY = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values: comments, `=`, `:` or blank as separator, line continuation, escapes."""
    found: dict[str, str] = {}
    logical = ""
    for raw in [*text.splitlines(), ""]:  # the last line may end in a continuation
        line = raw.lstrip()
        if not logical and (not line or line[0] in "#!"):
            continue
        logical += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            logical = logical[:-1]
            continue
        entry = _ENTRY.match(logical)
        assert entry is not None, "it matches every text"
        found[_unescape(entry[1])] = _unescape(entry[2].rstrip())
        logical = ""
    return found


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _CONTROLS.get(found[2], found[2]), text)
