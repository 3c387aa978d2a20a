"""What stands in for msgspec on PyPy beside msgspec itself: the same structures, values, JSON and errors."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire import msgspec_for_pypy

real = pytest.importorskip("msgspec")
if real is msgspec_for_pypy:
    pytest.skip("msgspec itself is not there", allow_module_level=True)


class Kinds:
    """The same structures, made by one of the two modules."""

    def __init__(self, module: ModuleType) -> None:
        space: dict[str, Any] = {"msgspec": module}
        exec(compile(SOURCE, "structures", "exec", dont_inherit=True), space)
        for name, kind in space.items():
            setattr(self, name, kind)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


SOURCE = """
class Flat(msgspec.Struct, frozen=True, kw_only=True):
    number: int = 0
    real: float = 0.0
    text: str = ""
    flag: bool = False
    maybe: int | None = None
    either: int | str = 0
    data: bytes = b""
    items: list[int] = []
    pair: tuple[int, str] = (1, "a")
    many: tuple[str, ...] = ()
    named: dict[str, int] = {}
    numbered: dict[int, str] = {}

class Outer(msgspec.Struct, forbid_unknown_fields=True):
    flat: Flat
    flats: list[Flat] = []
    renamed: int = msgspec.field(default=3, name="as-written")

class First(msgspec.Struct, frozen=True, tag="first"):
    at: int = 1

class Second(First, frozen=True, tag="second"):
    more: str = "x"

class Sparse(msgspec.Struct, omit_defaults=True):
    at: int = 1
    items: list[int] = []

class Row(msgspec.Struct, array_like=True):
    at: int
    more: int = 3

Either = First | Second
"""

BOTH = (Kinds(real), Kinds(msgspec_for_pypy))
NAMES = ("Flat", "Outer", "First", "Second", "Either", "Sparse", "Row")

leaves = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    leaves | st.text(max_size=5) | st.sampled_from(["YQ==", "first", "second", "third"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "7", "at", "type"]), inner, max_size=3)
    ),
    max_leaves=6,
)
fields = "number real text flag maybe either data items pair many named numbered flat flats as-written at more type x"
objects = st.dictionaries(st.sampled_from(fields.split()), values, max_size=4)
nested = st.builds(lambda flat, rest: {"flat": flat, **rest}, objects, objects)


def outcome(kinds: Kinds, name: str, text: bytes) -> object:
    """What a text is as a structure: its fields, or the error."""
    module = kinds.msgspec
    try:
        found = module.json.decode(text, type=getattr(kinds, name))
    except module.ValidationError as error:
        return str(error)
    except module.DecodeError:
        return "malformed"
    return type(found).__name__, repr(found), json.loads(module.json.encode(found))


@given(st.sampled_from(NAMES), values | objects | nested)
def test_json_becomes_the_same_or_the_same_error(name: str, value: Any) -> None:
    text = json.dumps(value).encode()
    first, second = (outcome(kinds, name, text) for kinds in BOTH)
    if isinstance(first, str) and isinstance(second, str):
        return  # of several errors in one value, each may meet another one first
    assert first == second


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Flat", '{"number":1.0}'),
        ("Flat", '{"number":true}'),
        ("Flat", '{"number":null}'),
        ("Flat", '{"real":1}'),
        ("Flat", '{"real":"1"}'),
        ("Flat", '{"text":1}'),
        ("Flat", '{"flag":1}'),
        ("Flat", '{"maybe":"a"}'),
        ("Flat", '{"either":1.5}'),
        ("Flat", '{"data":"YQ=="}'),
        ("Flat", '{"data":"Y"}'),
        ("Flat", '{"items":[1,"a"]}'),
        ("Flat", '{"items":{}}'),
        ("Flat", '{"pair":[1]}'),
        ("Flat", '{"pair":[1,2]}'),
        ("Flat", '{"numbered":{"7":"a"}}'),
        ("Flat", "[]"),
        ("Flat", "1"),
        ("Outer", '{"flat":{"items":[1,"a"]}}'),
        ("Outer", '{"flat":{},"flats":[{},{"text":1}]}'),
        ("Outer", '{"flat":{},"as-written":4}'),
        ("Outer", '{"flat":{},"renamed":4}'),
        ("Outer", "{}"),
        ("Either", '{"type":"second","more":"y"}'),
        ("Either", '{"type":"third"}'),
        ("Either", '{"type":1}'),
        ("Either", '{"at":1}'),
        ("Either", "[]"),
        ("First", '{"type":"second"}'),
        ("First", '{"at":4}'),
        ("Row", "[1,2,3]"),
        ("Row", "[]"),
        ("Row", '["a"]'),
    ],
)
def test_the_errors_are_the_same_to_the_letter(name: str, text: str) -> None:
    first, second = (outcome(kinds, name, text.encode()) for kinds in BOTH)
    assert first == second


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"[", b'"', b"nul", b"01", b"1.", b".5", b"+1", b"1e", b"NaN", b"Infinity", b"-Infinity", b"1x"),
        *(b'{"a":1,}', b"[1,]", b"{1:2}", b'"\\x"', b'"\\u12"', b'"\\ud800"', b'"a\nb"', b"\xff", b'"\xff"', b"1e999"),
        *("\ufeff1".encode(), b"{'a':1}"),
    ],
)
def test_what_is_not_json_is_refused_by_both(text: bytes) -> None:
    for module in (real, msgspec_for_pypy):
        with pytest.raises((module.DecodeError, UnicodeDecodeError)):
            module.json.decode(text)
    with pytest.raises(msgspec_for_pypy.DecodeError):
        msgspec_for_pypy.json.decode(text)


plain = st.recursive(
    leaves | st.text(st.characters(exclude_categories=["Cs"])) | st.binary() | st.just(float("nan")),
    lambda inner: (
        st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
)


@given(plain)
def test_values_are_the_same_json(value: Any) -> None:
    first, second = real.json.encode(value), msgspec_for_pypy.json.encode(value)
    assert json.loads(first) == json.loads(second)
    assert msgspec_for_pypy.json.decode(first) == real.json.decode(second)


def test_what_no_json_can_be_made_of_is_refused_by_both() -> None:
    for value in (object(), {("a",): 1}, {None: 1}, {True: 1}):
        for module in (real, msgspec_for_pypy):
            with pytest.raises(TypeError):
                module.json.encode(value)


def test_structures_behave_the_same() -> None:
    for kinds in BOTH:
        module, flat = kinds.msgspec, kinds.Flat(number=3)
        assert flat == kinds.Flat(number=3) != kinds.Flat(number=4)
        assert hash(kinds.First(2)) == hash(kinds.First(2))
        assert kinds.First(2) != kinds.Second(2)
        with pytest.raises(AttributeError):
            flat.number = 4
        with pytest.raises(TypeError):
            kinds.Flat(3)
        with pytest.raises(TypeError):
            kinds.Row()
        with pytest.raises(TypeError):
            hash(kinds.Row(1))
        assert module.structs.replace(flat, text="a") == kinds.Flat(number=3, text="a")
        first, second = kinds.Sparse(), kinds.Sparse()
        first.items.append(1)
        assert second.items == []
        assert module.json.encode(kinds.Second()) == b'{"type":"second","at":1,"more":"x"}'
        assert module.json.encode([first, second, kinds.Row(1)]) == b'[{"items":[1]},{},[1,3]]'
        assert module.json.encode(module.Raw(b'{"a" :1.10}')) == b'{"a" :1.10}'
        assert bytes(module.json.decode(b' {"a" :1.10}', type=module.Raw)).strip() == b'{"a" :1.10}'
        assert module.convert([["a", 1]], list[tuple[str, int]]) == [("a", 1)]
        assert module.json.decode(b'"a"', type=Literal["a", "b"]) == "a"
        with pytest.raises(module.ValidationError, match="Invalid enum value 'c'"):
            module.json.decode(b'"c"', type=Literal["a", "b"])
        defaults = {each.encode_name: each.default for each in module.structs.fields(kinds.Outer)}
        assert defaults["as-written"] == 3
        assert defaults["flat"] is module.NODEFAULT
        later = module.defstruct("Later", [("at", int, module.field(default=1, name="@"))])
        assert module.json.decode(b'{"@":5}', type=later).at == 5
