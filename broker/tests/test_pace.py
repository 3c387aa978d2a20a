"""How long a frame may take."""

from __future__ import annotations

from barnabas.broker.pace import Allowance, Pace

SECOND_AND_MORE = Allowance(1.0, 1000)


def test_a_frame_has_more_time_as_its_bytes_come() -> None:
    pace = Pace()
    pace.begin(10.0)
    assert not pace.is_too_slow(11.0, 0, SECOND_AND_MORE)
    assert pace.is_too_slow(11.1, 0, SECOND_AND_MORE)
    assert not pace.is_too_slow(11.1, 500, SECOND_AND_MORE)
    pace.end()
    assert not pace.is_too_slow(1e9, 0, SECOND_AND_MORE)


def test_time_in_which_the_broker_reads_nothing_does_not_count() -> None:
    pace = Pace()
    pace.begin(10.0)
    pace.stop()
    assert not pace.is_too_slow(1e9, 0, SECOND_AND_MORE)
    pace.go_on(100.0)
    assert not pace.is_too_slow(101.0, 0, SECOND_AND_MORE)
    assert pace.is_too_slow(101.1, 0, SECOND_AND_MORE)
    pace.end()
    pace.stop()
    pace.go_on(200.0)
    assert not pace.is_running, "no frame had begun"
