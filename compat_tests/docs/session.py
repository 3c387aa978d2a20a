"""A shell or a Python interpreter that gets a page's commands one by one, as a reader types them.

The variables of a command stay for the next one. A session runs in a process session of its own, without a terminal;
when it is closed, all of its processes end.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from compat_tests.waiting import DEADLINE, until

#: Job control gives each background job its own process group, which can be interrupted as a whole.
_BASH = r"""
exec 3<&"$1"- 4>&"$2"-
set -m -o pipefail
while IFS= read -r -d '' out <&3 && IFS= read -r -d '' statement <&3; do
    if [ -z "$out" ]; then
        eval "$statement" </dev/null 3<&- 4>&-
        echo $? >&4
    else
        eval "exec $statement" </dev/null >"$out" 2>"$out.err" 3<&- 4>&- &
        echo $! >&4
    fi
done
for job in $(jobs -p); do kill -- "-$job"; done
"""


@dataclass(frozen=True)
class Done:
    """The output and the status of a command."""

    status: int
    out: str
    errors: str


class Session:
    """A program that reads commands, each ended by a NUL, and answers each with a line with a number."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str], name: str) -> None:
        self._out, self._errors = folder.parent / f"{name}.out", folder.parent / f"{name}.err"
        asked, write = os.pipe()
        read, told = os.pipe()
        with self._out.open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, str(asked), str(told)],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                pass_fds=(asked, told),
                start_new_session=True,
                preexec_fn=_take_interrupts,
            )
        os.close(asked)
        os.close(told)
        self._asked, self._told = os.fdopen(write, "wb", 0), os.fdopen(read, "rb", 0)

    def run(self, command: str) -> Done:
        """Run a command to its end."""
        files = (self._out, self._errors)
        before = [file.stat().st_size for file in files]
        status = self._ask("", command)
        shown = [file.read_bytes()[start:].decode() for file, start in zip(files, before, strict=True)]
        return Done(status, *shown)

    def _ask(self, *words: str) -> int:
        self._asked.write(b"".join(word.encode() + b"\0" for word in words))
        ready, _, _ = select.select([self._told], [], [], DEADLINE)
        assert ready, f"not in {DEADLINE:g} s: {words[-1]}\n{self._last_words()}"
        line = self._told.readline()
        assert line, f"it has ended the session: {words[-1]}\n{self._last_words()}"
        return int(line)

    def _last_words(self) -> str:
        return "".join(file.read_text(errors="replace")[-2000:] for file in (self._out, self._errors))

    def close(self) -> None:
        """End all processes that are left of it."""
        self._asked.close()
        for end in (psutil.Process.terminate, psutil.Process.kill):
            left = list(self._processes())
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    end(process)
            psutil.wait_procs(left, 10)
        self._process.wait(DEADLINE)
        self._told.close()

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getsid(process.pid) == self._process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    yield process


def _take_interrupts() -> None:
    """Stop ignoring SIGINT: a shell that starts with a signal ignored cannot restore it for its commands."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass(frozen=True)
class Started:
    """A command that keeps running: it serves, or follows new data."""

    command: str
    pid: int
    file: Path

    @property
    def out(self) -> str:
        """Its standard output so far."""
        return self.file.read_text(errors="replace")

    @property
    def all(self) -> str:
        """Its standard output and standard error so far."""
        return self.out + self.file.with_name(self.file.name + ".err").read_text(errors="replace")

    @property
    def goes_on(self) -> bool:
        try:
            return bool(psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False


class Bash(Session):
    """A shell. It also starts commands that keep running."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        super().__init__(["bash", "-c", _BASH, "bash"], folder, environment, "bash")
        self._folder, self._count = folder.parent, 0

    def start(self, command: str) -> Started:
        """Start a program, or a pipeline, in the background."""
        self._count += 1
        file = self._folder / f"started-{self._count}"
        pid = self._ask(str(file), command)
        until(file.with_name(file.name + ".err").exists, f"it has begun: {command}")
        return Started(command, pid, file)

    def stop(self, started: Started, number: signal.Signals) -> int:
        """Send a signal to all processes of a command; returns its status."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, number)
        return self.run(f"wait {started.pid}").status


class Python(Session):
    """An interpreter."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        super().__init__([sys.executable, str(Path(__file__).with_name("interpreter.py"))], folder, environment, "py")


def statements(text: str) -> Iterator[str]:
    """The shell commands of a text: each is a line, or as many lines as bash needs for a complete command.

    Raises AssertionError for what bash cannot parse.
    """
    begun: list[str] = []
    for line in text.splitlines():
        if not begun and (not line.strip() or line.lstrip().startswith("#")):
            continue
        begun.append(line)
        if not line.endswith("\\") and not syntax_error("\n".join(begun)):
            yield "\n".join(begun)
            begun = []
    assert not begun, syntax_error("\n".join(begun)) or "it ends with a backslash"


def syntax_error(command: str) -> str:
    """The syntax error that bash finds in a text, without running it."""
    done = subprocess.run(["bash", "-n"], input=command + "\n", capture_output=True, text=True, timeout=DEADLINE)
    return done.stderr  # a here-document without an end is a warning only
