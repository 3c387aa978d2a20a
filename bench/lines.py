"""The time of a million lines from a file to a topic and back, with `barnabas` and with kcat.

python -m bench.lines [--lines N] [--rounds N]
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from barnabas.testing import Broker

OURS = [sys.executable, "-m", "barnabas"]


def timed(command: Sequence[str], given: Path | None = None, out: Path | None = None) -> tuple[float, float]:
    """The wall-clock seconds and the CPU seconds of a command. Raises CalledProcessError."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with open(given or "/dev/null", "rb") as stdin, open(out or "/dev/null", "wb") as stdout:
        subprocess.run(command, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, cpu


def main() -> int:
    """Measure, and print a table. Fails if the lines that come back differ from those sent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    tools = ["barnabas", *(["kcat"] if shutil.which("kcat") else [])]
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder, Broker() as broker:
        text, back = Path(folder) / "lines", Path(folder) / "back"
        text.write_bytes(b"".join(b"line number %d of the input\n" % number for number in range(args.lines)))
        at = broker.bootstrap_servers
        for number in range(args.rounds):
            for tool in tools:
                topic = f"{tool}{number}"
                produce = {
                    "barnabas": [*OURS, "produce", topic, "-b", at],
                    "kcat": ["kcat", "-b", at, "-t", topic, "-P"],
                }[tool]
                consume = {
                    "barnabas": [*OURS, "consume", topic, "-b", at, "--from-beginning", "--exit"],
                    "kcat": ["kcat", "-b", at, "-t", topic, "-C", "-e", "-q"],
                }[tool]
                subprocess.run([*OURS, "topics", "create", topic, "-b", at], check=True, stdout=subprocess.DEVNULL)
                found.setdefault((tool, "produce"), []).append(timed(produce, given=text))
                found.setdefault((tool, "consume"), []).append(timed(consume, out=back))
                if back.read_bytes() != text.read_bytes():
                    print(f"{tool} did not give back what it was given", file=sys.stderr)
                    return 1
    print(f"{args.lines:,} lines, median of {args.rounds}: seconds (and of CPU in the command)")
    for (tool, verb), runs in sorted(found.items()):
        print(f"{tool:>8} {verb}  {median(run[0] for run in runs):5.2f} ({median(run[1] for run in runs):.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
