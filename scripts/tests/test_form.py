"""How records look on a line: escapes, placeholders, and terminal controls."""

from __future__ import annotations

import pytest

from barnabas.client.errors import ClientError
from barnabas.scripts.form import fill, parse_form, unescape
from barnabas.wire.batch import Record

RECORD = Record(b"k", b"a\x1b[2J\tb\n", 1234, (("h", b"1"), ("i", None)), offset=7)


@pytest.mark.parametrize(
    ("text", "found"),
    [("a\\tb\\n", b"a\tb\n"), ("\\x00\\xff", b"\0\xff"), ("\\u00e9", "é".encode()), ("\\\\n", b"\\n"), ("", b"")],
)
def test_escapes_stand_for_bytes(text: str, found: bytes) -> None:
    assert unescape(text, "--format") == found


@pytest.mark.parametrize("text", ["\\q", "\\", "\\x1", "\\u12"])
def test_an_unknown_escape_is_told_with_those_that_are_known(text: str) -> None:
    with pytest.raises(ClientError, match=r"--key-separator: unknown escape .*known are"):
        unescape(text, "--key-separator")


def test_place_holders_are_filled() -> None:
    form = parse_form("%t/%p@%o %T %k=%s %h 100%%\\n")
    shown = fill(form, "topic", 3, RECORD, raw=True)
    assert shown == b"topic/3@7 1234 k=a\x1b[2J\tb\n h=1,i=NULL 100%\n"


def test_what_steers_a_terminal_is_escaped_unless_it_is_to_be_raw() -> None:
    shown = fill(parse_form("%s"), "t", 0, RECORD, raw=False)
    assert b"\x1b" not in shown
    assert shown.endswith(b"\tb\n")


def test_null_and_empty_are_two_things() -> None:
    assert fill(parse_form("[%k][%s]"), "t", 0, Record(None, b"", 1), raw=True) == b"[NULL][]"
