"""When a batch is due: never late for a window's end, and otherwise as rarely as possible."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.streams.windows.due import FRESH_MS, MOST_BYTES, WAIT_MS, Due, Rule, Unread, rule_of
from barnabas.wire.streams.clauses import parse_stream

BASE = 1_700_000_000_000


def rule(*texts: str, least_ms: int = 0) -> Rule:
    clauses = [parse_stream(text) for text in texts]
    return rule_of(clauses[0], [each.window for each in clauses], least_ms)


def stream(window: str, options: str = "") -> str:
    return f"{options} AS SELECT count(*) FROM s {window}"


@dataclass
class Batches:
    """What a simulated query does: each batch takes `took` seconds, plus `took` again if it moves the watermark."""

    took: float
    begun: list[float] = field(default_factory=list)
    watermarks: list[int] = field(default_factory=list)  # after each batch
    waited: float = 0.0  # the longest wait of a record

    def closed_at(self, end: int) -> float | None:
        """The start of the batch that brought the watermark to a window's end."""
        return next((at for at, mark in zip(self.begun, self.watermarks, strict=True) if mark >= end), None)


def simulated(rule: Rule, records: list[tuple[float, int]], took: float, *, waits: bool) -> Batches:
    """A query over records, each with the second in which it comes and its event time.

    Without `waits`, it has a batch as soon as there is something.
    """
    now, watermark, read = 0.0, 0, 0
    due, made = Due(rule, lambda: now), Batches(took)
    times = [at for at, _ in records]
    last = times[-1] + WAIT_MS / 1000 + 5
    while now < last:
        there = bisect_right(times, now)
        new = records[read:there]
        unread = Unread(len(new), max((time for _, time in new), default=None))
        if due.is_due(unread, watermark) if waits else bool(new):
            due.planned(unread, watermark, leaves=False)
            before, watermark = watermark, max(watermark, max(time for _, time in new) - rule.delay_ms)
            made.begun.append(now)
            made.watermarks.append(watermark)
            made.waited = max(made.waited, *(now - at for at, _ in new))
            read, now = there, now + took * (1 + (watermark > before))
        elif new:
            now += due.look_again(unread, watermark)
        else:
            now = max(times[there] if there < len(times) else last, now + due.look_again(unread, watermark))
    return made


intervals = st.builds(
    lambda length, parts, offset: f"INTERVAL({length * parts}a, {offset}a) SLIDING({length}a)",
    st.integers(500, 20_000),
    st.integers(1, 5),
    st.integers(0, 400),
)
arrivals = st.lists(
    st.tuples(st.sampled_from([0.01, 0.05, 0.3, 1.0, 4.0, 12.0]), st.integers(-2000, 50)), min_size=2, max_size=120
)


@settings(max_examples=60, deadline=None)
@given(st.lists(intervals, min_size=1, max_size=3), st.integers(0, 3), arrivals, st.sampled_from([0.1, 0.4]))
def test_a_window_closes_as_soon_as_with_a_batch_for_each_record_and_there_are_fewer_batches(
    windows: list[str], watermark: int, gaps: list[tuple[float, int]], took: float
) -> None:
    of = rule(*(stream(window, f"WATERMARK {watermark}s") for window in windows))
    at, records = 0.0, []
    for gap, jitter in gaps:
        at += gap
        records.append((at, BASE + int(at * 1000) + jitter))
    eager, lazy = (simulated(of, records, took, waits=waits) for waits in (False, True))
    assert len(lazy.begun) <= len(eager.begun)
    assert lazy.waited <= of.wait_ms / 1000 + 2 * took + 0.3
    ends = set()
    for _, time in records:
        end = of.next_end(time - of.delay_ms - 1)
        assert end is not None
        ends.add(end)
    for end in ends:
        one, other = eager.closed_at(end), lazy.closed_at(end)
        assert (one is None) == (other is None)
        if one is not None and other is not None:  # a look, a batch that has begun, and the same without records
            assert other <= one + 0.25 + 2 * took


def test_a_steady_source_has_a_batch_for_each_end_of_a_window() -> None:
    records = [(n / 50, BASE + n * 20) for n in range(50 * 60)]
    made = simulated(rule(stream("INTERVAL(10s) SLIDING(5s)")), records, 0.3, waits=True)
    assert len(made.begun) <= 60 / 5 + 6  # the first ones follow one another faster
    eager = simulated(rule(stream("INTERVAL(10s) SLIDING(5s)")), records, 0.3, waits=False)
    assert len(eager.begun) >= 60 / 0.6 - 1


def test_a_record_after_a_while_is_read_at_once_and_a_trickle_together() -> None:
    of = rule(stream("INTERVAL(1d)"))
    began = BASE // 86_400_000 * 86_400_000
    records = [(1.0, began), (60.0, began + 1), *((61 + n / 2, began + 2) for n in range(240))]
    made = simulated(of, records, 0.1, waits=True)
    assert [round(at - 1.0, 1) for at in made.begun[:1]] == [0.0]
    assert [round(at - 60.0, 1) for at in made.begun[1:2]] == [0.0]
    gaps = [round(other - one) for one, other in pairwise(made.begun[1:])]
    assert gaps[:6] == [1, 1, 2, 4, 8, 10]
    assert set(gaps[6:]) == {10}


@pytest.mark.parametrize(
    "text",
    [
        stream("SESSION(10s)"),
        stream("COUNT_WINDOW(3)"),
        stream("STATE_WINDOW(a)"),
        stream("PERIOD(10s)"),
        stream("INTERVAL(1h)", "TRIGGER AT_ONCE"),
        stream("INTERVAL(1h)", "IGNORE EXPIRED 0"),
        "AS SELECT count(*) FROM s JOIN d ON s.a = d._key INTERVAL(1h)",
    ],
)
def test_what_may_have_a_result_at_any_time_waits_for_half_a_second(text: str) -> None:
    of = rule(text)
    assert (of.wait_ms, of.ends) == (FRESH_MS, ())
    made = simulated(of, [(1 + n / 50, BASE) for n in range(500)], 0.1, waits=True)
    assert 18 <= len(made.begun) <= 21
    assert made.waited <= FRESH_MS / 1000 + 0.3


def test_windows_with_fill_close_like_others() -> None:
    assert rule(stream("INTERVAL(10s) FILL(PREV)")) == rule(stream("INTERVAL(10s)"))


def test_ends_are_those_of_all_streams() -> None:
    of = rule(stream("INTERVAL(10s, 3s) SLIDING(5s)"), stream("INTERVAL(7s)"))
    assert of.ends == ((5000, 3000), (7000, 0))
    assert [of.next_end(at) for at in (0, 2999, 3000, 7000, 7999, 8000, -1)] == [
        3000,
        3000,
        7000,
        8000,
        8000,
        13_000,
        0,
    ]


def test_max_delay_is_not_much_longer_for_waiting() -> None:
    assert rule(stream("INTERVAL(1h)", "MAX_DELAY 8s")).wait_ms == 2000
    assert rule(stream("SESSION(1h)", "MAX_DELAY 1h")).wait_ms == FRESH_MS
    assert rule(stream("INTERVAL(1h)", "MAX_DELAY 1h")).wait_ms == WAIT_MS


def test_a_backlog_is_read_without_a_pause_and_what_is_much_at_once() -> None:
    now = 100.0
    due = Due(rule(stream("INTERVAL(1d)"), least_ms=250), lambda: now)
    due.planned(Unread(64 << 20), BASE, leaves=True)
    assert due.is_due(Unread(5, BASE), BASE), "the rest of a backlog"
    due.planned(Unread(5, BASE), BASE, leaves=False)
    assert not due.is_due(Unread(MOST_BYTES - 1, BASE), BASE)
    assert due.is_due(Unread(MOST_BYTES), BASE)


def test_two_batches_that_read_are_apart() -> None:
    now = 100.0
    due = Due(rule(stream("INTERVAL(10a)"), least_ms=250), lambda: now)
    assert due.is_due(Unread(5, BASE), 0)
    due.planned(Unread(5, BASE), 0, leaves=False)
    now += 0.2
    assert not due.is_due(Unread(5, BASE + 200), BASE)
    now += 0.1
    assert due.is_due(Unread(5, BASE + 200), BASE)


def test_without_a_rule_nothing_waits() -> None:
    due = Due(Rule.decode(""))
    for _ in range(3):
        assert due.is_due(Unread(1), 0)
        due.planned(Unread(1), 0, leaves=False)


def test_a_rule_passes_through_an_option() -> None:
    of = rule(stream("INTERVAL(10s)", "EVENT_TIME at WATERMARK 5s MAX_AHEAD 2s"), least_ms=250)
    assert Rule.decode(of.encode()) == of
    assert (of.time, of.delay_ms, of.ahead_ms) == ("at", 5000, 2000)
