"""Tables on the terminal. A cell is one line: line ends and terminal controls in it are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.wire.text import visible


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their widest cell; numbers are right-aligned."""
    header = [visible(title) for title in header]
    cells = [[visible(str(cell)) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(header, *cells, strict=True)]
    numeric = [bool(cells) and all(row[i].lstrip("-").isdigit() for row in cells) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), *(line(row) for row in cells)])
