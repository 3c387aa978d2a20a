"""Rows as text: tables, vertical rows, CSV, JSON; and no terminal controls."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.scripts.rows import cell, tabular, upright, write_csv, write_json

EVIL = "a\x1b[2J\x07\u202eb"


class Rows:
    schema = None

    def __init__(self, names: list[str], *pieces: list[list[Any]]) -> None:
        self.names, self._pieces = names, pieces

    def plain(self) -> Iterator[list[list[Any]]]:
        return iter(self._pieces)

    def batches(self) -> Iterator[Any]:
        return iter(())


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_fits_a_narrow_terminal() -> None:
    text = tabular(["id", "text", "more"], [[1, "x" * 50, "y" * 9], [22, "z", None]], 40)
    assert all(len(line) <= 40 for line in text.split("\n"))
    assert "y" * 9 in text
    assert "…" in text
    assert len(tabular(["id", "text"], [[1, "x" * 50]], None).split("\n")[1]) > 50


def test_a_table_that_cannot_fit_keeps_its_cells() -> None:
    names = [f"column{n}" for n in range(30)]
    lines = tabular(names, [list(range(30))], 40).split("\n")
    assert (lines[0], lines[1], lines[-1]) == ("-[ row 1 ]-", "column0  | 0", "column29 | 29")


def test_a_hundred_thousand_columns_are_a_table() -> None:
    names = [f"c{n}" for n in range(100_000)]
    assert tabular(names, [list(range(100_000))], 80).split("\n")[-1].endswith("| 99999")


def test_a_cell_of_a_megabyte_is_its_beginning() -> None:
    assert cell("x" * (1 << 20)) == "x" * 59 + "…"
    assert cell(EVIL) == "a\\x1b[2J\\x07\\u202eb"
    assert len(cell("\x1b" * (1 << 20))) == 60
    assert cell(None) == ""


def test_upright_rows_have_whole_values() -> None:
    lines = list(upright(["a", "long\x1b"], [["x" * 100, EVIL], [None, 2]]))
    assert lines == [
        "-[ row 1 ]-",
        f"a        | {'x' * 100}",
        "long\\x1b | a\\x1b[2J\\x07\\u202eb",
        "-[ row 2 ]-",
        "a        |",
        "long\\x1b | 2",
    ]


@pytest.mark.parametrize("write", [write_csv, write_json])
def test_nothing_steers_a_terminal_and_a_pipe_gets_all(write: Any) -> None:
    screen, pipe = Screen(), io.StringIO()
    assert write(screen, Rows(["x"], [[EVIL]], [["b"]])) == 2
    assert write(pipe, Rows(["x"], [[EVIL]], [["b"]])) == 2
    assert "\x1b" not in screen.getvalue()
    assert "\u202e" not in screen.getvalue()
    assert "\u202e" in pipe.getvalue()


def test_csv_and_json_are_read_back() -> None:
    import csv

    rows = [[1, 'a,"b"\nc', None, True, [1, {"x": None}]]]
    out = io.StringIO()
    write_csv(out, Rows(["n", "t", "none", "flag", "list"], rows))
    found = list(csv.reader(io.StringIO(out.getvalue())))
    assert found == [["n", "t", "none", "flag", "list"], ["1", 'a,"b"\nc', "", "true", '[1,{"x":null}]']]
    out = io.StringIO()
    write_json(out, Rows(["n", "t", "none", "flag", "list"], rows))
    (line,) = out.getvalue().splitlines()
    assert json.loads(line) == {"n": 1, "t": 'a,"b"\nc', "none": None, "flag": True, "list": [1, {"x": None}]}
