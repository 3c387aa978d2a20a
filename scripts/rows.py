"""Prints rows on a terminal or to a file: as a table, vertically, as CSV, as JSON lines, or as Parquet.

On a terminal, control characters are escaped in every format. A table shows only the beginning of each value, so that a
value of a megabyte costs nothing.
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TextIO

import msgspec

from barnabas.client.errors import ClientError
from barnabas.wire.table import table
from barnabas.wire.text import visible, visible_bytes

FORMATS = ("table", "csv", "json", "parquet")
#: The widest cell of a table, and the least that stays of one on a narrow terminal.
WIDEST_CELL, _NARROWEST_CELL = 60, 8


class Rows(Protocol):
    """Column names, and rows of plain values as they come."""

    @property
    def names(self) -> list[str]:
        """The names of the columns."""

    def plain(self) -> Iterator[list[list[Any]]]:
        """The rows in pieces, with JSON values."""

    def batches(self) -> Iterator[Any]:
        """The same rows as Arrow record batches."""

    @property
    def schema(self) -> Any:
        """The Arrow schema."""


def cell(value: Any, widest: int = WIDEST_CELL) -> str:
    """A row's value on one line."""
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray):
        text = visible_bytes(bytes(value[: widest + 1]))
    elif isinstance(value, str):
        text = visible(value[: widest + 1])
    else:
        text = visible(str(value)[: 4 * widest])
    return text if len(text) <= widest else text[: widest - 1] + "…"


def shortened(value: Any) -> Any:
    """As much of a value as a cell needs, so that large ones are not held in memory."""
    return value[: WIDEST_CELL + 1] if isinstance(value, str) else value


def tabular(names: Sequence[str], rows: Sequence[Sequence[Any]], width: int | None) -> str:
    """A table. If it is wider than a terminal of that `width`, its widest columns are cut.

    A terminal that is too narrow even for that shows the rows vertically.
    """
    cells = [[cell(value) for value in row] for row in rows]
    widest = [max(map(len, column)) for column in zip(map(visible, names), *cells, strict=True)]
    if width is not None and sum(widest) + 2 * len(widest) > width:
        if len(widest) * (_NARROWEST_CELL + 2) > width:
            return "\n".join(upright(names, rows))
        fair = _fair(widest, width - 2 * len(widest))
        cells = [[_cut(each, fair) for each in row] for row in cells]
        names = [_cut(visible(name), fair) for name in names]
    return table(names, cells)


def _fair(widths: Sequence[int], room: int) -> int:
    """The greatest column width with which all columns fit."""
    fair = _NARROWEST_CELL
    while sum(min(each, fair + 1) for each in widths) <= room:
        fair += 1
    return fair


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def upright(names: Sequence[str], rows: Iterable[Sequence[Any]], begin: int = 1) -> Iterator[str]:
    """Rows vertically: a line for each column, with complete values."""
    shown = [visible(name) for name in names]
    width = max(map(len, shown), default=0)
    for number, row in enumerate(rows, begin):
        yield f"-[ row {number} ]-"
        for name, value in zip(shown, row, strict=True):
            whole = len(value) if isinstance(value, str | bytes) else 1 << 20
            yield f"{name.ljust(width)} | {cell(value, max(whole * 8, 1))}".rstrip()


def write_csv(out: TextIO, rows: Rows) -> int:
    """Write the names, then a line for each row; null is empty. Returns the number of rows."""
    shown = _shown_on(out)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([shown(name) for name in rows.names])
    count = 0
    for piece in rows.plain():
        count += len(piece)
        writer.writerows([[shown(_text(value)) for value in row] for row in piece])
        out.flush()
    return count


def write_json(out: TextIO, rows: Rows) -> int:
    """Write one object per line. Returns the number of rows."""
    shown = _shown_on(out)
    names, count = rows.names, 0
    for piece in rows.plain():
        count += len(piece)
        for row in piece:
            out.write(shown(msgspec.json.encode(dict(zip(names, row, strict=True))).decode()) + "\n")
        out.flush()
    return count


def write_parquet(path: str, rows: Rows) -> int:
    """Write a file. Returns the number of rows. Raises ClientError if it cannot be written."""
    parquet = importlib.import_module("pyarrow.parquet")
    if len(set(rows.names)) < len(rows.names):
        raise ClientError("two columns have the same name, which Parquet does not allow: rename one with AS")
    count = 0
    try:
        with parquet.ParquetWriter(path, rows.schema) as writer:
            for batch in rows.batches():
                writer.write_batch(batch)
                count += batch.num_rows
    except OSError as error:
        raise ClientError(f"{path} cannot be written: {error.strerror or error}") from None
    return count


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return msgspec.json.encode(value).decode() if isinstance(value, list | dict) else str(value)


def _shown_on(out: TextIO) -> Any:
    """A function that makes a text safe for a terminal; a file or pipe gets it unchanged."""
    return visible if out.isatty() else str
