"""The server's character sets, and text in them.

A value is given as text only if Python and the server agree on the character set: decoding and encoding again gives the
same bytes, and the set's characters were compared with a server's. Everything else stays bytes, which SQL writes as
`_charset x'..'`.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from typing_extensions import Buffer

BINARY = "binary"
#: Character sets and the codec of each.
CODECS = {
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "utf8": "utf-8",
    "ascii": "ascii",
    "latin1": "latin1-of-mysql",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "macroman": "mac-roman",
    "macce": "mac-latin2",
    "tis620": "tis-620",
    "gbk": "gbk",
    "gb2312": "gb2312",
    "big5": "big5",
    "euckr": "euc-kr",
    "ujis": "euc-jp",
    "eucjpms": "euc-jp",
    "sjis": "shift-jis",
    "cp932": "cp932",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "swe7": "swe7-of-mysql",
}
_NEC_SELECTED = "".join(
    text
    for first in (0xED, 0xEE)
    for second in range(0x40, 0xFD)
    if (text := bytes([first, second]).decode("cp932", "ignore"))
)
#: Characters that Python and the server map differently, or that the server cannot make from Unicode.
_DIFFERENT = {
    "greek": "\u2018\u2019\u20ac\u20af\u037a",
    "hebrew": "\u00af",
    "cp1256": "\u0679\u0688\u06a9\u0691\u06ba\u06be\u06c1\u06d2",
    "cp866": "\u2116\u00a4",
    "koi8u": "\u2219",
    "big5": "\u2574\uffe3\u02cd",
    "ujis": "\uff3c",
    "eucjpms": "\u301c\u2016\u2212\u00a2\u00a3\u00ac\u00a6\u2116",
    "sjis": "\\\uff3c",
    "cp932": "\x80\uf8f0\uf8f1\uf8f2\uf8f3" + _NEC_SELECTED,
}
#: These need no check by encoding again: every text that can be decoded has one encoding.
_ONE_WAY = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii", "latin1"})


class Undecoded(msgspec.Struct, frozen=True):
    """A text that Python cannot express as the server would."""

    charset: str
    data: bytes


def _of_table(name: str, table: str) -> codecs.CodecInfo:
    """A codec made from the characters of all 256 bytes; U+FFFE marks a byte without a character."""
    to_bytes = codecs.charmap_build(table)

    def encode(text: str, errors: str = "strict") -> tuple[bytes, int]:
        return codecs.charmap_encode(text, errors, to_bytes)

    def decode(data: Buffer, errors: str = "strict") -> tuple[str, int]:
        return codecs.charmap_decode(bytes(data), errors, table)

    return codecs.CodecInfo(encode, decode, name=name)


def _of_cp1252(number: int) -> str:
    try:
        return bytes([number]).decode("cp1252")
    except UnicodeDecodeError:
        return chr(number)


_OWN = {
    #: MySQL's latin1: cp1252, with C1 controls in its gaps.
    "latin1": _of_table("latin1-of-mysql", "".join(map(_of_cp1252, range(256)))),
    #: Seven bits, with letters in place of some ASCII characters.
    "swe7": _of_table(
        "swe7-of-mysql",
        bytes(range(127)).decode().translate(str.maketrans("@[\\]^`{|}~", "ÉÄÖÅÜéäöåü")).ljust(256, "\ufffe"),
    ),
}


def _codec(charset: str) -> codecs.CodecInfo:
    return _OWN.get(charset) or codecs.lookup(CODECS[charset])


def decoder(charset: str) -> Callable[[bytes], str | bytes | Undecoded]:
    """A function that turns a column's bytes into text. If the column holds bytes, they stay bytes."""
    if charset == BINARY:
        return bytes
    if charset not in CODECS:
        return lambda data: _ascii_or(charset, data)
    found = _codec(charset)
    decode, encode = found.decode, found.encode
    one_way = charset in _ONE_WAY
    different = frozenset(_DIFFERENT.get(charset, ""))

    def text(data: bytes) -> str | Undecoded:
        try:
            made: str = decode(data)[0]
            if one_way or (different.isdisjoint(made) and encode(made)[0] == data):
                return made
        except UnicodeError:
            pass
        return Undecoded(charset, data)

    return text


def is_certain(charset: str, text: str) -> bool:
    """Whether this text in a column of this character set is given as text."""
    if charset not in CODECS:
        return charset != BINARY and text.isascii()
    try:
        raw = _codec(charset).encode(text)[0]
    except UnicodeError:
        return False
    return decoder(charset)(raw) == text


def _ascii_or(charset: str, data: bytes) -> str | Undecoded:
    return data.decode() if data.isascii() else Undecoded(charset, data)


_ESCAPES = str.maketrans({"\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z", "'": "\\'", '"': '\\"', "\\": "\\\\"})


def literal(value: str | bytes | Undecoded) -> str:
    """The SQL literal of a text or of bytes, for a session with backslash escapes (the default SQL mode)."""
    if type(value) is str:
        return f"'{value.translate(_ESCAPES)}'" if not value.isalnum() else f"'{value}'"
    if isinstance(value, Undecoded):
        return f"_{value.charset} x'{value.data.hex()}'"
    assert isinstance(value, bytes)
    return f"x'{value.hex()}'"
