"""What a search of the console finds in a record, compared with a search that decodes the whole value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.http.views.search import MOST_JSON, WrongSearch, search_of
from barnabas.broker.http.views.shown import data
from barnabas.wire.batch import Record

NAMES = st.sampled_from(["a", "b", "c-d", "e f", 'g"h', "\\", "é"])
SIMPLE = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5)
VALUES = st.recursive(
    SIMPLE, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
STEPS = st.lists(NAMES | st.integers(0, 3), min_size=1, max_size=3)


def finds(search: str, value: object, key: bytes | None = None, headers: Any = ()) -> bool:
    found = search_of(search)
    assert found is not None
    text = value if isinstance(value, bytes | None) else json.dumps(value).encode()
    return found(Record(key, text, 0, headers))


def path_of(steps: list[str | int]) -> str:
    return "$" + "".join(f"[{json.dumps(step)}]" for step in steps)


def at(value: Any, steps: list[str | int]) -> list[Any]:
    """The values at a path, as a list; empty if the path does not exist."""
    for step in steps:
        inside: Any = {}
        if isinstance(value, dict if isinstance(step, str) else list):
            inside = value if isinstance(value, dict) else dict(enumerate(value))
        if step not in inside:
            return []
        value = inside[step]
    return [value]


@given(VALUES, STEPS, SIMPLE)
def test_a_path_finds_what_stands_there(value: Any, steps: list[str | int], wanted: Any) -> None:
    found = at(value, steps)
    path = path_of(steps)
    assert finds(path, value) == bool(found)
    is_equal = bool(found) and json.dumps(found[0]) == json.dumps(wanted)
    assert finds(f"{path} = {json.dumps(wanted)}", value) == is_equal
    assert finds(f"{path} != {json.dumps(wanted)}", value) == (bool(found) and not is_equal)
    if found and isinstance(found[0], dict | list) is False:
        assert finds(f"{path} = {json.dumps(found[0])}", value)


@pytest.mark.parametrize(
    ("search", "is_found"),
    [
        ("$.a.b = 3", True),
        ("$.a.b = 3.0", True),
        ('$.a.b = "3"', False),
        ("$.a.b > 2", True),
        ("$.a.b<=2", False),
        ("$.a.b > two", False),
        ("$.a.name = Oslo", True),
        ("$.a.name = 'Oslo'", True),
        ("$.a.name ~ SL", True),
        ("$.a.list[1] = true", True),
        ("$.a.list[7]", False),
        ("$.a != 3", True),
        ("OSLO", True),
        ("K-1", True),
        ("trace", True),
        ("abcd", True),
        ("nowhere", False),
    ],
)
def test_a_record_is_found(search: str, is_found: bool) -> None:
    value = {"a": {"b": 3, "name": "Oslo", "list": [None, True]}}
    assert finds(search, value, b"k-1", (("Trace", b"abcd"), ("none", None))) is is_found


@pytest.mark.parametrize("search", ["$.", "$[", "$.a ?", "$.a =", "$.a = {}", "$.a = [1]", "$" + ".a" * 21, "x" * 1001])
def test_what_is_no_search_is_refused(search: str) -> None:
    with pytest.raises(WrongSearch):
        search_of(search)


def test_nothing_is_looked_for_without_a_search() -> None:
    assert search_of("  ") is None


def test_values_that_are_no_json_are_passed_over() -> None:
    for value in (None, b"", b"\xff", b"{", b"[" * 100_000, b'{"a": 1} and more'):
        assert not finds("$.a = 1", value)
        assert not finds("$[0][0]", value)
    assert finds("$.a", b'{"a": ' + b" " * (MOST_JSON - 8) + b"1}")
    assert not finds("$.a", b'{"a": ' + b" " * MOST_JSON + b"1}")


@given(st.binary(max_size=40), st.integers(1, 45))
def test_bytes_are_shown_as_they_are(value: bytes, most: int) -> None:
    told = data(value, most)
    assert told is not None
    assert told["size"] == len(value)
    if "hex" in told:
        assert value.startswith(bytes.fromhex(told["hex"]))
    else:
        assert value.decode("utf-8", "replace").startswith(told["text"])
        assert told["cut"] or told["text"].encode() == value
