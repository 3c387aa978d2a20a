"""With a Python that is too old, setup stops with one line of text before it creates anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from compat_tests.tools import ROOT

#: Makes Python report another version to programs than it has.
OLD = """#!/bin/sh
exec {python} -c 'import sys; sys.version_info = (3, 10, 13, "final", 0); exec(sys.argv[1])' "$2"
"""


def test_make_names_the_version_that_is_needed(tmp_path: Path) -> None:
    old = tmp_path / "python3.10"
    old.write_text(OLD.format(python=sys.executable))
    old.chmod(0o755)
    made = tmp_path / "venv"
    done = subprocess.run(
        ["make", "run", f"PY={old}", f"VENV={made}"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    first = done.stderr.splitlines()[0]
    assert first == f"barnabas needs Python 3.11 or newer, and {old} is 3.10: make run PY=python3.11"
    assert not made.exists()
