"""Results of several runs are merged into one, and into one table."""

from __future__ import annotations

from pathlib import Path

from bench.report import markdown, spread
from bench.results import Results, loads, merge, read

MACHINE = {"machine": "x", "cores": "2"}


def results(ours: float, theirs: float, row: str = "single") -> Results:
    found = Results(about=[MACHINE])
    found.add("page-cache", row, "barnabas", {"req/s": ours})
    found.add("page-cache", row, "kafka", {"req/s": theirs})
    return found


def test_values_of_a_figure_are_put_together() -> None:
    merged = merge([results(10, 5), results(30, 6), results(20, 7)])
    assert merged.values["page-cache", "single", "req/s", "barnabas"] == [10, 30, 20]
    assert merged.values["page-cache", "single", "req/s", "kafka"] == [5, 6, 7]
    assert merged.about == [MACHINE]


def test_json_keeps_everything(tmp_path: Path) -> None:
    found = results(10, 5)
    found.leave_out("fsync", "cold-4", "kafka", "no room")
    assert loads(found.dumps()) == found
    (tmp_path / "a.json").write_text(found.dumps())
    assert read([tmp_path / "a.json", tmp_path / "a.json"]).left_out == found.left_out


def test_rows_of_another_file_do_not_part_the_units_of_a_row() -> None:
    first, second = results(10, 5), results(10, 5, row="sync")
    second.add("page-cache", "single", "barnabas", {"CPU us/req": 1.0})
    units = [(row, unit) for _, row, unit in merge([first, second]).figures()]
    assert units == [("single", "req/s"), ("single", "CPU us/req"), ("sync", "req/s")]


def test_the_table_has_median_spread_ratio_and_goal() -> None:
    text = markdown(merge([results(10, 5), results(30, 6), results(20, 7)]))
    assert "| single | req/s | 20 (10 .. 30) | 6 (5 .. 7) | 3.33 | >= 1.3x | yes |" in text
    assert "machine x, cores 2" in text


def test_a_goal_that_was_missed_says_no() -> None:
    assert "| 1.20 | >= 1.3x | no |" in markdown(results(12, 10))


def test_without_the_peer_there_is_no_ratio() -> None:
    found = Results(about=[MACHINE])
    found.add("page-cache", "single", "barnabas", {"req/s": 1234.0})
    assert "| single | req/s | 1234 | - | - | >= 1.3x |  |" in markdown(found)


def test_another_checkout_stands_in_the_place_of_the_peer() -> None:
    found = Results(about=[MACHINE])
    found.add("page-cache", "single", "barnabas", {"req/s": 110.0})
    found.add("page-cache", "single", "beside", {"req/s": 100.0})
    assert "| single | req/s | 110 | 100 | 1.10 |  |  |" in markdown(found)


def test_rows_that_were_left_out_are_named_with_the_reason() -> None:
    found = results(10, 5)
    found.leave_out("page-cache", "cold-4", "kafka", "no room")
    found.leave_out("page-cache", "single", "kafka", "failed once, and was measured in another round")
    text = markdown(found)
    assert "Left out: cold-4, kafka, page-cache: no room" in text
    assert "failed once" not in text


def test_one_value_has_no_spread() -> None:
    assert spread([0.12345]) == "0.123"
    assert spread([1.0, 3.0]) == "2 (1 .. 3)"
