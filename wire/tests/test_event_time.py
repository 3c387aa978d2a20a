"""Which times of a schema a stream may have been meant to use."""

from __future__ import annotations

import pytest

from barnabas.wire.streams.clauses import parse_stream
from barnabas.wire.streams.event_time import meant_time, time_columns, told_time


@pytest.mark.parametrize(
    ("schema", "columns"),
    [
        ("device STRING, at TIMESTAMP", ["at"]),
        ("at timestamp NOT NULL, b Timestamp_LTZ", ["at", "b"]),
        ("at: TIMESTAMP, n DECIMAL(10, 2)", ["at"]),
        ("a STRUCT<at: TIMESTAMP, b: INT>, c ARRAY<ARRAY<TIMESTAMP>>, `d e` TIMESTAMP", ["d e"]),
        ("timestamp STRING, at TIMESTAMP_NTZ, d DATE", []),
        ("", []),
        ("at", []),
        ("'", []),
        ("<<<, at TIMESTAMP", []),
        (">, ,", []),
    ],
)
def test_times_of_a_schema(schema: str, columns: list[str]) -> None:
    assert time_columns(schema) == columns


def meant(options: str, schema: str, window: str = "INTERVAL(1s)") -> str | None:
    return meant_time(parse_stream(f"{options} AS SELECT count(*) FROM s {window}"), schema)


def test_only_one_that_is_not_named_may_be_meant() -> None:
    assert meant("", "a INT, at TIMESTAMP") == "at"
    assert meant("", "a INT, at TIMESTAMP, b TIMESTAMP") is None
    assert meant("", "a INT") is None
    assert meant("EVENT_TIME at", "a INT, at TIMESTAMP") is None
    assert meant("EVENT_TIME _timestamp", "a INT, at TIMESTAMP") is None, "that is what was meant"
    assert meant("", "a INT, at TIMESTAMP", "PERIOD(1s)") is None


def test_a_time_for_people() -> None:
    assert told_time("_timestamp") == "_timestamp, the record's own time"
    assert told_time("at") == "at"
