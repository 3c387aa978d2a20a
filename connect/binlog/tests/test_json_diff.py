"""MySQL's partial updates of JSON: bytes made from MySQL's description, compared with a model; and false changes."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.connect.binlog import columns, events
from barnabas.connect.binlog.columns import Layout, layout_of
from barnabas.connect.binlog.events import EventError
from barnabas.connect.binlog.json_diff import patched
from barnabas.connect.binlog.reader import Begin, Change, End, Place, Reader
from barnabas.connect.binlog.tests.test_binary_json import made
from barnabas.connect.binlog.tests.test_columns import CHARSETS, table
from barnabas.connect.binlog.tests.test_payload import number

REPLACE, INSERT, REMOVE = range(3)
NAMES = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(["a", 'with "quotes"', "a.b", "[0]", "é"])
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False), NAMES
)
DOCUMENTS = st.recursive(
    st.lists(LEAVES, max_size=4) | st.dictionaries(NAMES, LEAVES, max_size=4),
    lambda inner: st.lists(inner | LEAVES, max_size=4) | st.dictionaries(NAMES, inner | LEAVES, max_size=4),
    max_leaves=12,
)


def text(value: Any) -> str:
    """The text as the server prints it."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
        return "{" + ", ".join(f"{text(name)}: {text(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(text(each) for each in value) + "]"
    if isinstance(value, float):
        return repr(value).replace("e+", "e")
    return json.dumps(value, ensure_ascii=False)


def change(kind: int, path: str, value: Any = None) -> bytes:
    raw = path.encode()
    out = bytes([kind]) + number(len(raw)) + raw
    if kind == REMOVE:
        return out
    of, data = made(value, large=False)
    return out + number(1 + len(data)) + bytes([of]) + data


def after(before: Any, *changes: bytes) -> str:
    return patched(text(before), b"".join(changes), columns._decimal)


def leg(at: str | int) -> str:
    return f"[{at}]" if isinstance(at, int) else f".{json.dumps(at, ensure_ascii=False)}"


@given(DOCUMENTS, st.lists(st.tuples(st.integers(0, 2), LEAVES | DOCUMENTS), max_size=5), st.data())
def test_changes_make_what_they_say(document: Any, steps: list[tuple[int, Any]], data: st.DataObject) -> None:
    start, changes = text(document), b""
    for kind, value in steps:
        path, inside = "$", document
        while inside and data.draw(st.booleans()):
            at: Any = data.draw(st.sampled_from(sorted(inside) if isinstance(inside, dict) else range(len(inside))))
            if not isinstance(inside[at], (dict, list)):
                break
            path, inside = path + leg(at), inside[at]
        if kind == INSERT:
            if isinstance(inside, list):
                at = data.draw(st.integers(0, len(inside) + 1))
                inside.insert(at, value)
            else:
                at = data.draw(NAMES.filter(lambda name: name not in inside))
                inside[at] = value
        elif not inside:
            continue
        else:
            at = data.draw(st.sampled_from(sorted(inside) if isinstance(inside, dict) else range(len(inside))))
            if kind == REPLACE:
                inside[at] = value
            else:
                del inside[at]
        changes += change(kind, path + leg(at), value)
        document = json.loads(text(document))  # no part of it occurs twice
    assert patched(start, changes, columns._decimal) == text(document)


def test_numbers_stay_as_they_are_written() -> None:
    before = '{"a": 1.10, "b": 12345678901234567890123, "c": 1e100}'
    found = patched(before, change(REMOVE, "$.c"), columns._decimal)
    assert found == '{"a": 1.10, "b": 12345678901234567890123}'


def test_places_from_the_end() -> None:
    assert after([1, 2, 3], change(REPLACE, "$[last]", 9), change(REMOVE, "$[last-2]")) == "[2, 9]"


@pytest.mark.parametrize(
    ("before", "changes"),
    [
        ({"a": 1}, change(REPLACE, "$.b", 1)),
        ({"a": 1}, change(REMOVE, "$.b")),
        ({"a": 1}, change(INSERT, "$.a", 1)),
        ({"a": 1}, change(INSERT, "$.a.b", 1)),
        ({"a": 1}, change(REPLACE, "$[0]", 1)),
        ([1], change(REPLACE, "$[1]", 1)),
        ([1], change(REMOVE, "$[last-1]")),
        ([1], change(REPLACE, "$.a", 1)),
        ([1], change(INSERT, "$.a", 1)),
        ({"a": 1}, change(REPLACE, "$", 1)),
        ({"a": 1}, change(REPLACE, "a", 1)),
        ({"a": 1}, change(REPLACE, "$.a[*]", 1)),
        ({"a": 1}, change(REPLACE, "$.a**", 1)),
        ({"a": 1}, change(3, "$.a", 1)),
        ({"a": 1}, change(REPLACE, "$.a", 1)[:-1]),
        ({"a": 1}, b"\0\xff"),
        ({"a": 1}, b"\0\x02$\xff"),
        ({"a": 1}, change(REMOVE, '$."\\')),
    ],
)
def test_changes_of_another_value_are_refused(before: Any, changes: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        after(before, changes)


@given(st.binary(max_size=60))
def test_any_bytes_are_changes_or_refused(data: bytes) -> None:
    try:
        json.loads(patched('{"a": [1, {"b": null}]}', data, columns._decimal))
    except ValueError:
        return


# --- rows -------------------------------------------------------------------------------------------------------------


def column(value: Any) -> bytes:
    of, data = made(value, large=False)
    return struct.pack("<I", 1 + len(data)) + bytes([of]) + data


def layout() -> Layout:
    """An INT and three JSON columns."""
    return layout_of(table(bytes([3, 245, 245, 245]), b"\x04" * 3), CHARSETS, None)


def rows() -> bytes:
    """Two updates: the first has its second JSON as changes; the other one has no changes."""
    changes = change(REPLACE, "$.a", 2)
    first = b"\x00" + struct.pack("<i", 1) + column([]) + column({"a": 1}) + column({"b": 1})
    first += (
        b"\x01" + b"\x02" + b"\x08" + struct.pack("<i", 1) + column([3]) + struct.pack("<I", len(changes)) + changes
    )
    second = b"\x0e" + struct.pack("<i", 2) + b"\x00" + b"\x0c" + struct.pack("<i", 2) + column("whole")
    return first + second


def test_rows_of_partial_updates_have_the_whole_values() -> None:
    assert list(layout().partial_rows(rows(), 0)) == [
        ([1, "[]", '{"a": 1}', '{"b": 1}'], [1, "[3]", '{"a": 2}', None]),
        ([2, None, None, None], [2, '"whole"', None, None]),
    ]


@given(st.integers(0, len(rows())), st.binary(min_size=1, max_size=3))
def test_rows_of_partial_updates_that_are_damaged_are_rows_or_refused(at: int, data: bytes) -> None:
    damaged = rows()[:at] + data + rows()[at + len(data) :]
    try:
        list(layout().partial_rows(damaged[: len(rows()) - at % 2], 0))
    except EventError:
        return


def test_a_null_that_is_changed_in_part_is_refused() -> None:
    row = b"\x0e" + struct.pack("<i", 2) + b"\x01\x01\x0c" + struct.pack("<i", 2) + struct.pack("<I", 0)
    with pytest.raises(EventError, match="c1 was NULL before it was changed in part"):
        list(layout().partial_rows(row, 0))


def test_a_reader_takes_a_partial_update_for_an_update() -> None:
    def sent(kind: int, body: bytes, end: int) -> bytes:
        return struct.pack("<IBIIIH", 7, kind, 1, events.HEADER_SIZE + len(body), end, 0) + body

    map_ = b"\x05\0\0\0\0\0" + b"\0\0" + b"\x01d\0" + b"\x01t\0" + b"\x02\x03\xf5" + b"\x01\x04" + b"\0"
    map_ += b"\x01\x01\x00" + b"\x04\x04\x01n\x01j"  # signedness and names
    changes = change(INSERT, "$.b", [True])
    row = b"\x05\0\0\0\0\0" + b"\0\0" + b"\x02\0" + b"\x02" + b"\x03\x03"
    row += b"\x00" + struct.pack("<i", 42) + column({"a": 1})
    row += b"\x01" + b"\x01" + b"\x00" + struct.pack("<i", 42) + struct.pack("<I", len(changes)) + changes
    begin = struct.pack("<IIBHH", 1, 0, 0, 0, 0) + b"\0BEGIN"
    gtid = b"\x01" + bytes(15) + b"\x01" + struct.pack("<q", 3)
    log = [
        sent(events.MYSQL_GTID, gtid, 200),
        sent(events.QUERY, begin, 300),
        sent(events.TABLE_MAP, map_, 400),
        sent(events.PARTIAL_UPDATE, row, 500),
        sent(events.XID, bytes(8), 600),
    ]
    reader = Reader(Place("", "binlog.000001", 157), {}, mariadb=False)
    found = [item for each in log if (item := reader.read(each)) is not None]
    assert [type(item) for item in found] == [Begin, Change, End]
    assert isinstance(found[1], Change)
    assert found[1].kind == events.UPDATE
    assert found[1].rows == [([42, '{"a": 1}'], [42, '{"a": 1, "b": [true]}'])]
