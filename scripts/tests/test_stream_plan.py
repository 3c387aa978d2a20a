"""The tasks of a stream, as EXPLAIN shows them."""

from __future__ import annotations

from barnabas.scripts.stream_plan import picture, plan_lines, plan_text
from barnabas.wire.streams.clauses import parse_stream

AGAIN = """WATERMARK 5s IGNORE EXPIRED 0 EXPIRED_TIME 2h AS SELECT _wstart, device, avg(temp) AS t FROM sensors
    WHERE temp > 0 PARTITION BY device INTERVAL(10s) SLIDING(5s) HAVING count(*) > 1"""


def test_the_tasks_as_text() -> None:
    assert plan_text(plan_lines(parse_stream(AGAIN), "avg10")).splitlines() == [
        "source     topic sensors, event time _timestamp",
        "filter     temp > 0",
        "watermark  5s behind the latest event time",
        "window     windows of 10s, one each 5s",
        "again      windows that closed at most 2h ago, for late records",
        "aggregate  by window and device",
        "having     count(*) > 1",
        "sink       topic avg10, a result when its window closes; each batch is one transaction",
    ]


def test_the_tasks_as_a_picture() -> None:
    text = "WATERMARK 5s AS SELECT max(n) m FROM a LEFT JOIN b WITHIN 1m ON a.x = b.y WHERE b.z > 1 SESSION(30s)"
    assert (
        picture(plan_lines(parse_stream(text), "out"))
        == """\
┌─ source ──────────────────────────────────────────────────────────────────┐
│ topic a, event time _timestamp                                            │
│ join: records of topic b with x = b.y within 1m, or with nothing          │
│ filter: b.z > 1                                                           │
│ watermark: 5s behind the latest event time                                │
└─────────────────────────────────────┬─────────────────────────────────────┘
                                      ▼
┌─ aggregate ───────────────────────────────────────────────────────────────┐
│ window: sessions that end after 30s without a record                      │
│ by window                                                                 │
└─────────────────────────────────────┬─────────────────────────────────────┘
                                      ▼
┌─ sink ────────────────────────────────────────────────────────────────────┐
│ topic out, a result when its window closes; each batch is one transaction │
└───────────────────────────────────────────────────────────────────────────┘"""
    )


def test_a_long_line_is_wrapped_and_what_a_terminal_would_obey_is_written_out() -> None:
    condition = " AND ".join(f"column_{number} > {number}" for number in range(20))
    text = f"AS SELECT count(*) c FROM s WHERE {condition} AND x = '\x1b[31m' INTERVAL(1s)"
    drawn = picture(plan_lines(parse_stream(text), "out"))
    assert len({len(row) for row in drawn.splitlines() if "▼" not in row}) == 1
    assert max(map(len, drawn.splitlines())) <= 80
    assert "\x1b" not in drawn
