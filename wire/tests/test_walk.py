"""The walk over a batch's records: what it finds, what it refuses, and that both versions agree on any bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire import batch, walk
from barnabas.wire.batch import Record
from barnabas.wire.tests.strategies import examples
from barnabas.wire.varint import write_varint

LEAST, MOST = -(2**63), 2**63 - 1
TWINS = [walk.check_in_python]
if walk.NATIVE:
    TWINS.append(walk.check)

texts = st.text(max_size=6)
records = st.lists(
    st.builds(
        Record,
        st.none() | st.binary(max_size=300),
        st.none() | st.binary(max_size=300),
        st.integers(-1, 2**62),
        st.lists(st.tuples(texts, st.none() | st.binary(max_size=9)), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=9,
)


def body_of(given_records: list[Record]) -> tuple[bytes, int]:
    """The records as stored in a batch, and their base timestamp."""
    data = batch.build_batch(given_records)
    return data[batch.HEADER_SIZE :], batch.parse_header(data).base_timestamp


def record(*fields: int | bytes, length: int | None = None) -> bytes:
    """One record with the given fields: numbers as varints, bytes unchanged."""
    content = bytearray(1)
    for field in fields:
        if isinstance(field, int):
            write_varint(content, field)
        else:
            content += field
    out = bytearray()
    write_varint(out, len(content) if length is None else length)
    return bytes(out + content)


def said(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except ValueError as error:
        return f"refused: {error}"


@given(records)
def test_honest_records_pass_and_their_newest_timestamp_is_found(made: list[Record]) -> None:
    body, base = body_of(made)
    newest = max(each.timestamp for each in made)
    for check in TWINS:
        assert check(body, 0, len(made), base, LEAST, MOST, False, 10) == (max(newest, -1), (), 0)


@given(records, st.integers(0, 2**62), st.integers(0, 2**62))
def test_records_without_a_key_or_out_of_the_bounds_are_named(made: list[Record], oldest: int, newest: int) -> None:
    body, base = body_of(made)
    bad = []
    for index, each in enumerate(made):
        if each.key is None:
            bad.append((index, walk.NO_KEY))
        elif each.timestamp != -1 and not oldest <= each.timestamp <= newest:
            bad.append((index, walk.BAD_TIMESTAMP))
    for check in TWINS:
        _, listed, count = check(body, 0, len(made), base, oldest, newest, True, 3)
        assert (listed, count) == (tuple(bad[:3]), len(bad))


@pytest.mark.parametrize(
    ("body", "count", "problem"),
    [
        (record(0, 0, -1, -1, 0), 2, "record 1 has a wrong length"),
        (record(0, 0, -1, -1, 0) * 2, 2, "record 1 is not at the offset after the one before"),
        (record(0, 5, -1, -1, 0), 1, "record 0 is not at the offset after the one before"),
        (record(0, 0, -1, -1, 0) + b"\0", 1, "1 bytes after the last record"),
        (record(0, 0, -1, -1, 0, length=-3), 1, "record 0 has a wrong length"),
        (record(0, 0, -1, -1, 0, length=7), 1, "record 0 has a wrong length"),
        (record(0, 0, -1, -1, 0, b"\0"), 1, "record 0 is longer than its content"),
        (record(2**62, 0, -1, -1, 0), 1, "record 0 has a wrong timestamp"),
        (record(b"\xff" * 11, 0, -1, -1, 0), 1, "record 0 has a wrong timestamp"),
        (record(0, 0, -2, -1, 0), 1, "record 0 has a wrong key"),
        (record(0, 0, 9, -1, 0), 1, "record 0 has a wrong key"),
        (record(0, 0, -1, 9, 0), 1, "record 0 has a wrong value"),
        (record(0, 0, -1, -1, -1), 1, "record 0 has wrong headers"),
        (record(0, 0, -1, -1, 1), 1, "record 0 has wrong headers"),
        (record(0, 0, -1, -1, 1, -1, -1), 1, "record 0 has wrong headers"),
        (record(0, 0, -1, -1, 1, 2, b"\xff\xff", -1), 1, "record 0 has wrong headers"),
        (record(0, 0, -1, -1, 2**31 - 1), 1, "record 0 has wrong headers"),
        (b"", 1, "record 0 has a wrong length"),
    ],
)
def test_lies_are_refused_with_the_record_and_what_is_wrong(body: bytes, count: int, problem: str) -> None:
    for check in TWINS:
        with pytest.raises(ValueError, match=f"^{problem}$"):
            check(body, 0, count, 2**62, LEAST, MOST, False, 10)


@examples(100, 400)
@given(records, st.data())
def test_both_twins_say_the_same_of_damaged_bytes(made: list[Record], data: st.DataObject) -> None:
    body, base = body_of(made)
    damaged = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    for bytes_ in (bytes(damaged), cut):
        arguments: Any = (bytes_, 0, len(made), base, 0, 2**62, True, 5)
        assert len({repr(said(lambda check=check: check(*arguments))) for check in TWINS}) == 1  # type: ignore[misc]
        look: Any = (bytes_, len(made), base, 100, 7, False, 2**40, 101, 104)
        assert said(lambda: walk.find_time(*look)) == said(lambda: walk.find_time_in_python(*look))


@given(records, st.integers(-1, 2**62), st.integers(0, 12), st.integers(0, 12))
def test_the_first_record_at_a_time_or_after_it_is_found(made: list[Record], wanted: int, lo: int, hi: int) -> None:
    body, base = body_of(made)
    expected = None
    for index, each in enumerate(made):
        if expected is None and each.timestamp >= wanted and lo <= index < hi:
            expected = 1000 + index, each.timestamp
    for find in (walk.find_time, walk.find_time_in_python):
        assert find(body, len(made), base, 1000, -1, False, wanted, 1000 + lo, 1000 + hi) == expected
        stamped = find(body, len(made), base, 1000, 77, True, 77, 1000 + lo, 1000 + hi)
        assert stamped == ((1000 + lo, 77) if lo < min(hi, len(made)) else None)


def test_text_in_headers_is_judged_as_python_does() -> None:
    """Every two- to four-byte sequence around the edges of RFC 3629."""
    edges = [0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5]
    for first in edges:
        for second in edges:
            for third in (0x41, 0x80, 0xBF):
                name = bytes([first, second, third, 0x80])
                body = record(0, 0, -1, -1, 1, 4, name, -1)
                verdicts = {repr(said(lambda: c(body, 0, 1, 0, LEAST, MOST, False, 1))) for c in TWINS}
                assert len(verdicts) == 1, name
