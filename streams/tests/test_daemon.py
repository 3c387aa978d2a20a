"""The process that Spark's workers are copies of."""

from __future__ import annotations

import os
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


_PANDAS = """
import os, sys
from barnabas.streams.daemon import load
load("pyspark.worker")
import pyarrow as pa
rows = pa.table({"a": pa.array([1, 2]), "b": ["x", None]})
rows.group_by("a").aggregate([("a", "sum")])
print("pandas" in sys.modules)
frame = rows.to_pandas()
print(pa.Table.from_pandas(frame).equals(rows), "pandas" in sys.modules)
"""


@pytest.mark.parametrize(("given", "first"), [({"BARNABAS_WITHOUT_PANDAS": "1"}, "False"), ({}, "True")])
def test_arrow_imports_pandas_only_for_functions_that_may_need_it(given: dict[str, str], first: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "BARNABAS_WITHOUT_PANDAS"} | given
    done = subprocess.run([sys.executable, "-c", _PANDAS], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines() == [first, "True True"]
