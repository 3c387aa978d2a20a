"""States of queries: back-off, and the figures of SHOW QUERIES."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.query.health import FAILED, RETRYING, RUNNING, Health


def test_a_failing_query_is_tried_again_later_each_time_up_to_a_minute() -> None:
    health, at, waits = Health(), 100.0, []
    for _ in range(9):
        health.failed(at, "why")
        assert not health.may_run(at)
        tried = next(at + step / 2 for step in range(1, 400) if health.may_run(at + step / 2))
        waits.append(tried - at)
        at = tried
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert (health.state, health.error) == (RETRYING, "why")
    health.ran(at, 5, 1, 0.25)
    assert health.may_run(at)
    health.failed(at, "again")
    assert health.may_run(at + 1)


def test_a_stopped_query_stays_stopped() -> None:
    health = Health()
    health.stopped("gone")
    assert not health.may_run(1e9)
    assert health.told(0, "q", "s").state == FAILED


def test_rows_a_second_are_of_the_last_ten_seconds() -> None:
    health = Health()
    health.ran(100.0, 50, 2, 0.5)
    health.ran(105.0, 100, 0, 0.25)
    health.ran(106.0, 0, 0, 0.0)  # a look that found nothing new
    told = health.told(106.0, "q", "s")
    assert (told.state, told.rows, told.dead_letters) == (RUNNING, 150, 2)
    assert (told.rows_per_second, told.batch_ms) == (15.0, 250.0)
    assert health.told(112.0, "q", "s").rows_per_second == 10.0
