"""Processing many lines at a time gives the same as record by record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.scripts.form import fill
from barnabas.wire.batch import Record, build_batch, iter_records, parse_header, records_data
from barnabas.wire.compression import CompressionType
from barnabas.wire.errors import KafkaError
from barnabas.wire.lines import NATIVE, LineRules, encode_lines, fill_batch

pytestmark = pytest.mark.skipif(not NATIVE, reason="the module in C was not built")

BLOB = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BLOB), max_size=3).map(tuple)
RECORDS = st.lists(st.tuples(BLOB, BLOB, st.integers(0, 2**40), HEADERS, st.integers(1, 5)), min_size=1, max_size=20)
PARTS = st.lists(st.binary(max_size=4) | st.sampled_from("kshoT"), max_size=6).map(tuple)
HUGE = 1 << 40


def by_hand(data: bytes, rules: LineRules, most: int) -> tuple[list[Record], int, bool]:
    """The records of lines, where the next one begins, and whether that one is bad."""
    found: list[Record] = []
    at = 0
    while at < len(data) and len(found) < most:
        line, newline, _ = data[at:].partition(b"\n")
        following = at + len(line) + len(newline)
        line = line.rstrip(b"\r") if rules.strip_cr else line
        key = None
        if rules.separator:
            key, is_there, line = line.partition(rules.separator)
            if not is_there:
                return found, at, True
        value = None if line == rules.null else line
        found.append(Record(key, value, 7, rules.headers, len(found)))
        at = following
    return found, at, False


@given(
    st.lists(st.text(":;\r\nab\0é", max_size=300)).map("\n".join).map(str.encode),
    st.sampled_from([None, b":", b"::", b"::;"]),
    st.sampled_from([None, b"", b"a", b"null"]),
    HEADERS,
    st.booleans(),
    st.integers(1, 300),
)
def test_lines_become_the_records_that_they_are_by_hand(
    data: bytes,
    separator: bytes | None,
    null: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    strip_cr: bool,
    most: int,
) -> None:
    rules = LineRules(separator, null, headers, strip_cr)
    encoded = encode_lines(data, 0, rules, 7, most_records=most, most_bytes=HUGE)
    records, end, is_bad = by_hand(data, rules, most)
    assert (encoded.records, encoded.end, encoded.is_bad) == (len(records), end, is_bad)
    assert (list(iter_records(encoded.batch)) if records else []) == records
    assert encoded.batch == (build_batch(records) if records else b"")


def test_a_batch_ends_with_its_bytes() -> None:
    data = b"x" * 99 + b"\n" + b"y" * 99 + b"\n" + b"z\n"
    first = encode_lines(data, 0, LineRules(), 0, most_records=100, most_bytes=50)
    assert (first.records, first.end) == (1, 100)
    second = encode_lines(data, first.end, LineRules(), 0, most_records=100, most_bytes=150)
    assert (second.records, second.end) == (2, len(data))


def test_a_batch_of_lines_is_compressed() -> None:
    lines = encode_lines(
        b"a\n" * 1000, 0, LineRules(), 0, most_records=2000, most_bytes=HUGE, codec=CompressionType.GZIP
    )
    assert len(list(iter_records(lines.batch))) == 1000
    assert len(lines.batch) < 3000


def test_lines_from_outside_are_refused() -> None:
    with pytest.raises(ValueError, match="outside"):
        encode_lines(b"a\n", 3, LineRules(), 0, most_records=1, most_bytes=1)


@given(RECORDS, PARTS, st.integers(0, 60), st.integers(0, 25), st.booleans())
def test_records_are_filled_in_as_they_are_one_by_one(
    made: list[tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...], int]],
    parts: tuple[bytes | str, ...],
    position: int,
    most: int,
    stamped: bool,
) -> None:
    offset, records = 10, []
    for key, value, timestamp, headers, step in made:
        records.append(Record(key, value, timestamp, headers, offset))
        offset += step
    batch = build_batch(records, base_offset=10, timestamp_type=int(stamped), append_time=99)
    header, data = records_data(batch)
    filled = fill_batch(header, data, position, most, parts)
    seen = [record for record in iter_records(batch) if record.offset >= position][:most]
    assert filled.text == b"".join(fill(parts, "t", 0, record, raw=True) for record in seen)
    assert filled.records == len(seen)
    assert filled.position == (seen[-1].offset + 1 if seen else position)


@given(st.binary(max_size=80), st.integers(0, 5))
def test_what_are_no_records_is_refused_or_are_records(data: bytes, count: int) -> None:
    header = parse_header(build_batch([Record(None, b"x", 0)] * max(count, 1)))
    try:
        filled = fill_batch(header, data, 0, 10, ("k", "s", "h", "o", "T"))
    except KafkaError:
        return
    assert filled.records == header.records_count


@given(RECORDS, st.data())
def test_a_damaged_byte_is_refused_or_harmless(
    made: list[tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...], int]], data: st.DataObject
) -> None:
    header, records = records_data(build_batch([Record(k, v, t, h) for k, v, t, h, _ in made]))
    at = data.draw(st.integers(0, len(records) - 1))
    damaged = bytearray(records)
    damaged[at] = data.draw(st.integers(0, 255))
    try:
        fill_batch(header, bytes(damaged), 0, 100, ("k", "s", "h", "o", "T"))
    except KafkaError:
        pass
