"""The text of Java properties files, such as Kafka's configuration and `meta.properties`.

Source: the documentation of `java.util.Properties.load`.
"""

from __future__ import annotations

import re

_LINE_END = re.compile(r"\r\n|[\r\n]")  # only these: a form feed is white space, and U+2028 a letter
_BLANKS = " \t\f"
_ENTRY = re.compile(rf"((?:\\.|[^\\=:{_BLANKS}])*)[{_BLANKS}]*[=:]?[{_BLANKS}]*(.*)", re.DOTALL)
_TRIMMED = "".join(map(chr, range(33)))  # by Java's String.trim, which Kafka applies to values
_ESCAPE = re.compile(r"((?:\\u[0-9a-fA-F]{4})+)|\\(.)", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values, with comments, the separators `=`, `:` and blank, line continuation, and escapes."""
    found: dict[str, str] = {}
    logical = ""
    for raw in [*_LINE_END.split(text), ""]:  # the last line may end in a continuation
        line = raw.lstrip(_BLANKS)
        if not logical and (not line or line[0] in "#!"):
            continue
        logical += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            logical = logical[:-1]
            continue
        entry = _ENTRY.match(logical)
        assert entry is not None, "it matches every text"
        found[_unescape(entry[1])] = _unescape(entry[2].rstrip(_TRIMMED))
        logical = ""
    return found


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: _utf16(found[1]) if found[1] else _CONTROLS.get(found[2], found[2]), text)


def _utf16(escapes: str) -> str:
    """Decode Java characters, of which two make one beyond U+FFFF."""
    return bytes.fromhex(escapes.replace("\\u", "")).decode("utf-16-be", "surrogatepass")
