"""The pauses between attempts grow up to a maximum, and start again after an attempt that lasted."""

import trio
import trio.testing

from barnabas.connect.pauses import Pauses


async def test_each_pause_may_be_twice_as_long_as_the_one_before_and_the_longest_is_half_a_minute(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pauses = Pauses()
    for number in range(2000):
        pauses.begin()
        most = min(0.5 * 2**number, 30) if number < 10 else 30
        assert most / 2 <= pauses.next() <= most


async def test_they_begin_anew_after_an_attempt_that_lasted(autojump_clock: trio.testing.MockClock) -> None:
    pauses = Pauses()
    for _ in range(5):
        pauses.begin()
        pauses.next()
    pauses.begin()
    await trio.sleep(31)
    assert pauses.next() <= 0.5
