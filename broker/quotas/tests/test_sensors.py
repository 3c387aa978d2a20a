"""The number of names that clients make up is bounded, and does not help a client to evade a quota."""

from __future__ import annotations

import tracemalloc

import pytest

from barnabas.broker.quotas import sensors
from barnabas.broker.quotas.rates import Rate, Windows
from barnabas.broker.quotas.sensors import Sensors

WINDOWS = Windows(11, 1.0)


def rates() -> Sensors[Rate]:
    return Sensors(Rate, WINDOWS.span)


def test_one_name_is_one_measure() -> None:
    all_rates = rates()
    assert all_rates.get("a", ("k", "u", "c"), 0.0) is all_rates.get("b", ("k", "u", "c"), 1.0)
    assert all_rates.get("a", ("k", "u", "d"), 1.0) is not all_rates.get("a", ("k", "u", "c"), 1.0)
    assert all_rates.get("a", ("other", "u", "c"), 1.0) is not all_rates.get("a", ("k", "u", "c"), 1.0)


def test_further_names_of_one_client_are_measured_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors, "MOST_OF_ONE", 3)
    all_rates = rates()
    for number in range(100):
        all_rates.get("a", ("k", "", f"{number}"), 0.0).record(1, 0.0, WINDOWS)
    assert len(all_rates) == 4
    assert all_rates.get("a", ("k", "", "new"), 0.0).total(0.0, WINDOWS) == 97
    assert all_rates.get("a", ("k", "", "0"), 0.0).total(0.0, WINDOWS) == 1
    assert all_rates.get("b", ("k", "", "b's"), 0.0).total(0.0, WINDOWS) == 0


def test_a_name_that_rests_is_dropped_when_it_measures_nothing() -> None:
    all_rates = rates()
    all_rates.get("a", ("k", "", "1"), 0.0).record(1, 0.0, WINDOWS)
    all_rates.get("a", ("k", "", "2"), 5.0).record(1, 5.0, WINDOWS)
    all_rates.get("a", ("k", "", "3"), 10.9)
    assert len(all_rates) == 3
    all_rates.get("a", ("k", "", "4"), 11.0)
    assert len(all_rates) == 3
    assert all_rates.get("a", ("k", "", "2"), 11.0).total(11.0, WINDOWS) == 1


@pytest.mark.parametrize("names", [50_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_any_number_of_names_of_many_clients_has_a_bound(names: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors, "MOST", 200)
    all_rates, text = rates(), "x" * 1000
    tracemalloc.start()
    try:
        for number in range(names):
            all_rates.get(str(number % 1000), ("k", "", f"{number}{text}"), 0.0).record(1, 0.0, WINDOWS)
        assert len(all_rates) == 200
        mine = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/quotas/*")])  # no other thread's
        assert 0 < sum(each.size for each in mine.statistics("filename")) < 1 << 20
    finally:
        tracemalloc.stop()
