"""Tables for the terminal."""

from __future__ import annotations

from barnabas.wire.table import table


def test_columns_are_as_wide_as_their_widest_cell_and_numbers_stand_right() -> None:
    shown = table(("NAME", "COUNT"), [("a", 5), ("longer", 12345)])
    assert shown.splitlines() == ["NAME    COUNT", "a           5", "longer  12345"]


def test_an_empty_table_is_its_header() -> None:
    assert table(("NAME", "COUNT"), []) == "NAME  COUNT"
