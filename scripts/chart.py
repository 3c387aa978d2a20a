"""A quick chart of a query's rows, drawn in characters."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from barnabas.client.errors import ClientError
from barnabas.wire.text import SPARK_REMEDY, visible

_HEIGHT = 24
_WIDTH = 72


def chart(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Draw the numeric columns over the first one, or a single column over the row numbers.

    Raises ClientError if there is nothing to draw.
    """
    try:
        import plotext
    except ModuleNotFoundError:
        raise ClientError(f"--plot needs plotext: {SPARK_REMEDY}") from None
    if len(columns) == 1:
        columns, rows = ["row", *columns], [(at, *row) for at, row in enumerate(rows, 1)]
    numeric = [number for number in range(1, len(columns)) if _all_numbers([row[number] for row in rows])]
    if not numeric:
        raise ClientError("there is nothing to plot: select numbers, or a first column and columns of numbers after it")
    along = [row[0] for row in rows]
    scaled = _all_numbers(along) and None not in along
    places = [float(x) for x in along] if scaled else [float(at) for at in range(len(rows))]
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(_WIDTH, _HEIGHT)
    for number in numeric:
        points = [(x, float(row[number])) for x, row in zip(places, rows, strict=True) if row[number] is not None]
        plotext.plot([x for x, _ in points], [y for _, y in points], label=visible(columns[number]))
    if not scaled:
        labels = [visible(str(x)) for x in along]
        fitting = max(1, _WIDTH // (max(map(len, labels)) + 4))
        step = -(-len(rows) // fitting)
        plotext.xticks(places[::step], labels[::step])
    plotext.xlabel(visible(columns[0]))
    return str(plotext.uncolorize(plotext.build()))


def _all_numbers(values: Sequence[Any]) -> bool:
    """Whether the values contain numbers, and apart from them only nulls."""
    found = [value for value in values if value is not None]
    return bool(found) and all(isinstance(v, int | float | Decimal) and not isinstance(v, bool) for v in found)
