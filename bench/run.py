"""`make bench`: barnabas and Apache Kafka in turn on new data directories, with the same clients; medians and ratios.

    python -m bench.run [--rounds 3] [--policy page-cache fsync] [--rows main | giant | scale | all | NAME ...]

Rounds are interleaved (A B A B) on one machine, so that other work on it affects both. Throughput is wall-clock time at
the client; CPU is that of the broker and its children. Without Kafka's jars, only barnabas is measured. The JSON is
written after every broker, so that an interrupted run keeps its results.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from barnabas.client.errors import ClientError
from bench.client import COMPILED, ClientFailed
from bench.limits import Skip, raise_open_files
from bench.machine import Stolen
from bench.report import markdown, number
from bench.results import Results, this_machine
from bench.rows import SETS, find
from bench.rows.requests import warm as warm_up
from bench.running import Running
from bench.servers import BESIDE, BESIDE_CHECKOUT, NODES, POLICIES, PYPY, SERVERS
from compat_tests.tools import missing

START_SECONDS = {"barnabas": 2.0, "kafka": 7.0, BESIDE: 2.0, NODES: 2.0, PYPY: 3.0}
WARM_SECONDS = 10.0


def say(text: str) -> None:
    """Print progress, which is not part of the table."""
    print(text, file=sys.stderr, flush=True)


def brokers(rows: list[str]) -> list[list[str]]:
    """The rows of each broker: rows with little load share one, each other row has its own."""
    together = [row for row in rows if not find(row).fresh]
    return [*([together] if together else []), *([row] for row in rows if find(row).fresh)]


def estimate(rows: list[str], servers: list[str], times: int) -> float:
    """The approximate seconds of a run."""
    shared = brokers(rows)
    warm = WARM_SECONDS * sum(any(find(row).warm for row in part) for part in shared)
    one = (sum(find(row).seconds for row in rows) + warm) * len(servers)
    return times * (one + len(shared) * sum(START_SECONDS[server] for server in servers))


def shown(figures: dict[str, float]) -> str:
    """The figures of a row in one line."""
    return ", ".join(f"{unit} {number(value)}" for unit, value in figures.items())


def one_broker(name: str, policy: str, rows: list[str], folder: Path, inputs: Path, results: Results) -> None:
    """Start one broker, and run its rows."""
    running = Running(name, policy, folder, inputs)
    stolen = Stolen()
    started, warm = running.start(), False
    try:
        for row in rows:
            began = time.perf_counter()
            try:
                if find(row).warm and not warm:
                    warm = True
                    warm_up(running)
                    say(f"  {name}, {policy}: warm [{time.perf_counter() - began:.0f} s]")
                    began = time.perf_counter()
                figures = find(row).measure(running)
            except (Skip, ClientFailed, ClientError, SystemExit) as error:
                results.leave_out(policy, row, name, str(error))
                say(f"  {name}, {policy}, {row}: left out: {error}")
                if not running.alive():
                    say(f"  {name} has ended:\n{running.server.log_tail(20)}")
                    return
                continue
            if row == "start":
                figures |= {"first answer s": started}
            results.add(policy, row, name, figures)
            say(f"  {name}, {policy}, {row}: {shown(figures)} [{time.perf_counter() - began:.0f} s]")
        results.add(policy, "machine", name, {"stolen %": stolen.percent()})
    finally:
        stop(running)


def stop(running: Running) -> None:
    """Stop a broker. If that takes too long, the broker is killed and the run continues."""
    try:
        running.server.stop()
    except AssertionError as error:
        say(f"  {str(error).splitlines()[0]}")


def empty(folder: Path) -> None:
    """Free the disk space, but keep the files.

    When ext4 creates a file, it checks each file that was deleted in the last half minute, so the next broker would pay
    for this one's partitions.
    """
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.truncate(path, 0)


def plan(rounds: int, policies: list[str], servers: list[str], rows: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    """(policy, server, rows) for each broker, in the order in which they run."""
    for _ in range(rounds):
        for policy in policies:
            for shared in brokers(rows):
                for name in servers:
                    yield policy, name, shared


def names(words: list[str]) -> list[str]:
    """Rows by name or by set. Raises ValueError."""
    rows = list(dict.fromkeys(row for word in words for row in SETS.get(word, [word])))
    for row in rows:
        find(row)
    return rows


def main() -> None:
    """Measure, print the table, write the JSON."""
    options = argparse.ArgumentParser(description="barnabas beside Apache Kafka, in one run.")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--policy", nargs="+", choices=POLICIES, default=list(POLICIES))
    options.add_argument(
        "--rows", nargs="+", default=["main"], help=f"{', '.join(SETS)}, or names such as producers-16 or cold-1"
    )
    options.add_argument("--servers", nargs="+", choices=(*SERVERS, NODES, PYPY), default=list(SERVERS))
    options.add_argument("--beside", metavar="CHECKOUT", help="measure barnabas of another checkout, too")
    options.add_argument("--json", metavar="FILE", type=Path)
    options.add_argument("--dir", metavar="FOLDER", help="where the data directories are made")
    args = options.parse_args()
    try:
        rows = names(args.rows)
    except ValueError as error:
        options.error(str(error))
    if reason := missing("kcat"):
        raise SystemExit(f"the benchmark needs kcat: {reason}")
    servers = list(args.servers)
    if args.beside:
        os.environ[BESIDE_CHECKOUT] = os.path.abspath(args.beside)
        servers.append(BESIDE)
    if "kafka" in servers and (reason := missing("java")):
        say(f"Apache Kafka is left out: {reason}")
        servers.remove("kafka")
    if not COMPILED.exists():
        say("The request client is the Python one, and takes as much CPU as the broker (make bench compiles the C one)")
    raise_open_files()
    results = Results(about=[this_machine("C" if COMPILED.exists() else "Python")])
    minutes = estimate(rows, servers, args.rounds * len(args.policy)) / 60
    say(f"{args.rounds} round(s) of {len(rows)} rows, {', '.join(servers)}: about {minutes:.0f} minutes")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-", dir=args.dir) as inputs:
        for number, (policy, name, shared) in enumerate(plan(args.rounds, args.policy, servers, rows)):
            say(f"{(time.perf_counter() - began) / 60:.1f} min: {name}, {policy}")
            folder = Path(inputs) / f"{number}-{name}"
            one_broker(name, policy, shared, folder, Path(inputs), results)
            empty(folder)
            if args.json:
                args.json.parent.mkdir(parents=True, exist_ok=True)
                args.json.write_text(results.dumps())
    print(markdown(results))


if __name__ == "__main__":
    main()
