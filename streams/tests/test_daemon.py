"""The process that Spark's workers are copies of."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

import pyspark

from barnabas.streams.query.session import WORKERS_PATH

_LOADED = """
import os, sys
from barnabas.streams.daemon import keep_shared, load_for_records
load_for_records()
keep_shared()
print(*(name for name in ("pyarrow", "barnabas.streams.windows.sink") if name in sys.modules), flush=True)
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
import pyarrow as pa, pyarrow.compute as pc
print(pc.sum(pa.table({"a": list(range(100_000))}).sort_by("a").column("a")))
"""


def test_it_has_loaded_what_workers_need_and_they_work() -> None:
    done = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["pyarrow barnabas.streams.windows.sink", "4999950000"]


_PANDAS = """
import os, sys
from barnabas.streams.daemon import load_for_records
load_for_records()
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


def _started(path: list[str]) -> list[str]:
    """Where PySpark is in a worker with this path, whether another sitecustomize ran, and the path's end."""
    code = "import sys, pyspark; print(pyspark.__file__, hasattr(sys, 'other_ran'), sys.path[-1], sep='\\n')"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_workers_import_the_installed_pyspark_rather_than_that_in_its_zip_file(tmp_path: Path) -> None:
    installed = Path(pyspark.__file__).parent
    zipped = installed / "python" / "lib" / "pyspark.zip"
    if not zipped.exists():
        pytest.skip("this PySpark has no zip file")
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.other_ran = True\n")
    found = _started([str(zipped), str(WORKERS_PATH), str(tmp_path)])
    assert found == [str(installed / "__init__.py"), "True", str(zipped)]
    elsewhere = tmp_path / "python" / "lib" / "pyspark.zip"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.symlink_to(zipped)
    assert _started([str(elsewhere), str(WORKERS_PATH)])[0].startswith(str(elsewhere)), "it may be another version"


_LEAN = """
import os, sys
from barnabas.streams.quick_arrow import import_arrow
import_arrow(numpy=True)
from barnabas.streams.query.catalyst import empty_frame, map_in_arrow
from barnabas.streams.query.session import start_session
def same(batches):
    yield from batches
def place(batches):
    import pyarrow, pyspark
    found = [pyspark.__file__, str("barnabas.streams.template" in sys.modules)]
    yield from (pyarrow.RecordBatch.from_pydict({"place": found}) for _ in batches)
spark = start_session("lean", "local[1]", has_functions=False)
rows = map_in_arrow(spark.range(3), same, "id bigint").collect()
print(len(rows), empty_frame(spark, "a int").count(), "pandas" in sys.modules)
places = [row.place for row in map_in_arrow(spark.range(1), place, "place string").collect()]
print("zip" in places[0], places[1])
"""


@pytest.mark.door
def test_a_driver_without_functions_of_others_has_no_pandas_and_its_workers_are_forks_of_its_template() -> None:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("there is no Java on this machine")
    done = subprocess.run([sys.executable, "-c", _LEAN], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["3 0 False", "False True"], done.stderr
