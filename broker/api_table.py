"""The table of served APIs in the README, made from the registry: `python -m broker.api_table README.md` renews it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import broker.apis  # noqa: F401  registers the handlers
from broker.registry import APIS

BEGIN, END = "<!-- apis: begin -->", "<!-- apis: end -->"


def markdown() -> str:
    """API name, key and versions, three APIs a row."""
    cells = [f"{a.name} | {a.key} | {a.versions.first}-{a.versions.last}" for _, a in sorted(APIS.items())]
    cells += ["| | "] * (-len(cells) % 2)
    rows = [f"| {cells[i]} | {cells[i + 1]} |" for i in range(0, len(cells), 2)]
    return "\n".join(
        ["| API | key | versions | API | key | versions |", "| --- | --- | --- | --- | --- | --- |", *rows]
    )


def renewed(text: str) -> str:
    """A document with the table between its markers made anew."""
    return re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{markdown()}\n{END}", text, flags=re.DOTALL)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(renewed(path.read_text()))
