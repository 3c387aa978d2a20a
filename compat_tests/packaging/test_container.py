"""The Dockerfile and the compose file: the files that they name exist, and the container's commands are run here.

No image is built: the machine of the tests need not have Docker's engine.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.main import load_config
from barnabas.scripts.cli import parser
from compat_tests.tools import ROOT
from compat_tests.waiting import until

DATA, KAFKA, HTTP = "/var/lib/barnabas", "9092", "9644"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile; lines that end with a backslash are joined with the next one."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    lines = [line.strip() for line in text.splitlines()]
    return [
        (word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines if line and line[0] != "#")
    ]


def last(word: str) -> str:
    return [rest for each, rest in instructions() if each == word][-1]


def free_port() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return str(sock.getsockname()[1])


@pytest.fixture
def ports() -> dict[str, str]:
    return {KAFKA: free_port(), HTTP: free_port()}


def here(words: list[str], folder: Path, ports: dict[str, str]) -> list[str]:
    """A command of the container, with this machine's Python, folder and ports."""
    changed = [word.replace(DATA, str(folder)).replace("0.0.0.0", "127.0.0.1") for word in words]
    changed = [re.sub(r":(9092|9644)\b", lambda found: ":" + ports[found[1]], word) for word in changed]
    program = {"barnabas": [sys.executable, "-m", "barnabas"], "python": [sys.executable]}[changed[0]]
    return [*program, *changed[1:]]


@pytest.fixture
def container(tmp_path: Path, ports: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The command that the container runs."""
    command = here([*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))], tmp_path / "data", ports)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
    yield process
    process.kill()
    process.wait()


def health(tmp_path: Path, ports: dict[str, str]) -> int:
    command = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    return subprocess.run(here(command, tmp_path, ports), cwd=ROOT, capture_output=True, timeout=60).returncode


def test_it_becomes_healthy_and_stops_cleanly(
    container: subprocess.Popen[bytes], tmp_path: Path, ports: dict[str, str]
) -> None:
    until(lambda: health(tmp_path, ports) == 0, "the container is healthy")
    container.send_signal(getattr(signal, last("STOPSIGNAL")))
    assert container.wait(60) == 0
    assert "stopped" in (tmp_path / "log").read_text()
    assert health(tmp_path, ports) != 0


def test_what_is_copied_is_there_and_is_not_left_out() -> None:
    left_out = [line for line in (ROOT / ".dockerignore").read_text().split() if not line.startswith("#")]
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from"):
            *sources, _ = shlex.split(rest)
            for source in sources:
                assert (ROOT / source).exists(), source
                assert not any(fnmatch(source, pattern) for pattern in left_out), source


def test_every_room_is_copied() -> None:
    copied = {name for word, rest in instructions() if word == "COPY" for name in rest.split()}
    rooms = {each.name for each in (ROOT / "barnabas").iterdir() if each.is_symlink()}
    assert rooms <= copied


def test_the_image_is_not_built_without_a_codec_in_c() -> None:
    """The build looks for each extension module. Its pattern finds all of them in pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text()
    (pattern,) = [
        found[1] for _, rest in instructions() if (found := re.search(r"grep -o '([^']+)' /src/pyproj", rest))
    ]
    modules = tomllib.loads(text)["tool"]["setuptools"]["ext-modules"]
    assert {source.removesuffix(".c").replace("/", ".") for source in re.findall(pattern, text)} == {
        module["name"] for module in modules
    }


def test_nobody_is_root_in_the_images_that_run() -> None:
    stages: dict[str, list[tuple[str, str]]] = {}
    for word, rest in instructions():
        if word == "FROM":
            stages[rest.split()[-1]] = []
        else:
            stages[list(stages)[-1]].append((word, rest))
    for name in ("spark", "broker"):
        assert stages[name][-1] == ("USER", "barnabas")


def compose() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    found: dict[str, Any] = yaml.safe_load((ROOT / "docs" / "deploy" / "compose.yaml").read_text())
    return found


def test_the_compose_files_broker_can_start_so() -> None:
    service = compose()["services"]["broker"]
    words = [*json.loads(last("ENTRYPOINT"))[1:], *service["command"]]
    args = parser().parse_args(words)
    config = load_config(args.config, args.data_dir, args.listen, args.override, args.http)
    assert [str(each) for each in config.advertised or ()] == ["INSIDE://broker:19092", "OUTSIDE://localhost:9092"]
    assert config.http is not None
    assert (config.http.host, config.http.port) == ("0.0.0.0", 9644)
    assert not config.unknown
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_the_compose_file_builds_a_stage_that_is_there() -> None:
    build = compose()["services"]["broker"]["build"]
    assert (ROOT / "docs" / "deploy" / build["context"]).resolve() == ROOT
    assert any(word == "FROM" and rest.endswith(f" AS {build['target']}") for word, rest in instructions())
