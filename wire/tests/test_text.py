"""Untrusted text that is shown to a person."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire.text import visible, visible_bytes


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders", "orders"),
        ("straße 東京 שלום", "straße 東京 שלום"),
        ("full\u3000width\u00a0space", "full\u3000width\u00a0space"),
        ("\U0001f469\u200d\U0001f4bb", "\U0001f469\u200d\U0001f4bb"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[31mred\x9b0m\x7f\0", "\\x1b[31mred\\x9b0m\\x7f\\x00"),
        ("a\u2028b\u2029c\x85d", "a\\u2028b\\u2029c\\x85d"),
        ("gpj\u202eexe.\u2066\u200f\ufeff", "gpj\\u202eexe.\\u2066\\u200f\\ufeff"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_steers_a_terminal_is_escaped_and_letters_stay(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_bytes_that_are_not_utf_8_are_escaped() -> None:
    assert visible_bytes(b"a\xff\x1b\xc3\xa9") == "a\\xff\\x1bé"
    assert visible_bytes(b"a\n\tb\r", keep="\n\t") == "a\n\tb\\r"


@given(st.text())
def test_nothing_is_left_that_ends_a_line_or_is_no_character(text: str) -> None:
    shown = visible(text)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in shown)
    shown.encode()
