"""How long a frame may take to arrive."""

from __future__ import annotations

from barnabas.broker.net.frame_timer import Allowance, FrameTimer

SECOND_AND_MORE = Allowance(1.0, 1000)


def test_a_frame_has_more_time_as_its_bytes_come() -> None:
    timer = FrameTimer()
    timer.begin(10.0)
    assert not timer.is_too_slow(11.0, 0, SECOND_AND_MORE)
    assert timer.is_too_slow(11.1, 0, SECOND_AND_MORE)
    assert not timer.is_too_slow(11.1, 500, SECOND_AND_MORE)
    timer.end()
    assert not timer.is_too_slow(1e9, 0, SECOND_AND_MORE)


def test_time_in_which_the_broker_reads_nothing_does_not_count() -> None:
    timer = FrameTimer()
    timer.begin(10.0)
    timer.stop()
    assert not timer.is_too_slow(1e9, 0, SECOND_AND_MORE)
    timer.go_on(100.0)
    assert not timer.is_too_slow(101.0, 0, SECOND_AND_MORE)
    assert timer.is_too_slow(101.1, 0, SECOND_AND_MORE)
    timer.end()
    timer.stop()
    timer.go_on(200.0)
    assert not timer.is_running, "no frame had begun"
