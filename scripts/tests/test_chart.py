"""Charts in characters."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from barnabas.client.errors import ClientError

pytest.importorskip("plotext", reason="plotext is not installed: make setup-all")

from barnabas.scripts.chart import chart


def test_numbers_are_drawn_over_the_first_column() -> None:
    drawn = chart(["n", "square", "half", "name"], [(n, n * n, Decimal(n) / 2, f"x{n}") for n in range(10)])
    assert "square" in drawn
    assert "half" in drawn
    assert "name" not in drawn
    assert "81.0" in drawn
    assert "\x1b" not in drawn


def test_texts_and_times_are_labels_and_nulls_are_left_out() -> None:
    rows = [(dt.datetime(2030, 1, 1 + day), None if day == 2 else day) for day in range(5)]
    drawn = chart(["day", "n"], rows)
    assert "2030-01-01" in drawn
    assert "day" in drawn


def test_a_single_column_is_drawn_over_the_numbers_of_its_rows() -> None:
    drawn = chart(["temp"], [(80.5,), (None,), (99.5,)])
    assert "row" in drawn
    assert "99.5" in drawn
    with pytest.raises(ClientError, match="nothing to plot: select numbers"):
        chart(["name"], [("a",)])


@pytest.mark.parametrize("rows", [[], [(1, "a")], [(1, None)], [(1, True)]])
def test_without_numbers_there_is_nothing_to_draw(rows: list[tuple[object, object]]) -> None:
    with pytest.raises(ClientError, match="nothing to plot"):
        chart(["a", "b"], rows)
