"""The results of runs, as JSON: every value of every round, the rows that were left out, and the machines.

Results of several runs are merged: the values of the same figure are put together.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compat_tests.tools import KAFKA_JARS

FigureKey = tuple[str, str, str, str]  # policy, row, unit, server


@dataclass
class Results:
    """Values by figure; reasons of rows without values; machines and versions."""

    values: dict[FigureKey, list[float]] = field(default_factory=dict)
    left_out: dict[tuple[str, str, str], str] = field(default_factory=dict)
    about: list[dict[str, str]] = field(default_factory=list)

    def add(self, policy: str, row: str, server: str, figures: dict[str, float]) -> None:
        """Add the figures of one round of a row."""
        for unit, value in figures.items():
            self.values.setdefault((policy, row, unit, server), []).append(value)

    def leave_out(self, policy: str, row: str, server: str, reason: str) -> None:
        """Note that a row has no figures, and why."""
        self.left_out[policy, row, server] = reason

    def figures(self) -> list[tuple[str, str, str]]:
        """Policies, rows and units, in the order of the first run; the units of a row are together."""
        first = {key: number for number, key in enumerate(dict.fromkeys(key[:2] for key in self.values))}
        return sorted(dict.fromkeys(key[:3] for key in self.values), key=lambda key: first[key[:2]])

    def dumps(self) -> str:
        """The results as JSON."""
        values = [
            {"policy": p, "row": r, "unit": u, "server": s, "values": v} for (p, r, u, s), v in self.values.items()
        ]
        left_out = [
            {"policy": p, "row": r, "server": s, "reason": reason} for (p, r, s), reason in self.left_out.items()
        ]
        return json.dumps({"about": self.about, "left out": left_out, "rows": values}, indent=1)


def loads(text: str) -> Results:
    """Results from JSON."""
    data: dict[str, Any] = json.loads(text)
    return Results(
        {(r["policy"], r["row"], r["unit"], r["server"]): r["values"] for r in data["rows"]},
        {(r["policy"], r["row"], r["server"]): r["reason"] for r in data["left out"]},
        data["about"],
    )


def read(files: Iterable[str | Path]) -> Results:
    """The results of several files as one."""
    return merge(loads(Path(file).read_text()) for file in files)


def merge(parts: Iterable[Results]) -> Results:
    """Several results as one: values side by side, each machine once."""
    merged = Results()
    for part in parts:
        for key, values in part.values.items():
            merged.values.setdefault(key, []).extend(values)
        merged.left_out |= part.left_out
        merged.about += [about for about in part.about if about not in merged.about]
    return merged


def this_machine(client: str) -> dict[str, str]:
    """The machine and the versions of a run."""
    return {
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "Java": _java(),
        "Apache Kafka": _kafka(),
        "request client": client,
    }


def _kafka() -> str:
    found = [re.search(r"kafka-clients-(.+)\.jar$", jar.name) for jar in KAFKA_JARS.glob("kafka-clients-*.jar")]
    return next((match[1] for match in found if match), "-")


def _java() -> str:
    try:
        told = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60).stderr
    except OSError:
        return "-"
    found = re.search(r'version "([^"]+)"', told)
    return found[1] if found else "-"
