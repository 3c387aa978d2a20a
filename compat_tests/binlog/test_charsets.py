"""Python's codec for each character set agrees with the server, for all texts that are written as text."""

from __future__ import annotations

import pytest

from barnabas.connect.binlog.charsets import CODECS, decoder
from compat_tests.binlog.mariadb import MariaDb

_WIDE = frozenset({"gbk", "gb2312", "big5", "euckr", "ujis", "eucjpms", "sjis", "cp932"})
_CHARSETS = [charset for charset in CODECS if not charset.startswith(("utf", "ucs"))]


def characters(charset: str) -> list[tuple[bytes, str]]:
    """Each character of one to three bytes that is written as text."""
    decode = decoder(charset)
    sequences = [bytes([first]) for first in range(256)]
    if charset in _WIDE:
        sequences += [bytes([first, second]) for first in range(128, 256) for second in range(256)]
    if charset in ("ujis", "eucjpms"):
        sequences += [bytes([0x8F, second, third]) for second in range(161, 255) for third in range(161, 255)]
    found = [(raw, decode(raw)) for raw in sequences]
    return [(raw, text) for raw, text in found if isinstance(text, str) and len(text) == 1]


@pytest.mark.parametrize("charset", _CHARSETS)
def test_the_server_makes_the_same_bytes_of_a_text(mariadb: MariaDb, charset: str) -> None:
    every = characters(charset)
    assert len(every) >= 126
    text = "".join(text for _, text in every)
    (row,) = mariadb.sql(f"SELECT HEX(CONVERT(_utf8mb4 x'{text.encode().hex()}' USING {charset}))")
    assert bytes.fromhex(row[0] or "") == b"".join(raw for raw, _ in every)


def test_where_there_is_no_codec_the_characters_of_ascii_are_those_of_ascii(mariadb: MariaDb) -> None:
    names = [row[0] or "" for row in mariadb.sql("SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS")]
    others = [name for name in names if name not in CODECS and name != "binary"]
    assert len(others) >= 5
    for name in others:
        ((text,),) = mariadb.sql(f"SELECT HEX(CONVERT(_{name} x'{bytes(range(128)).hex()}' USING utf8mb4))")
        assert bytes.fromhex(text or "") == bytes(range(128)), name
