"""The modules that an import needs, and those that it must not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.wire.text import SPARK_REMEDY
from compat_tests.tools import ROOT

READING = """
import sys
from barnabas.streams import decode, encode, export, schema, wal
print(*sorted(sys.modules))
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("missing", "act"), [("pyarrow", ""), ("pyspark", "streams.register(None)")])
def test_without_the_extra_there_is_one_line_with_the_remedy(missing: str, act: str) -> None:
    done = run(f"import sys; sys.modules[{missing!r}] = None; from barnabas import streams; {act}")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert f"needs {missing}" in last
    assert last.endswith(SPARK_REMEDY)


def test_reading_needs_neither_spark_nor_an_event_loop_nor_the_broker() -> None:
    done = run(READING)
    assert done.returncode == 0, done.stderr
    loaded = {name.removeprefix("barnabas.").split(".")[0] for name in done.stdout.split()}
    assert not loaded & {"pyspark", "trio", "broker", "groupcoord"}
