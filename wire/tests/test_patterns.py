"""Clients' patterns: linear, bounded, and refused in one line."""

from __future__ import annotations

import pytest

from barnabas.wire.patterns import MAX_CHARS, PatternError, pattern


@pytest.mark.parametrize(
    ("text", "name", "found"),
    [
        ("plant-.*", "plant-1", True),
        ("plant-.*", "a-plant-1", False),
        ("a|b", "ab", False),
        ("(a|b)c", "bc", True),
        ("(?i)Plant", "pLANT", True),
        ("ä+", "ää", True),
        ("", "", True),
        ("(a+)+b", "a" * 249, False),
        ("(a*)*(a*)*(a*)*b", "a" * 249, False),
        ("(a|a)*b", "a" * 249, False),
    ],
)
def test_the_whole_name_matches_or_not_and_soon(text: str, name: str, found: bool) -> None:
    assert pattern(text).matches(name) is found


@pytest.mark.parametrize(
    "text",
    ["(", "a**b(", "(?=a)b", r"(a)\1", "a" * (MAX_CHARS + 1), "(.{1,500}){1,2}", "((a{100}){100}){100}", "\ud800"],
)
def test_what_is_none_or_too_large_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(PatternError) as caught:
        pattern(text)
    assert "\n" not in str(caught.value)
