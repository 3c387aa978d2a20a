"""`barnabas trace` with a real broker."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import pytest

from compat_tests.broker_process import Barnabas
from compat_tests.cli.test_cli import COMMAND, run
from compat_tests.tools import ROOT


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    with Barnabas(tmp_path_factory.mktemp("broker"), {"barnabas.http.listen": "127.0.0.1:0"}) as server:
        yield server


def urls_of(broker: Barnabas) -> list[str]:
    """A `--url` option for each node."""
    found = re.search(r"HTTP is on (.+)", broker.log_file.read_text())
    assert found is not None
    return [word for url in found[1].split(", ") for word in ("--url", url)]


@pytest.mark.one_node("it traces the requests of one node")
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_requests_are_shown_as_they_come(broker: Barnabas, form: tuple[str, ...]) -> None:
    topic = f"traced{len(form)}"
    words = ["trace", *urls_of(broker), "--topic", topic, "--api", "Produce", "-n", "2", *form]
    with subprocess.Popen([*COMMAND, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:  # the command starts looking some time after its start
            run("produce", topic, "-b", broker.address, stdin=b"x\n")
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
    assert process.returncode == 0
    assert len(lines) == 2
    if form:
        assert json.loads(lines[0])["topics"] == [topic]
        assert json.loads(lines[0])["client"] == "barnabas-cli"
    else:
        assert re.match(rf"[\d:.]+  Produce v\d+  barnabas-cli  127\.0\.0\.1:\d+  User:ANONYMOUS  {topic}  ", lines[0])


def test_mistakes_are_told_with_their_remedy() -> None:
    told = run("trace", "--url", "http://127.0.0.1:1", status=1)
    assert "is a broker with an HTTP listener there? (barnabas serve --http 127.0.0.1:9644)" in told
    assert "expected http://HOST:PORT" in run("trace", "--url", "ftp://x", status=1)
