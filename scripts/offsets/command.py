"""`barnabas offsets export | import | copy | verify | undo`: the sub-commands, and what they print.

The exit status is 1 if anything was wrong. Each problem is a line on standard error, and the rest is still done.
Running a command again finishes what is left, and changes nothing twice.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from barnabas.client.errors import ClientError
from barnabas.client.security import of_file
from barnabas.scripts.offsets import journal as journals
from barnabas.scripts.offsets.files import Offsets, Reading, guess_format, render
from barnabas.scripts.offsets.journal import Journal
from barnabas.scripts.offsets.kafka import KafkaStore
from barnabas.scripts.offsets.plan import Step
from barnabas.scripts.offsets.store import OffsetStore, Problem
from barnabas.scripts.offsets.transfer import Outcome, Rules, copy, undo, verify
from barnabas.scripts.offsets.zookeeper import ZooKeeperStore
from barnabas.wire.table import table
from barnabas.wire.text import visible

_BAR = 30


def export(args: argparse.Namespace) -> int:
    """Write a store's offsets to a file or to standard output."""
    with _store(args.source) as here:
        names = _names(args.group, here.groups)
        with _progress("exported", len(names)) as told:
            offsets: Offsets = {}
            for number, group in enumerate(names, 1):
                found = here.read(group)
                if found:
                    offsets[group] = found
                elif args.group:
                    here.problems.append(Problem(f"group {group}", f"it has no offsets in {here.name}"))
                told(number)
        text = render(offsets, args.format)
        if args.file in (None, "-"):
            sys.stdout.write(text)
        else:
            _replace(Path(args.file), text)
        count = sum(map(len, offsets.values()))
        print(f"exported {count} offset(s) of {len(offsets)} group(s)", file=sys.stderr)
        return tell_problems(here.problems)


def import_(args: argparse.Namespace) -> int:
    """Write a file's offsets to a store."""
    offsets, problems = _read(args)
    with _store(args.target) as there:
        names = [group for group in _names(args.group, lambda: sorted(offsets)) if group in offsets]
        problems += [Problem(f"group {g}", f"it is not in {args.file}") for g in args.group if g not in offsets]
        return _copy(args, offsets, there, names, problems)


def copy_(args: argparse.Namespace) -> int:
    """Copy offsets from one store to another."""
    if args.translate and any(address.startswith("zookeeper:") for address in (args.source, args.target)):
        raise ClientError("--translate reads the records of both places: ZooKeeper has none")
    with _store(args.source) as here, _store(args.target) as there:
        return _copy(args, here, there, _names(args.group, here.groups), here.problems, optional=not args.group)


def verify_(args: argparse.Namespace) -> int:
    """Compare two stores, or a file and a store."""
    with contextlib.ExitStack() as stack:
        there = stack.enter_context(_store(args.target))
        here: Offsets | OffsetStore
        if args.file is not None:
            offsets, problems = _read(args)
            here, names = offsets, _names(args.group, lambda: sorted(offsets))
        elif args.source is not None:
            here = stack.enter_context(_store(args.source))
            names, problems = _names(args.group, here.groups), here.problems
        else:
            raise ClientError("there is nothing to compare with: give --from or a file")
        with _progress("compared", len(names)) as told:
            count, found = verify(here, there, names, told)
        if found:
            rows = [
                (d.group, d.partition.topic, d.partition.number, d.here and d.here.offset, d.there and d.there.offset)
                for d in found
            ]
            cells = [["-" if cell is None else cell for cell in row] for row in rows]
            print(table(("GROUP", "TOPIC", "PARTITION", "HERE", "THERE"), cells))
        print(f"compared {count} offset(s) of {len(names)} group(s): {len(found)} differ", file=sys.stderr)
        return tell_problems([*problems, *there.problems]) or int(bool(found))


def undo_(args: argparse.Namespace) -> int:
    """Put back what a journal recorded."""
    path = Path(args.file)
    place, entries = journals.read(path)
    with _store(args.target or place) as there:
        if there.name != place:
            raise ClientError(f"{path} is the journal of {place}, not of {there.name}")
        undos = journals.undoing(entries)
        made = Journals(args, there)
        with _progress("undone", len(undos)) as told:
            outcome = undo(there, undos, Rules(args.exact, True, args.live), made.get, told)
        print(outcome.summary("undone"), file=sys.stderr)
        made.tell()
        return tell_problems([*outcome.problems, *there.problems])


# --- what they share --------------------------------------------------------------------------------------------------


def _copy(
    args: argparse.Namespace,
    here: Offsets | OffsetStore,
    there: OffsetStore,
    names: list[str],
    problems: list[Problem],
    *,
    optional: bool = False,
) -> int:
    """Copy the groups' offsets. `optional`: no group was named, so a group without offsets is not reported."""
    made = Journals(args, there)
    rules = Rules(args.exact, args.any_range, args.live, getattr(args, "translate", ""))
    with _progress("planned" if args.dry_run else "copied", len(names)) as told:
        outcome = copy(here, there, names, rules, None if args.dry_run else made.get, told)
    if optional:
        outcome.problems = [problem for problem in outcome.problems if problem.reason != "there are no offsets to copy"]
    if args.dry_run:
        print(_shown(outcome))
    print(outcome.summary("planned" if args.dry_run else "copied"), file=sys.stderr)
    made.tell()
    return tell_problems([*problems, *outcome.problems, *there.problems])


def _shown(outcome: Outcome) -> str:
    def row(group: str, step: Step) -> list[object]:
        old = "-" if step.change.old is None else step.change.old.offset
        new = "-" if step.change.new is None else step.change.new.offset
        return [group, step.partition.topic, step.partition.number, old, new, step.action.value, step.note]

    header = ("GROUP", "TOPIC", "PARTITION", "THERE", "HERE", "ACTION", "NOTE")
    return table(header, [row(group, step) for group, step in outcome.shown])


class Journals:
    """A command's journal, created with the first change."""

    def __init__(self, args: argparse.Namespace, there: OffsetStore) -> None:
        self._there = there
        self._path = Path(args.journal or time.strftime(f"barnabas-offsets-%Y%m%dT%H%M%S-{os.getpid()}.journal"))
        self._journal: Journal | None = None

    def get(self) -> Journal:
        if self._journal is None:
            self._journal = Journal(self._path, self._there.name)
        return self._journal

    def tell(self) -> None:
        if self._journal is not None:
            self._journal.close()
            print(f"journal: {self._path} (barnabas offsets undo restores the old offsets)", file=sys.stderr)


@contextlib.contextmanager
def _store(address: str) -> Iterator[OffsetStore]:
    """Open the store at an address, and close it afterwards. Raises ClientError."""
    made = open_store(address)
    try:
        yield made
    finally:
        made.close()


def open_store(address: str) -> OffsetStore:
    """Open the store at zookeeper://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...][/CHROOT] or kafka://HOST:PORT[,...].

    The latter may end in ?command-config=FILE, if the two stores have a file each. Raises ClientError.
    """
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise ClientError(f"{visible(address)}: {error}") from None
    credentials, at, hosts = parts.netloc.rpartition("@")
    if parts.scheme == "zookeeper" and hosts:
        return ZooKeeperStore(hosts, parts.path.rstrip("/"), unquote(credentials) if at else None)
    if parts.scheme in ("kafka", "barnabas") and hosts and not at:
        files = parse_qs(parts.query).get("command-config")
        return KafkaStore(hosts, of_file(files[-1]) if files else None)
    raise ClientError(
        f"{visible(address)} is not a place with offsets: expected zookeeper://HOST:PORT/CHROOT or kafka://HOST:PORT"
    )


def _names(wanted: list[str], everything: Callable[[], Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(wanted)) if wanted else list(everything())


def _read(args: argparse.Namespace) -> tuple[Offsets, list[Problem]]:
    """The offsets in a file. Raises ClientError if it cannot be read."""
    name = "standard input" if args.file == "-" else str(args.file)
    try:
        data = sys.stdin.buffer.read() if args.file == "-" else Path(args.file).read_bytes()
        text = data.decode()
    except OSError as error:
        raise ClientError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ClientError(f"{name} is not text: byte {error.start} is not UTF-8") from None
    reading = Reading(name)
    only = args.group[0] if len(args.group) == 1 else None
    reading.parse(text, args.format or guess_format(text), group=only, compat=args.compat)
    return reading.offsets, reading.problems


def _replace(path: Path, text: str) -> None:
    """Write a file completely or not at all. Raises ClientError."""
    made = path.with_name(f".{path.name}.new")
    try:
        with made.open("w", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        made.replace(path)
    except OSError as error:
        raise ClientError(f"{path}: {error.strerror}") from None


def tell_problems(problems: list[Problem]) -> int:
    """Print a line for each problem, and return the exit status."""
    for problem in dict.fromkeys(problems):
        print(visible(f"barnabas: {problem}"), file=sys.stderr)
    return int(bool(problems))


@contextlib.contextmanager
def _progress(verb: str, total: int) -> Iterator[Callable[[int], None]]:
    """Shows a bar on a terminal; elsewhere prints a line every few seconds."""
    is_terminal = sys.stderr.isatty()
    last = time.monotonic()

    def told(done: int) -> None:
        nonlocal last
        if is_terminal:
            filled = _BAR * done // max(total, 1)
            print(f"\r[{'#' * filled}{'.' * (_BAR - filled)}] {done} of {total} groups {verb}", end="", file=sys.stderr)
        elif time.monotonic() - last > 5:
            last = time.monotonic()
            print(f"{done} of {total} groups {verb}", file=sys.stderr, flush=True)

    try:
        yield told
    finally:
        if is_terminal and total:
            print(file=sys.stderr)
