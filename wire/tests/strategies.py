"""Hypothesis strategies for messages, made from their construct trees."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import construct as C
from hypothesis import settings
from hypothesis import strategies as st

from barnabas.wire import messages, records
from barnabas.wire.schema import Blob, Entity, NullableStruct, Seq, Text
from barnabas.wire.types import Message

RANGES = {"b": 8, "h": 16, "l": 32, "q": 64, "B": -8, "H": -16}


def examples(quick: int, full: int) -> settings:
    """The number of examples for a slow property test."""
    return settings(max_examples=full if settings.get_current_profile_name() == "full" else quick)


def all_messages() -> list[type[Message]]:
    """Every message class of the message and record packages."""
    found = []
    for package in (messages, records):
        for module in pkgutil.iter_modules(package.__path__):
            names = vars(importlib.import_module(f"{package.__name__}.{module.name}"))
            found += [c for c in names.values() if isinstance(c, type) and issubclass(c, Message) and c is not Message]
    return sorted(set(found), key=lambda cls: cls.__name__)


def versions_of(cls: type[Message]) -> range:
    """All versions of a message."""
    return range(cls.__wire__.versions.first, cls.__wire__.versions.last + 1)


def integers(code: str) -> st.SearchStrategy[int]:
    bits = RANGES[code]
    if bits < 0:
        return st.integers(0, 2**-bits - 1)
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def value(con: C.Construct, name: str = "", *, tame: bool = False) -> st.SearchStrategy[Any]:
    """Values of a construct. `tame` stays within what both oracles can hold: known error codes, sane durations."""
    if isinstance(con, C.Renamed):
        return value(con.subcon, con.name, tame=tame)
    if isinstance(con, C.FormatField):
        code = con.fmtstr[1:]
        if code == "?":
            return st.booleans()
        if code == "d":
            return st.floats(allow_nan=False, width=64)
        if tame and "error_code" in name:
            return st.integers(-1, 119)
        if tame and code == "q":
            return st.integers(0, 2**37) if name.endswith(("_ms", "timestamp")) else st.integers(-1, 2**62)
        return integers(code)
    if isinstance(con, C.Bytes):
        return st.binary(min_size=16, max_size=16)
    if isinstance(con, Text):
        text: st.SearchStrategy[Any] = st.text(max_size=6) | st.just("x" * 200)
        return st.none() | text if con.nullable else text
    if isinstance(con, Blob):
        blob: st.SearchStrategy[Any] = st.binary(max_size=6) | st.just(bytes(200))
        return st.none() | blob if con.nullable else blob
    if isinstance(con, Seq):
        many = st.lists(value(con.subcon, name, tame=tame), max_size=3)
        return st.none() | many if con.nullable else many
    if isinstance(con, NullableStruct):
        return st.none() | value(con.subcon, tame=tame)
    if isinstance(con, Entity):
        fields = {subcon.name: value(subcon, tame=tame) for subcon in con.subcons}
        for field_name, field in con.tagged.values():
            fields[field_name] = st.just(con.defaults[field_name]) | value(field, field_name, tame=tame)
        return st.builds(con.cls, **fields)
    raise TypeError(f"no strategy for {con!r}")
