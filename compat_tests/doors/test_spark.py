"""Without Spark's private functions, queries are slower or refused; the driver and its broker go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.broker_process import Barnabas
from compat_tests.cli.test_cli import run
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.driver import Record
from compat_tests.query_topics.processes import processes
from compat_tests.tools import missing

pytestmark = pytest.mark.door
pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
if reason := missing("java"):
    pytest.skip(reason, allow_module_level=True)

# Imitates a later Spark without these functions. The file runs in the driver, before the driver gets any query.
SHUT = """
from barnabas.streams.query import analysis, pushdown, parse
from barnabas.streams.query.catalyst import companion

def init(spark):
    pushdown.companion = lambda package, name: companion(package, name + "V2")
    parser = parse.session_state
    def session_state(spark):
        raise AttributeError("'SparkSession' object has no attribute '_jsparkSession'")
    checked = parse.check_text
    def check_text(text):  # a query that names `moved` finds another Spark
        parse.session_state = session_state if "moved" in text else parser
        checked(text)
    parse.check_text = check_text
"""


@pytest.mark.long
def test_a_query_is_refused_in_one_line_or_runs_the_slower_way(tmp_path: Path) -> None:
    (tmp_path / "shut.py").write_text(SHUT)
    settings = {
        "barnabas.streams.master": "local[2]",
        "barnabas.streams.driver.memory": "512m",
        "barnabas.streams.init.file": str(tmp_path / "shut.py"),
    }
    with Barnabas(tmp_path, settings) as broker:
        at = ("-b", broker.address)
        run("sql", "CREATE TOPIC sensors (device STRING, temp DOUBLE)", *at)
        told = run("sql", "CREATE TOPIC no AS SELECT upper(device) AS moved FROM sensors", *at, status=1)
        assert "INVALID_CONFIG (Spark cannot take this query: " in told
        assert "has no attribute '_jsparkSession'" in told
        (driver,) = processes(broker, "driver")
        run("sql", "CREATE TOPIC hot AS SELECT upper(device) AS device FROM sensors WHERE temp > 80", *at)
        client = ConfluentDriver(broker.address)
        client.produce("sensors", [Record(b'{"device":"a","temp":95}'), Record(b'{"device":"b","temp":2}')])
        assert [record.value for record in client.consume("hot", 1)] == [b'{"device":"A"}']
        client.close()
        assert processes(broker, "driver") == [driver], "neither question has ended it"
        (told,) = [line for line in broker.log_file.read_text().splitlines() if " warning streams " in line]
        assert "queries look at every row in the JVM" in told
        assert not broker.errors()
        assert broker.stop() == 0
