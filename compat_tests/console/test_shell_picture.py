"""The picture of the SQL shell in the docs: what its terminal shows, drawn by the browser."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

import pyte
import pytest

from compat_tests.broker_process import Barnabas
from compat_tests.cli.terminal import Terminal, state_of
from compat_tests.console.browser import Browser

LINES, COLUMNS = 34, 104
STATEMENTS = (
    ("CREATE TOPIC readings (device STRING, temp DOUBLE) PARTITIONS 2;", "Created topic"),
    ("INSERT INTO readings VALUES ('a', 21.5), ('b', 95.0), ('a', 22.5);", "3 record"),
    ("SELECT device, count(*) AS n, avg(temp) AS average\rFROM readings GROUP BY device ORDER BY device;", "-- 2 rows"),
    ("CREATE TOPIC hot AS SELECT device, temp FROM readings WHERE temp > 80;", "Created topic hot"),
)
#: The colours of a dark terminal, for those that the shell names.
COLOURS = {
    "default": "#d8dee9", "black": "#3b4252", "red": "#e06c75", "green": "#98c379", "brown": "#e5c07b",
    "blue": "#61afef", "magenta": "#c678dd", "cyan": "#56b6c2", "white": "#e5e9f0", "brightblack": "#7f848e",
    "brightred": "#e06c75", "brightgreen": "#98c379", "brightbrown": "#e5c07b", "brightblue": "#61afef",
    "brightmagenta": "#c678dd", "brightcyan": "#56b6c2", "brightwhite": "#ffffff",
}  # fmt: skip
BACKGROUND = "#21252b"
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: {0} }}
pre {{ margin: 0; padding: 14px 18px; display: inline-block; font: 14px/1.35 "DejaVu Sans Mono", monospace }}
</style><pre>{1}</pre>"""


def colour(name: str, default: str) -> str:
    """A colour of pyte, which is a name or six digits, for a page."""
    if name == "default":
        return default
    return COLOURS.get(name) or f"#{name}"


def drawn(raw: bytes) -> str:
    """A page with what a terminal shows after these bytes."""
    screen = pyte.Screen(COLUMNS, LINES)
    pyte.ByteStream(screen).feed(raw)
    used = max(row for row, text in enumerate(screen.display) if text.strip()) + 1
    lines = []
    for row in range(used):
        cells = [screen.buffer[row][column] for column in range(COLUMNS)]
        line = ""
        for cell in cells:
            ink, paper = colour(cell.fg, COLOURS["default"]), colour(cell.bg, BACKGROUND)
            if cell.reverse:
                ink, paper = paper, ink
            weight = ";font-weight:bold" if cell.bold else ""
            line += f'<span style="color:{ink};background:{paper}{weight}">{html.escape(cell.data)}</span>'
        lines.append(line)
    return PAGE.format(BACKGROUND, "\n".join(lines))


@pytest.mark.long
def test_the_picture_of_the_shell(browser: Browser, pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """`--screenshots` writes it to docs/; without it, the test only checks that it can be made."""
    pytest.importorskip("prompt_toolkit", reason="prompt_toolkit is not installed: make setup-all")
    command = [sys.executable, "-m", "barnabas", "sql"]
    with Barnabas(tmp_path / "broker") as broker:
        variables = {**state_of(tmp_path), "TERM": "xterm-256color"}
        with Terminal([*command, "-b", broker.address], variables, lines=LINES, columns=COLUMNS) as terminal:
            for text, told in STATEMENTS:
                terminal.ask(text + "\r")
                terminal.until(told)
            terminal.ask("SELECT device, max(temp) FROM re")
            terminal.until("readings")  # in the menu of completions
            raw = terminal.raw
            terminal.press("\x03")
    page = tmp_path / "shell.html"
    page.write_text(drawn(raw).replace(broker.address, "localhost:9092"))
    browser.open(page.as_uri())
    folder = Path(__file__).parents[2] / "docs" if pytestconfig.getoption("--screenshots") else tmp_path
    browser.resize(1280, 1000)
    browser.screenshot(folder / "sql-shell.png", "pre")
    assert 0 < (folder / "sql-shell.png").stat().st_size < 150_000
    shown = re.sub(r"<[^>]+>", "", page.read_text())
    assert "average" in shown
    assert "without Spark" in shown
