"""kazoo is an extra: the broker runs without it, and says what to install if a setting needs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from compat_tests.broker_process import Barnabas
from compat_tests.tools import ROOT

HIDDEN = "import sys; sys.modules['kazoo'] = None; from barnabas.scripts.cli import main; sys.exit(main())"


class WithoutKazoo(Barnabas):
    def command(self) -> list[str]:
        command = super().command()
        return [command[0], "-c", HIDDEN, *command[3:]]


def test_a_broker_without_zookeeper_does_not_import_it(tmp_path: Path) -> None:
    with WithoutKazoo(tmp_path) as server:
        assert server.stop() == 0


def test_a_broker_and_a_command_that_need_it_say_how_to_get_it(tmp_path: Path) -> None:
    serve = ("serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--override", "zookeeper.connect=a:1")
    for words in (serve, ("offsets", "export", "--from", "zookeeper://127.0.0.1:1")):
        done = subprocess.run(
            [sys.executable, "-c", HIDDEN, *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 1
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("barnabas:")]
        assert "need kazoo: pip install 'barnabas[zookeeper]'" in line
        assert "Traceback" not in done.stderr
