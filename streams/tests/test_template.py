"""The process from which Spark's Python processes are forked."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.query.session import WORKERS_PATH
from barnabas.streams.template.start import ENVIRONMENT, TEMPLATE, Template
from compat_tests.waiting import until

#: What a process of Spark's would do: it says where it is, and goes on until its input ends.
WORK = """
import json, os, sys
print(json.dumps({
    "pid": os.getpid(), "parent": os.getppid(), "words": sys.argv[1:], "main": __name__, "folder": os.getcwd(),
    "loaded": "pyspark.worker" in sys.modules, "given": os.environ.get("GIVEN"), "path": sys.path,
    "template": os.environ.get("BARNABAS_TEMPLATE"),
}), flush=True)
print("an error", file=sys.stderr, flush=True)
for line in sys.stdin:
    print(line.upper(), end="", flush=True)
print("the end", flush=True)
"""
OF_SPARK = {**os.environ, **ENVIRONMENT, "PYTHONPATH": WORKERS_PATH, "PYTHON_WORKER_FACTORY_SECRET": "secret"}
DRIVER = """
import sys
from pathlib import Path
from barnabas.streams.template.start import Template
template = Template.start(Path(sys.argv[1]), sys.executable, has_functions=False)
print(template._process.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    """One for all tests that do not end it: it takes half a second."""
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as made:
        yield made


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Template]:
    made = Template.start(folder, sys.executable, has_functions=False)
    assert made is not None
    try:
        yield made
    finally:
        end(made)


def end(template: Template) -> None:
    assert template._process.stdin is not None
    template._process.stdin.close()
    template._process.wait(60)


class Work:
    """A Python process as the JVM starts one, with a module of the current folder."""

    def __init__(self, folder: Path, template: Path | None, **environment: str) -> None:
        (folder / "work_of_a_test.py").write_text(WORK)
        environment = {**OF_SPARK, "GIVEN": "given", **environment}
        if template is not None:
            environment[TEMPLATE] = str(template)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "work_of_a_test", "one", "two words"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=folder,
            text=True,
        )

    def __enter__(self) -> Work:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def told(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        told: dict[str, Any] = json.loads(self.process.stdout.readline())
        return told

    def finished(self, given: str) -> tuple[str, str]:
        said, errors = self.process.communicate(given, 60)
        return said, errors


def does_it_itself(folder: Path, template: Path | None, **environment: str) -> bool:
    """Whether a process does its own work."""
    with Work(folder, template, **environment) as work:
        told = work.told()
        assert work.finished("")[0] == "the end\n"
        return bool(told["pid"] == work.process.pid)


def test_a_fork_does_the_work_as_the_process_itself_would(template: Template, tmp_path: Path) -> None:
    with Work(tmp_path, None) as work:
        expected = work.told()
        assert expected["loaded"] is False
        assert work.finished("x\n") == ("X\nthe end\n", "an error\n")
    with Work(tmp_path, template.path) as work:
        told = work.told()
        assert told["parent"] == template._process.pid
        assert told["loaded"]
        assert told["template"] is None, "a process that an operator's function starts is not Spark's"
        kept = ("words", "main", "folder", "given", "path")
        assert {name: told[name] for name in kept} == {name: expected[name] for name in kept}
        fork, other = psutil.Process(told["pid"]), psutil.Process(work.process.pid)
        until(lambda: other.name() == "cat", "the process waits")
        if psutil.LINUX:
            assert fork.cmdline()[:5] == [sys.executable, "-m", "work_of_a_test", "one", "two words"]
        assert work.finished("x\n") == ("X\nthe end\n", "an error\n")
        assert work.process.returncode == 0
        until(lambda: not fork.is_running(), "the fork has ended")


@pytest.mark.skipif(not psutil.LINUX, reason="other systems do not send the signal")
def test_a_fork_ends_when_the_process_whose_work_it_does_is_killed(template: Template, tmp_path: Path) -> None:
    """The JVM ends the process that it has started, and keeps the pipes open."""
    with Work(tmp_path, template.path) as work:
        fork = psutil.Process(work.told()["pid"])
        work.process.kill()
        until(lambda: not fork.is_running(), "the fork has ended")


def test_a_process_that_waits_ends_when_its_fork_is_killed(template: Template, tmp_path: Path) -> None:
    with Work(tmp_path, template.path) as work:
        os.kill(work.told()["pid"], signal.SIGKILL)
        work.process.wait(60)


def test_a_process_is_not_held_up_by_others_that_say_nothing_or_half(template: Template, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        for said in (b"", b"\0\0", b"\0\0\1\0", b"\0\0\0\2{}"):
            other = stack.enter_context(socket.socket(socket.AF_UNIX))
            other.connect(str(template.path))
            other.sendall(said)
        assert not does_it_itself(tmp_path, template.path)
    assert not does_it_itself(tmp_path, template.path)
    assert template._process.poll() is None


def test_a_process_does_its_work_itself_if_no_fork_can(template: Template, tmp_path: Path) -> None:
    assert does_it_itself(tmp_path, None)
    assert does_it_itself(tmp_path, tmp_path / "nothing")
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(tmp_path / "gone"))
    assert does_it_itself(tmp_path, tmp_path / "gone")
    assert does_it_itself(tmp_path, template.path, PYTHONHASHSEED="1"), "a fork has the template's"


def test_a_process_that_spark_has_not_started_does_its_work_itself(
    template: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver may start a worker of its own while it starts the JVM, and so with the JVM's environment."""
    monkeypatch.delitem(OF_SPARK, "PYTHON_WORKER_FACTORY_SECRET")
    assert does_it_itself(tmp_path, template.path)


def test_another_python_does_its_work_itself(template: Template, tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    (tmp_path / "work_of_a_test.py").write_text(WORK)
    environment = {**OF_SPARK, TEMPLATE: str(template.path)}
    done = subprocess.run(
        [str(other), "-m", "work_of_a_test"], input="", capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert json.loads(done.stdout.splitlines()[0])["parent"] == os.getpid()


def test_a_template_that_was_killed_is_done_without(tmp_path: Path) -> None:
    with started(tmp_path) as template:
        assert not does_it_itself(tmp_path, template.path)
        template._process.kill()
        template._process.wait()
        assert does_it_itself(tmp_path, template.path)


def test_it_ends_with_its_driver(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], stdin=-1, stdout=-1, text=True) as driver:
        assert driver.stdout is not None
        template = psutil.Process(int(driver.stdout.readline()))
        driver.kill()
    until(lambda: not template.is_running(), "the template has ended")


def test_there_is_none_where_a_socket_cannot_be(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    assert Template.start(folder, sys.executable, has_functions=False) is None
    assert Template.start(tmp_path / "nothing", sys.executable, has_functions=False) is None
    assert Template.start(tmp_path, str(tmp_path / "no-python"), has_functions=False) is None
