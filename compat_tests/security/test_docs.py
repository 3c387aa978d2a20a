"""The steps from open to locked in docs/security.md are run as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from compat_tests.apache_kafka import free_ports
from compat_tests.tools import ROOT
from compat_tests.waiting import DEADLINE, changed, until


def test_from_open_to_locked(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    text = (ROOT / "docs" / "security.md").read_text()
    section = text[text.index("## From open to locked") : text.index("\n## TLS")]
    steps = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    assert len(steps) == 7
    (port,) = free_ports(1)
    command = tmp_path / "barnabas"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m barnabas "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    before, serve, after = "", "", ""
    for step in steps:
        step = step.replace("9093", str(port))
        if step.startswith("barnabas serve"):
            serve = step
        elif serve:
            after += step
        else:
            before += step

    def run(script: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=DEADLINE
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(before)
    broker = subprocess.Popen(
        ["bash", "-c", f"exec {serve}"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    )
    said: list[str] = []

    def listen() -> None:
        assert broker.stdout is not None
        for line in broker.stdout:
            said.append(line)
            changed()

    threading.Thread(target=listen, daemon=True).start()
    try:
        until(lambda: any("is ready" in line for line in said) or broker.poll() is not None, "the broker is ready")
        assert run(after).endswith("first order\n")
    finally:
        broker.terminate()
        assert broker.wait(DEADLINE) == 0
