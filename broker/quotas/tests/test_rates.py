"""Rates over windows compared with a plain model, and the token bucket."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.quotas.rates import Rate, TokenBucket, Windows

WINDOWS = Windows(11, 1.0)


def model(events: list[tuple[float, float]], limit: float, now: float, windows: Windows) -> float:
    """Kafka's metrics: a sample begins with the first event after the previous sample is over."""
    samples: list[list[float]] = []  # begin, last event, total
    for at, amount in events:
        if not samples or at - samples[-1][0] >= windows.seconds:
            samples.append([at, at, 0.0])
            samples = samples[-windows.number :]
        samples[-1][1] = at
        samples[-1][2] += amount
    samples = [each for each in samples if now - each[1] < windows.number * windows.seconds]
    if not samples:
        return 0.0
    elapsed = now - samples[0][0]
    full = int(elapsed / windows.seconds)
    elapsed += max(0, windows.number - 1 - full) * windows.seconds
    rate = sum(each[2] for each in samples) / elapsed
    return max(0.0, (rate - limit) / limit * elapsed)


@given(
    steps=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 1000)), max_size=60),
    limit=st.integers(1, 1000),
    number=st.integers(2, 12),
)
def test_a_rate_is_that_of_the_model(steps: list[tuple[int, int]], limit: int, number: int) -> None:
    windows, rate, now = Windows(number, 1.0), Rate(), 5000.0
    events: list[tuple[float, float]] = []
    for pause, amount in steps:
        now += pause / 1000
        events.append((now, float(amount)))
        rate.record(amount, now, windows)
        wanted = model(events, limit, now, windows)
        assert abs(rate.throttle(limit, now, windows) - wanted) <= 1e-6 * (1 + wanted)


def test_a_burst_is_spread_over_the_windows() -> None:
    rate = Rate()
    rate.record(1000, 100.0, WINDOWS)
    assert rate.throttle(100, 100.0, WINDOWS) == 0.0
    rate.record(1000, 100.0, WINDOWS)
    assert rate.throttle(100, 100.0, WINDOWS) == 10.0


def test_what_is_taken_back_does_not_count() -> None:
    rate = Rate()
    rate.record(5000, 10.0, WINDOWS)
    rate.record(-5000, 10.0, WINDOWS)
    assert rate.throttle(1, 10.0, WINDOWS) == rate.total(10.0, WINDOWS) == 0.0


def test_after_all_windows_nothing_is_left() -> None:
    rate = Rate()
    rate.record(1e9, 10.0, WINDOWS)
    assert rate.throttle(1, 20.9, WINDOWS) > 0
    assert rate.throttle(1, 21.0, WINDOWS) == 0.0


def test_a_bucket_lets_a_burst_go_and_then_the_rate() -> None:
    bucket = TokenBucket()
    bucket.record(30, 2, 0.0, WINDOWS)  # 22 were there
    assert bucket.throttle(2, 0.0, WINDOWS) == 4.0
    assert bucket.throttle(2, 3.0, WINDOWS) == 1.0
    assert bucket.throttle(2, 4.0, WINDOWS) == 0.0
    bucket.record(2, 2, 5.0, WINDOWS)
    assert bucket.throttle(2, 5.0, WINDOWS) == 0.0
    bucket.record(1, 2, 5.0, WINDOWS)
    assert bucket.throttle(2, 5.0, WINDOWS) == 0.5


def test_a_bucket_is_never_more_than_full() -> None:
    bucket = TokenBucket()
    bucket.record(-100, 2, 0.0, WINDOWS)
    bucket.record(22, 2, 1000.0, WINDOWS)
    bucket.record(1, 2, 1000.0, WINDOWS)
    assert bucket.throttle(2, 1000.0, WINDOWS) == 0.5
