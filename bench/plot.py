"""Plots from the JSON of one or several runs: `python -m bench.plot A.json [B.json ...] [--out docs/plots]`.

The rows `scale-partitions-N` and `scale-connections-N` become one plot each. Every figure is a panel over N with two
logarithmic axes and a guide line proportional to N. The main table becomes a bar chart of its ratios. Points are
medians over all rounds; the bars through them reach from the lowest to the highest value.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import matplotlib

from bench.results import Results, read
from bench.rows import SETS
from bench.servers import POLICIES, SERVERS

matplotlib.use("svg")
import matplotlib.pyplot as plt  # the backend comes first

NAMES = {"barnabas": "barnabas", "kafka": "Apache Kafka"}
COLOURS = {"barnabas": "#0b6e99", "kafka": "#c1571a"}
FLOOR = 1e-3  # the least percentage on a logarithmic axis
DECADES = 100.0  # the least span of a logarithmic axis: on a smaller one, noise looks like growth
PANELS = {
    "partitions": {
        "CPU us/req": "produce: broker CPU per request (µs)",
        "p50 ms": "produce: p50 (ms)",
        "session CPU us/req": "fetch in a session of N: broker CPU (µs)",
        "idle CPU %": "idle: CPU of one core (%)",
        "MiB": "resident memory (MiB)",
    },
    "connections": {
        "CPU us/req, in turn": "one request at a time: broker CPU (µs)",
        "p50 ms, in turn": "one request at a time: p50 (ms)",
        "CPU us/req, all busy": "all at once: broker CPU per request (µs)",
        "idle CPU %": "N waiting consumers: CPU of one core (%)",
        "MiB": "resident memory (MiB)",
    },
}
# The figures of the bar chart, by row of the main table. Higher rates are better; all other figures should be low.
BARS = {
    "produce-1k": ("MB/s", "CPU s/GB"),
    "consume": ("MB/s", "CPU s/GB"),
    "produce-100": ("MB/s", "CPU s/GB"),
    "single": ("req/s", "CPU us/req"),
    "sync": ("p50 ms", "p99 ms", "CPU us/req"),
    "end-to-end": ("p50 ms", "p99 ms", "p99.9 ms"),
    "producers-1": ("req/s",),
    "producers-16": ("req/s",),
    "producers-128": ("req/s",),
    "start": ("first answer s",),
    "memory": ("loaded MiB",),
}
RATES = ("MB/s", "req/s")


def points(results: Results, policy: str, what: str, unit: str, server: str) -> dict[int, list[float]]:
    """The values of a figure by N."""
    found = {}
    for (p, row, u, s), values in results.values.items():
        family, _, number = row.rpartition("-")
        if (p, family, u, s) == (policy, f"scale-{what}", unit, server):
            found[int(number)] = [max(value, FLOOR) for value in values]
    return dict(sorted(found.items()))


def better(results: Results, policy: str, row: str, unit: str, more: bool) -> float | None:
    """How many times better barnabas is than the peer; None if a value is missing or zero."""
    ours, theirs = (results.values.get((policy, row, unit, server)) for server in SERVERS)
    if not ours or not theirs:
        return None
    a, b = statistics.median(ours), statistics.median(theirs)
    if a <= 0 or b <= 0:
        return None
    return a / b if more else b / a


def on(results: Results) -> str:
    """The machine of the measurement."""
    about = results.about[0]
    return (
        f"{about['cores']} shared {about['machine']} cores, Python {about['Python']}, "
        f"Apache Kafka {about['Apache Kafka']} on Java {about['Java']}"
    )


def scaling(results: Results, policy: str, what: str) -> Any:
    """The figure of `scale-WHAT-N`; None if there is no such row."""
    panels = {unit: title for unit, title in PANELS[what].items() if points(results, policy, what, unit, SERVERS[0])}
    if not panels:
        return None
    figure, axes = plt.subplots(2, 3, figsize=(13, 7.6), layout="constrained")
    figure.suptitle(f"Cost by number of {what}, policy {policy}\n{on(results)}")
    for axis, (unit, title) in zip(axes.flat, panels.items(), strict=False):
        for server in SERVERS:
            found = points(results, policy, what, unit, server)
            if not found:
                continue
            middle = [statistics.median(values) for values in found.values()]
            reach = [
                [m - min(v) for m, v in zip(middle, found.values(), strict=True)],
                [max(v) - m for m, v in zip(middle, found.values(), strict=True)],
            ]
            axis.errorbar(list(found), middle, reach, marker="o", capsize=3, color=COLOURS[server], label=NAMES[server])
        axis.set(xscale="log", yscale="log", xlabel=f"{what} (N)", ylabel=title.rpartition(": ")[2], title=title)
        guide(axis, points(results, policy, what, unit, SERVERS[0]))
        axis.grid(True, which="major", alpha=0.3)
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    axes.flat[-1].legend(handles, labels, loc="center", frameon=False, fontsize=12)
    return figure


def guide(axis: Any, found: dict[int, list[float]]) -> None:
    """Draw a line through our last point that is proportional to N, on an axis of at least two decades."""
    low, high = axis.get_ylim()
    widen = max(1, (DECADES / (high / low)) ** 0.5)
    axis.set_ylim(low / widen, high * widen)
    axis.set_xmargin(0.08)
    sizes = list(found)
    last = statistics.median(found[sizes[-1]])
    axis.plot(sizes, [last * n / sizes[-1] for n in sizes], "--", color="grey", linewidth=1, label="linear in N")
    axis.set_ylim(low / widen, high * widen)


def ratios(results: Results, policy: str) -> Any:
    """The bar chart of the main table; None if the results have none of its rows."""
    found = {
        f"{row}: {unit}": times
        for row, units in BARS.items()
        for unit in units
        if row in SETS["main"] and (times := better(results, policy, row, unit, unit in RATES)) is not None
    }
    if not found:
        return None
    figure, axis = plt.subplots(figsize=(9, 1.6 + 0.33 * len(found)), layout="constrained")
    names, values = list(found)[::-1], list(found.values())[::-1]
    colours = [COLOURS["barnabas"] if value >= 1 else COLOURS["kafka"] for value in values]
    axis.barh(names, [value - 1 for value in values], left=1, color=colours)
    for place, value in enumerate(values):
        axis.annotate(
            f"{value:.2f}x",
            (value, place),
            xytext=(4 if value >= 1 else -4, 0),
            va="center",
            fontsize=8,
            textcoords="offset points",
            ha="left" if value >= 1 else "right",
        )
    axis.axvline(1, color="black", linewidth=1)
    axis.set_xscale("log")
    axis.margins(x=0.15)
    axis.set_xlabel("times better than Apache Kafka (more per second, or less time, CPU or memory)")
    axis.set_title(f"barnabas beside Apache Kafka, policy {policy}\n{on(results)}", fontsize=11)
    axis.grid(True, axis="x", alpha=0.3)
    return figure


def save(figure: Any, file: Path) -> None:
    """Write an SVG with text as text; the same values give the same file."""
    with plt.rc_context({"svg.hashsalt": "bench", "svg.fonttype": "none"}):
        figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Write the plots."""
    options = argparse.ArgumentParser(description="Plots of benchmark results.")
    options.add_argument("json", nargs="+", type=Path)
    options.add_argument("--out", type=Path, default=Path("docs/plots"))
    args = options.parse_args()
    results = read(args.json)
    args.out.mkdir(parents=True, exist_ok=True)
    for policy in POLICIES:
        figures = {f"{policy}-ratios": ratios(results, policy)}
        figures |= {f"{policy}-{what}": scaling(results, policy, what) for what in PANELS}
        for name, figure in figures.items():
            if figure is not None:
                file = args.out / f"{name}.svg"
                save(figure, file)
                print(file)


if __name__ == "__main__":
    main()
