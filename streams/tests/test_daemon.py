"""The process that Spark's workers are copies of."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

_LOADED = """
import os, sys
from barnabas.streams.daemon import load
load({!r})
print(*(name for name in ("pyarrow", "barnabas.streams.windows.sink") if name in sys.modules), flush=True)
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
import pyarrow as pa, pyarrow.compute as pc
print(pc.sum(pa.table({{"a": list(range(100_000))}}).sort_by("a").column("a")))
"""


@pytest.mark.parametrize(
    ("kind", "told"),
    [("pyspark.worker", "pyarrow barnabas.streams.windows.sink"), ("pyspark.sql.worker.create_data_source", "")],
)
def test_it_has_loaded_what_workers_need_and_they_work(kind: str, told: str) -> None:
    done = subprocess.run([sys.executable, "-c", _LOADED.format(kind)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [told, "4999950000"]
