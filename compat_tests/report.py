"""The table of clients and scenarios in docs/compatibility.md. Only a test run writes it."""

from __future__ import annotations

import datetime
import platform
import sys

import pytest

from compat_tests.driver import Driver
from compat_tests.scenarios import SCENARIOS, Scenario
from compat_tests.tools import ROOT

FILE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
SHOWN = {"pass": "pass", "fail": "**FAIL**", "n/a": "n/a", None: "-"}


class Results:
    """The result of each client and scenario."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        self.results: dict[tuple[str, str], str] = {}
        self.reasons: dict[str, dict[str, list[str]]] = {}

    def set(self, client: Driver, scenario: Scenario, result: str, reason: str = "") -> None:
        """Note a result."""
        if client.name not in self.versions:
            self.versions[client.name] = client.version()
        self.results[client.name, scenario.name] = result
        if reason:
            self.reasons.setdefault(client.name, {}).setdefault(reason, []).append(scenario.title)

    def table(self) -> str:
        """The results as Markdown."""
        clients = list(self.versions)
        lines = [
            f"{datetime.date.today().isoformat()}, Python {platform.python_version()} on {sys.platform}.",
            "",
            "| scenario | " + " | ".join(f"{name} {self.versions[name]}" for name in clients) + " |",
            "| --- |" + " --- |" * len(clients),
        ]
        for scenario in SCENARIOS:
            cells = [SHOWN[self.results.get((name, scenario.name))] for name in clients]
            lines.append(f"| {scenario.title} | " + " | ".join(cells) + " |")
        reasons = [
            f"- {name}: {reason} ({'; '.join(titles)})"
            for name in clients
            for reason, titles in self.reasons.get(name, {}).items()
        ]
        if reasons:
            lines += ["", "n/a, because of the client:", "", *reasons]
        return "\n".join(lines)

    def write(self, *, peer: bool) -> None:
        """Replace the text between the markers. Raises UsageError if the run is not one that may be recorded."""
        if peer:
            raise pytest.UsageError("--compat-report is for barnabas, not for --peer")
        text = FILE.read_text()
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        FILE.write_text(f"{before}{BEGIN}\n{self.table()}\n{END}{after}")


RESULTS = pytest.StashKey[Results]()
