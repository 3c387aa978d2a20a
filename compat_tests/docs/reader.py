"""A reader that goes through a page from top to bottom and types its commands, block by block.

A command must end with status 0; there are two exceptions. A server (a broker, a connector) is started, the reader
waits until it is ready, and the end of the page stops it; its status must then be 0. A command that follows new data
(`consume` without an end, `--watch`) is interrupted when it has printed the page's output, or any output if the page
shows none.

A `text` block directly after a block of commands is their output, or the output of one of them. `...` in it stands for
any text, and with the attribute `numbers` each number stands for any number.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import shlex
import signal
from pathlib import Path
from typing import Any

from barnabas.broker.main import load_config
from barnabas.scripts.cli import parser
from compat_tests.docs.blocks import Block
from compat_tests.docs.machine import Machine, lacking
from compat_tests.docs.scenarios import NOT_RUN, Program, Scenario
from compat_tests.docs.session import Done, Started, statements
from compat_tests.tools import program_of_prometheus
from compat_tests.waiting import until

#: The commands that serve, and the text that they print when they are ready.
SERVES = {
    r"barnabas serve\b|make run\b": "barnabas is ready on ",
    r"barnabas connect binlog\b": " info binlog.reading ",
    r"barnabas connect apply\b(?!.*--until-end)": " info apply.reading ",
    r"barnabas connect influx\b(?!.*--stdin)": "barnabas takes line protocol at ",
}
#: The commands that follow new data.
FOLLOWS = re.compile(
    r"barnabas consume\b(?!.*(--exit|-e\b|-n\b|--max))|barnabas trace\b(?!.*-n\b)|barnabas \w+.* --watch\b"
    r"|kafka-console-consumer(?!.*(--max-messages|--timeout-ms))|tail -f"
)
PROGRAMS = Path(__file__).parent / "programs"
INTERRUPTED = 130
_BROKER = re.compile(r"\s*(barnabas serve|make run)\b")


class Reader:
    """Reads the blocks of a scenario; `left_out` lists the commands whose tools this machine lacks."""

    def __init__(self, scenario: Scenario, machine: Machine, has_broker: bool = False) -> None:
        """`has_broker`: a broker runs already at this machine's port 9092."""
        self.left_out: list[str] = []
        self._scenario, self._machine = scenario, machine
        self._has_broker = has_broker or not scenario.broker
        self._serving: list[Started] = []
        self._hooks, self._shows = dict(scenario.before), dict(scenario.shows)
        self._shown: list[str] = []  # the outputs of the previous block's commands; empty if not all of them ran
        self._goes_on = False  # the last command was interrupted
        self._tests = 0

    def read(self, blocks: list[Block]) -> None:
        """Run all blocks. Raises AssertionError for the first one that differs from its page."""
        for name, text in self._scenario.files.items():
            (self._machine.home / name).write_text(text)
        if not (self._has_broker or starts_broker(blocks)):
            self.type("barnabas serve")
        self._before("")
        for block, behind in zip(blocks, [*blocks[1:], None], strict=True):
            self._before(block.heading)
            if not_run(block) is None:
                try:
                    self._block(block, behind if behind is not None and behind.adjoins else None)
                except (AssertionError, ValueError) as error:
                    raise AssertionError(f"{block}: {error}") from error
        if self._tests:
            self._run_tests()
        if self._scenario.after:
            self.type(self._scenario.after)
        unmet = [*self._hooks, *self._shows]
        assert not unmet, f"nothing in the page is like {', '.join(unmet)}"

    def close(self) -> None:
        """Stop all servers, the last one first."""
        for started in reversed(self._serving):
            self._stop(started)

    def _stop(self, started: Started) -> None:
        self._serving = [each for each in self._serving if each is not started]
        status = self._machine.bash.stop(started, signal.SIGTERM)
        assert status == 0, f"{started.command} ended with {status}:\n{started.all[-3000:]}"

    def _block(self, block: Block, behind: Block | None) -> None:
        if block.language != "text":
            self._shown = []
        if program := self._scenario.programs.get(block.language):
            self._program(block, program)
            return
        runs = getattr(self, f"_run_{block.language}", None)
        assert runs is not None, f"nothing runs a block in {block.language or 'no language'}"
        runs(block, behind)

    def _before(self, place: str) -> None:
        """Type the scenario's commands for a heading, or for the beginning of a command or program."""
        for begun in [each for each in self._hooks if (place.startswith(each) if each else place == "")]:
            text = self._hooks.pop(begun)
            if text.startswith("python:"):
                self._python(text.removeprefix("python:"))
                continue
            self._type_all(text)

    # --- shell --------------------------------------------------------------------------------------------------------

    def _run_sh(self, block: Block, behind: Block | None) -> None:
        shown: list[str] = []
        commands = list(statements(block.text))
        for command in commands:
            self._before(command)
            if reason := lacking(command):
                self.left_out.append(f"{block}: {reason}")
            else:
                is_last = command is commands[-1] and behind is not None and behind.language == "text"
                shown.append(self.type(command, behind if is_last else None))
        self._shown = shown if len(shown) == len(commands) else []

    def _type_all(self, text: str) -> str:
        """Run commands; `stop` stops the servers. Returns the output of the last command."""
        shown = ""
        for statement in statements(text):
            if statement == "stop":
                self.close()
            else:
                shown = self.type(statement)
        return shown

    def type(self, command: str, expected: Block | None = None) -> str:
        """Run a command; returns its standard output."""
        text, plain = self._machine.here(command), re.sub(r"\s#.*|<<.*", "", command, flags=re.S)
        for pattern, sign in SERVES.items():
            if re.match(rf"\s*({pattern})", plain) and not plain.endswith("&"):
                return self._serve(text, sign)
        self._goes_on = FOLLOWS.search(plain) is not None
        if self._goes_on:
            return self._follow(text, expected)
        done = self._machine.bash.run(text)
        assert done.status == 0, _told(text, done)
        return self._machine.there(done.out)

    def _serve(self, command: str, sign: str) -> str:
        if re.search(
            r"\bconnect\b", command
        ):  # a source has one reader at a time: the old one is stopped before a new one starts
            again = [each for each in self._serving if source_of(each.command) == source_of(command)]
            for before in again:
                self._stop(before)
        started = self._machine.bash.start(command)
        self._serving.append(started)
        until(lambda: sign in started.all or not started.goes_on, f"{command} says{sign}")
        if not started.goes_on:
            self._serving.remove(started)
        assert started.goes_on, f"{command} has ended:\n{started.all[-3000:]}"
        return started.out

    def _follow(self, command: str, expected: Block | None) -> str:
        started = self._machine.bash.start(command)
        sees = next((text for begun, text in self._scenario.sees.items() if command.startswith(begun)), "")
        if sees:
            self.type(sees)

        def shown() -> str:
            return self._machine.there(started.out)

        def is_there() -> bool:
            return is_shown(expected, shown(), goes_on=True) if expected is not None else bool(started.all or sees)

        until(lambda: is_there() or not started.goes_on, f"what {command} shows")
        assert is_there(), f"{command} has ended:\n{started.all[-3000:]}"
        status = self._machine.bash.stop(started, signal.SIGINT)
        assert status in (0, INTERRUPTED), f"{command} ended with {status}:\n{started.all[-3000:]}"
        return shown()

    def _run_text(self, block: Block, _: Block | None) -> None:
        for begun in [each for each in self._shows if block.text.startswith(each)]:
            came = self._type_all(self._shows.pop(begun))
            assert is_shown(block, came), f"the page shows\n{block.text}\nand this came:\n{came}"
        if block.adjoins and self._shown:
            came = "".join(self._shown)
            is_right = any(is_shown(block, each) for each in (came, *self._shown))
            is_right = is_right or (self._goes_on and is_shown(block, self._shown[-1], goes_on=True))
            assert is_right, f"the page shows\n{block.text}\nand this came:\n{came}"
            self._shown = []

    # --- programs -----------------------------------------------------------------------------------------------------

    def _run_python(self, block: Block, _: Block | None) -> None:
        """pytest runs tests at the end of the page, with earlier blocks' fixtures; other code runs in one module."""
        if re.search(r"^\s*def test_", block.text, re.M):
            self._tests += 1
            (self._machine.home / f"test_{self._tests}.py").write_text(block.text)
        elif "@pytest.fixture" in block.text:
            (self._machine.home / "conftest.py").write_text(block.text)
        else:
            self._before(block.text)
            if "pyspark" in block.text and (reason := no_spark()):
                self.left_out.append(f"{block}: {reason}")
                return
            self._shown = [self._python(self._machine.here(block.text))]

    def _python(self, text: str) -> str:
        done = self._machine.python.run(text)
        assert done.status == 0, _told(text, done)
        return self._machine.there(done.out)

    def _run_tests(self) -> None:
        files = " ".join(f"test_{number + 1}.py" for number in range(self._tests))
        done = self._machine.bash.run(f"python -m pytest -q -p no:cacheprovider {files}")
        assert done.status == 0, _told("pytest", done)
        passed = re.search(r"(\d+) passed", done.out)  # an asynchronous test may run once for each library
        assert passed is not None, done.out
        assert int(passed[1]) >= self._tests, done.out

    def _program(self, block: Block, program: Program) -> None:
        """Run a block that is a part of a program, inside the rest of that program."""
        if reason := lacking(program.command):
            self.left_out.append(f"{block}: {reason}")
            return
        text = (PROGRAMS / program.file).read_text()
        (self._machine.home / program.file).write_text(text.replace("BLOCK\n", block.text))
        shown = self.type(program.command)
        assert re.search(program.shows, shown), shown

    def _run_sql(self, block: Block, _: Block | None) -> None:
        (self._machine.home / "block.sql").write_text(block.text.rstrip().removesuffix(";") + ";\n")
        self._shown = [self.type("barnabas sql < block.sql")]

    # --- data ---------------------------------------------------------------------------------------------------------

    def _run_json(self, block: Block, _: Block | None) -> None:
        for text in [block.text] if block.text.startswith("{\n") else block.text.splitlines():
            json.loads(text)

    def _run_properties(self, block: Block, _: Block | None) -> None:
        """Load the settings; if they name listeners, also start a broker with them."""
        file = self._machine.home / "block.properties"
        file.write_text(self._machine.here(block.text))
        self.type(f"python -m compat_tests.docs.settings {file}")
        if re.search(r"^listeners *=", block.text, re.M):
            self.type(f"barnabas serve --config {file} --data-dir block-data")
            self._stop(self._serving[-1])

    def _run_yaml(self, block: Block, _: Block | None) -> None:
        yaml: Any = importlib.import_module("yaml")  # imported by name, as it has no types
        found: dict[str, Any] = yaml.safe_load(block.text)
        if "scrape_configs" in found:
            self._check_prometheus(block)
        for step in found.get("steps", ()):  # a workflow of GitHub
            for command in statements(step.get("run", "")):
                self.type(command)
        for name, service in found.get("services", {}).items():  # a compose file
            if service.get("image") == "barnabas":
                args = parser().parse_args(["serve", *service["command"]])
                config = load_config(args.config, args.data_dir, args.listen, args.override, args.http)
                assert not config.unknown
                assert config.advertised is not None
                assert {each.host for each in config.advertised} == {name}

    def _check_prometheus(self, block: Block) -> None:
        tool = program_of_prometheus("promtool")
        if tool is None:
            self.left_out.append(f"{block}: promtool is not in .tools (make tools)")
            return
        (self._machine.home / "prometheus.yml").write_text(block.text)
        self.type(f"{shlex.quote(tool)} check config prometheus.yml")


def starts_broker(blocks: list[Block]) -> bool:
    """Whether a page starts its broker itself."""
    return any(_BROKER.match(line) for block in blocks if block.language == "sh" for line in block.text.splitlines())


def source_of(command: str) -> str:
    """The source of a connector, from its command."""
    return "".join(re.findall(r"connect \w+|--(?:source|target|listen)[ =]\S+", command))


def not_run(block: Block) -> str | None:
    """Why a block is not run; None if it is."""
    return next((reason for begun, reason in NOT_RUN.items() if block.text.startswith(begun)), None)


def no_spark() -> str:
    """Why this machine has no Spark; "" if it has."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed: make setup-all"
    return lacking("java") and "java is not installed"


def is_shown(block: Block, shown: str, goes_on: bool = False) -> bool:
    """Whether a block of `text` shows the whole output, or with `goes_on` its beginning."""
    parts: list[str] = []
    for line in block.text.rstrip().splitlines():
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*")
            continue
        pattern = ".*".join(re.escape(each) for each in line.rstrip().split("..."))
        if "numbers" in block.attributes:
            pattern = re.sub(r"\d+(?:\\?[.,:]\d+)*", r"[\\d.,:]+", pattern)
            pattern = re.sub(r"(?:\\ )+", " +", pattern)  # the width of columns depends on their values
        parts.append(pattern + r"[^\S\n]*\n")
    match = re.match if goes_on else re.fullmatch
    return match("".join(parts), shown.rstrip() + "\n") is not None


def _told(command: str, done: Done) -> str:
    return f"{command}\nended with {done.status}:\n{done.out[-3000:]}{done.errors[-3000:]}"
