"""How a user describes the look of a record: escapes, and the placeholders of `consume --format`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence

from barnabas.client.errors import ClientError
from barnabas.wire.batch import Record
from barnabas.wire.text import visible_bytes

#: The placeholders, which are those of kcat.
PLACES = {
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "T": "timestamp",
    "k": "key",
    "s": "value",
    "h": "headers",
    "%": "a percent sign",
}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.?))", re.DOTALL)
_PLAIN = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "e": b"\x1b", "\\": b"\\"}
_KEPT = "\n\t"

#: Texts, and the letters of placeholders.
Form = Sequence[bytes | str]


def unescape(text: str, option: str) -> bytes:
    r"""Replace \n, \r, \t, \0, \e, \\, \xNN and \uNNNN in a text, and return the bytes. Raises ClientError."""
    found, at = b"", 0
    for escape in _ESCAPE.finditer(text):
        found += text[at : escape.start()].encode()
        byte, code, letter = escape.groups()
        if byte:
            found += bytes([int(byte, 16)])
        elif code:
            found += chr(int(code, 16)).encode(errors="surrogatepass")
        elif letter in _PLAIN:
            found += _PLAIN[letter]
        else:
            raise ClientError(f"{option}: unknown escape {escape[0]}: known are \\n \\r \\t \\0 \\e \\\\ \\xNN \\uNNNN")
        at = escape.end()
    return found + text[at:].encode()


def parse_form(text: str) -> Form:
    """Parse a format. Raises ClientError for an unknown placeholder or escape."""
    parts: list[bytes | str] = []
    for plain, place in re.findall(r"((?:[^%]|\n)+)|%(.?)", text, re.DOTALL):
        if plain:
            parts.append(unescape(plain, "--format"))
        elif place in PLACES:
            parts.append(place)
        else:
            known = ", ".join(f"%{letter} {what}" for letter, what in PLACES.items())
            raise ClientError(f"--format: unknown %{place}: known are {known}")
    return parts


def for_partition(form: Form, topic: str, partition: int) -> tuple[bytes | str, ...]:
    """The form with everything filled in that all records of a partition share."""
    plain = {"t": topic.encode(), "p": str(partition).encode(), "%": b"%"}
    return tuple(part if isinstance(part, bytes) else plain.get(part, part) for part in form)


def json_line(topic: str, partition: int, record: Record) -> bytes:
    """A record as a line of JSON that `produce --json` accepts.

    Key, value and headers are texts if they are UTF-8, and otherwise objects with their bytes in base64; null stays
    null. The line is pure ASCII, so that a terminal can show it.
    """
    shown = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _as_json(record.key),
        "value": _as_json(record.value),
    }
    if record.headers:
        shown["headers"] = [[name, _as_json(value)] for name, value in record.headers]
    return json.dumps(shown).encode() + b"\n"


def _as_json(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def fill(form: Form, topic: str, partition: int, record: Record, *, raw: bool) -> bytes:
    """Fill a record into a form. Unless `raw`, terminal controls are escaped, except for line ends and tabs."""

    def shown(data: bytes | None) -> bytes:
        if data is None:
            return b"NULL"
        return bytes(data) if raw else visible_bytes(bytes(data), keep=_KEPT).encode()

    out = bytearray()
    for part in form:
        if isinstance(part, bytes):
            out += part
        elif part == "k":
            out += shown(record.key)
        elif part == "s":
            out += shown(record.value)
        elif part == "h":
            out += b",".join(shown(name.encode()) + b"=" + shown(value) for name, value in record.headers)
        else:
            plain = {"t": topic, "p": partition, "o": record.offset, "T": record.timestamp, "%": "%"}
            out += str(plain[part]).encode()
    return bytes(out)
