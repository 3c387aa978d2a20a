"""The blocks of docs/in-your-tests.md run as they stand there, as far as their languages are here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.tools import ROOT

pytest_plugins = ["pytester"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / "in-your-tests.md").read_text(), re.DOTALL)


def test_the_blocks_of_python(pytester: pytest.Pytester) -> None:
    with_pytest, properties, with_unittest, lost = blocks("python")
    pytester.makeconftest(properties)
    pytester.makepyfile(test_first=with_pytest, test_second=with_unittest, test_third=lost)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=3)


def test_the_block_of_node(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    (block,) = blocks("js")
    command = tmp_path / "barnabas"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m barnabas "$@"\n')
    command.chmod(0o755)
    program = tmp_path / "program.js"
    ready = str(tmp_path / "ready")
    program.write_text(
        f"{block}\nstartBroker({ready!r}).then(({{ brokers, stop }}) => {{ console.log(brokers[0]); stop(); }});"
    )
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["node", str(program)], env=environment, capture_output=True, text=True, timeout=60)
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", done.stdout), done.stderr
