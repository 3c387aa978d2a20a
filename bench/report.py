"""A Markdown table from the JSON of one or several runs: `python -m bench.report A.json [B.json ...]`.

Every figure is the median over all rounds of all files, with the lowest and the highest in brackets.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence

from bench.goals import GOALS
from bench.results import Results, read
from bench.servers import BESIDE, NODES, POLICIES, PYPY, SERVERS


def servers(results: Results) -> list[str]:
    """The servers in the columns: barnabas and its peer, or another checkout in place of the peer."""
    there = {key[3] for key in results.values}
    if not there & {BESIDE, NODES, PYPY}:
        return list(SERVERS)
    return [server for server in (*SERVERS, NODES, PYPY, BESIDE) if server in there]


def number(value: float) -> str:
    """A number with three digits, or all digits before the point."""
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def spread(values: Sequence[float]) -> str:
    """Median, lowest and highest; a single value is shown alone."""
    middle = number(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({number(min(values))} .. {number(max(values))})"


def line(results: Results, policy: str, row: str, unit: str) -> tuple[str, ...]:
    """The line of one figure: its value for each server, and the ratio of the first to the second."""
    found = [results.values.get((policy, row, unit, server)) for server in servers(results)]
    ours, theirs, *_ = [*(statistics.median(values) if values else None for values in found), None]
    goal = GOALS.get((policy, row, unit)) if "kafka" in servers(results) else None
    met = goal.met(ours, theirs) if goal and ours is not None else None
    return (
        row,
        unit,
        *(spread(values) if values else "-" for values in found),
        f"{ours / theirs:.2f}" if ours is not None and theirs else "-",
        goal.text() if goal else "",
        {True: "yes", False: "no", None: ""}[met],
    )


def markdown(results: Results) -> str:
    """One table for each policy, the rows that were left out, and the machines."""
    out = []
    for policy in POLICIES:
        lines = [line(results, *figure) for figure in results.figures() if figure[0] == policy]
        if lines:
            header = ("row", "unit", *servers(results), "ratio", "goal", "met")
            out += [f"### {policy}", "", _row(header), _row(["---"] * len(header)), *map(_row, lines), ""]
    missing = [key for key in results.left_out if not any((k[0], k[1], k[3]) == key for k in results.values)]
    out += [
        f"Left out: {row}, {server}, {policy}: {results.left_out[policy, row, server]}"
        for policy, row, server in missing
    ]
    out += [", ".join(f"{key} {value}" for key, value in about.items()) for about in results.about]
    return "\n".join(out)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(markdown(read(sys.argv[1:])))
