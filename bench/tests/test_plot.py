"""The plots of a result."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.results import Results
from bench.rows import SIZES

pytest.importorskip("matplotlib", reason="plots need the bench extra")

from bench import plot

ABOUT = {"cores": "2", "machine": "x86_64", "Python": "3.11", "Apache Kafka": "4", "Java": "17"}


def scaled() -> Results:
    found = Results(about=[ABOUT])
    for size in SIZES:
        for server in ("barnabas", "kafka"):
            found.add("fsync", f"scale-partitions-{size}", server, {"CPU us/req": 100.0 + size, "idle CPU %": 0.0})
    return found


def test_points_are_in_the_order_of_their_size() -> None:
    points = plot.points(scaled(), "fsync", "partitions", "CPU us/req", "kafka")
    assert points == {size: [100.0 + size] for size in SIZES}


def test_zero_stays_on_a_logarithmic_axis() -> None:
    assert plot.points(scaled(), "fsync", "partitions", "idle CPU %", "kafka")[1] == [plot.FLOOR]


def test_what_was_not_measured_has_no_plot() -> None:
    assert plot.scaling(scaled(), "page-cache", "partitions") is None
    assert plot.ratios(scaled(), "fsync") is None


def test_better_is_above_one_for_rates_and_for_times() -> None:
    found = Results(about=[ABOUT])
    for server, rate, time in (("barnabas", 20.0, 1.0), ("kafka", 10.0, 4.0)):
        found.add("fsync", "sync", server, {"req/s": rate, "p50 ms": time})
    assert plot.better(found, "fsync", "sync", "req/s", True) == 2
    assert plot.better(found, "fsync", "sync", "p50 ms", False) == 4


def test_a_plot_names_its_axes_and_what_it_was_measured_on(tmp_path: Path) -> None:
    file = tmp_path / "plot.svg"
    plot.save(plot.scaling(scaled(), "fsync", "partitions"), file)
    text = file.read_text()
    for words in ("partitions (N)", "Apache Kafka", "linear in N", "2 shared x86_64 cores"):
        assert words in text
