"""Properties files, as `java.util.Properties.load` reads them."""

from __future__ import annotations

import pytest

from barnabas.wire.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b\nc: d\ne f\ng\n", {"a": "b", "c": "d", "e": "f", "g": ""}),
        ("# a=1\n ! b=2\n\n \t\nc=3", {"c": "3"}),
        ("a=1,\\\n    2,\\\r\n  3\nb=\\", {"a": "1,2,3", "b": ""}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        (r"a\=b\:c\ d=\t\\ x", {"a=b:c d": "\t\\ x"}),
        (r"a=\u00e4\u20ac", {"a": "\u00e4\u20ac"}),
        (r"a=x\ud83d\ude00y", {"a": "x\U0001f600y"}),
        ("a=1\x0b2\x1c3\x85\u20284\nb=5", {"a": "1\x0b2\x1c3\x85\u20284", "b": "5"}),
        ("a\x0c=\x0c1", {"a": "1"}),
        ("a\u2028b=\u20281\u2028", {"a\u2028b": "\u20281\u2028"}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_as_java_reads_it(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


def test_blanks_at_the_end_of_a_value_are_dropped_as_kafka_drops_them() -> None:
    assert parse_properties("a=1 \t\nb=2") == {"a": "1", "b": "2"}
