"""A newcomer's first query: the README's block, with and without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.wire.text import SPARK_REMEDY
from compat_tests.broker_process import Barnabas
from compat_tests.cli.test_cli import run
from compat_tests.cli.test_newcomer import on_terminal
from compat_tests.docs.blocks import blocks
from compat_tests.query_topics.conftest import SETTINGS
from compat_tests.query_topics.processes import processes
from compat_tests.tools import ROOT, missing


def sql_block() -> str:
    """The first block of SQL in the README, unchanged."""
    (text,) = [each.text for each in blocks() if each.text.startswith("make setup-all\nbarnabas sql")]
    return text


def typed(broker: Barnabas, lines: str) -> subprocess.CompletedProcess[str]:
    """Type lines into a shell whose `barnabas` connects to this broker."""
    function = f'barnabas() {{ word=$1; shift; "{sys.executable}" -m barnabas $word -b {broker.address} "$@"; }}\n'
    return subprocess.run(
        ["/bin/sh", "-ec", function + lines],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=broker.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.long
def test_the_readmes_block_begins_with_the_installation_and_does_what_it_says(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
    if reason := missing("java"):
        pytest.skip(reason)
    first, lines = sql_block().split("\n", 1)
    assert first == "make setup-all"
    with Barnabas(tmp_path, SETTINGS) as broker:
        done = typed(broker, lines)
        assert done.returncode == 0, done.stderr
        assert '{"device":"a","temp":95.5}' in done.stdout
        log = broker.log_file.read_text()
        assert "starting the driver of queries and streams ..." in log
        assert "streams.spark" not in log  # no command here needs it
        assert broker.stop() == 0


def test_a_terminal_is_told_that_the_driver_starts(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
    if reason := missing("java"):
        pytest.skip(reason)
    with Barnabas(tmp_path, SETTINGS) as broker:
        at = ("-b", broker.address)
        run("topics", "create", "sensors", *at)
        # A query that only Spark can parse: a simpler one may be answered before any progress is shown.
        shown = on_terminal("sql", "CREATE TOPIC hot AS SELECT sha2(_value, 256) AS h FROM sensors", *at).decode()
        assert shown.index("starting the driver of queries and streams ...") < shown.index("Created topic hot")
        assert broker.stop() == 0


class WithoutSpark(Barnabas):
    """An environment as after `make run`."""

    def environment(self) -> dict[str, str]:
        (self.folder / "sitecustomize.py").write_text("import sys\nsys.modules['pyspark'] = None\n")
        found = super().environment()
        return {**found, "PYTHONPATH": os.pathsep.join((str(self.folder), found["PYTHONPATH"]))}


def test_without_spark_the_block_says_what_to_do_and_leaves_nothing_behind(tmp_path: Path) -> None:
    sensors, values, hot, consume = sql_block().splitlines()[1:]
    with WithoutSpark(tmp_path) as broker:
        assert typed(broker, f"{sensors}\n{values}\n").returncode == 0
        told = typed(broker, hot)
        assert (told.returncode, told.stdout) == (1, "")
        assert told.stderr == (
            "barnabas: Topic hot: INVALID_REQUEST (Query topics need Spark, and pyspark is not installed: "
            f"{SPARK_REMEDY})\n"
        )
        told = typed(broker, consume)
        assert told.returncode == 1
        assert "Topic hot: UNKNOWN_TOPIC_OR_PARTITION (it does not exist" in told.stderr
        assert run("topics", "list", "-b", broker.address) == "sensors\n"
        assert not processes(broker, "all")
        log = broker.log_file.read_text()
        assert log.count("streams.driver.not_started") == 1
        assert "streams.driver.starting" not in log
        assert broker.stop() == 0
