"""The command as an operator types it, and the addresses that it takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from compat_tests.broker_process import Server
from compat_tests.tools import ROOT


def command(*words: str, given: bytes = b"", status: int | None = 0, cwd: Path = ROOT) -> tuple[str, str]:
    """Standard output and standard error of a command."""
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", *words],
        cwd=cwd, input=given, capture_output=True, timeout=90, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    out, said = done.stdout.decode(), done.stderr.decode()
    assert status is None or done.returncode == status, out + said
    return out, said


def offsets(*words: str, **options: Any) -> tuple[str, str]:
    return command("offsets", *words, **options)


def place(server: Server) -> str:
    return f"kafka://{server.address}"
