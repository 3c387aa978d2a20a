"""A user's program that reads with the `wal` source, and its errors, which are one line."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.streams.java import options
from barnabas.streams.source.workers import check_workers
from barnabas.streams.tests.support import Logs
from barnabas.streams.uncaught import in_one_line
from barnabas.streams.wal import WalError
from compat_tests.tools import ROOT, missing

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
if reason := missing("java"):
    pytest.skip(reason, allow_module_level=True)

PROGRAM = f"""
import sys
from pyspark.sql import SparkSession
from barnabas.streams import register

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.extraJavaOptions", {options(brief=True)!r})
spark = builder.getOrCreate()
register(spark)
spark.read.format("wal").option("topic", sys.argv[2]).load(sys.argv[1]).select("offset").show()
"""


def said_by_program(tmp_path: Path, topic: str, **environment: str) -> tuple[int, str, list[str]]:
    """Status, output, and the error lines of the program, without Spark's own warnings at its start."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    kept = {key: value for key, value in os.environ.items() if key != "PYSPARK_PYTHON"}
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "data"), topic],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", **environment},
    )
    _, _, after = done.stderr.partition("For SparkR, use setLogLevel(newLevel).\n")
    return done.returncode, done.stdout, [line for line in after.splitlines() if " WARN " not in line]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A Python without this project and its packages."""
    venv.create(tmp_path / "bare", with_pip=False)
    return tmp_path / "bare" / "bin"


def test_another_python_that_has_all_that_is_needed_is_taken(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the project is installed and no checkout is on its path."""
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "barnabas").symlink_to(ROOT / "barnabas")
    (packages,) = bare.parent.glob("lib/python*/site-packages")
    (packages / "more.pth").write_text(f"{sysconfig.get_path('purelib')}\n{tmp_path / 'installed'}\n")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare / "python"))
    context = SimpleNamespace(master="local[1]", pythonExec=str(bare / "python"))
    spark: Any = SimpleNamespace(sparkContext=context)
    check_workers(spark)
    assert context.pythonExec == str(bare / "python")


@pytest.mark.long
def test_a_missing_topic_is_one_line_with_those_that_there_are(tmp_path: Path) -> None:
    Logs(tmp_path / "data").write([b"v"], "orders")
    status, shown, said = said_by_program(tmp_path, "order")
    assert (status, shown) == (1, "")
    assert said == [
        f"program.py: there is no topic order in {tmp_path / 'data'}: create it first, or name one of these: orders"
    ]


def test_a_wrong_python_of_the_workers_is_one_line_with_the_right_one(tmp_path: Path, bare: Path) -> None:
    python = str(bare / "python")
    status, shown, said = said_by_program(tmp_path, "orders", PYSPARK_PYTHON=python)
    assert (status, shown) == (1, "")
    assert said == [
        f"program.py: Spark's workers are to run {python}, which lacks a package that it needs (ModuleNotFoundError: "
        f"No module "
        f"named 'pyspark'): unset PYSPARK_PYTHON, or set it to {sys.executable}"
    ]


@pytest.mark.slow
def test_where_no_python_is_chosen_the_workers_run_that_of_the_program(tmp_path: Path, bare: Path) -> None:
    Logs(tmp_path / "data").write([b"v"], "orders")
    status, shown, _ = said_by_program(tmp_path, "orders", PATH=f"{bare}{os.pathsep}{os.environ['PATH']}")
    assert status == 0
    assert "|offset|" in shown


def test_errors_of_others_are_not_touched() -> None:
    assert in_one_line(ValueError("barnabas.streams.wal.errors.WalError: no")) is None
    assert in_one_line(WalError("set the option path")) == "set the option path"
