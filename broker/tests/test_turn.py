"""Work at the end of a turn."""

from __future__ import annotations

import pytest

from barnabas.broker.net.turn import Turn


def test_work_is_done_once_at_the_end_of_the_turn_and_at_once_outside() -> None:
    turn, done = Turn(), []

    def work() -> None:
        done.append("work")
        turn.soon(more)

    def more() -> None:
        done.append("more")

    with turn:
        turn.soon(work)
        turn.soon(work)
        assert done == []
    assert done == ["work", "more"]
    turn.soon(more)
    assert done == ["work", "more", "more"]


def test_a_turn_that_fails_still_serves_those_who_wait() -> None:
    turn, done = Turn(), []

    def fails() -> None:
        with turn:
            turn.soon(lambda: done.append("served"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert done == ["served"]
