"""A driver and its JVM leave no temporary files behind, however they end."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.broker_process import Barnabas
from compat_tests.cli.test_cli import run
from compat_tests.query_topics.conftest import SETTINGS
from compat_tests.query_topics.processes import kill
from compat_tests.tools import missing
from compat_tests.waiting import until

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
if reason := missing("java"):
    pytest.skip(reason, allow_module_level=True)


class WithTemporaryFolder(Barnabas):
    """Its temporary files, and those of its driver, are in a folder of their own, with a space in the name."""

    @property
    def temporary(self) -> Path:
        return self.folder / "temporary files"

    def environment(self) -> dict[str, str]:
        self.temporary.mkdir(exist_ok=True)
        return {**super().environment(), "TMPDIR": str(self.temporary)}


def unpacked(broker: WithTemporaryFolder) -> list[Path]:
    """The folders into which a JVM has unpacked its libraries or made its own folders."""
    return [found for found in broker.temporary.glob("barnabas-spark-*") if any(found.iterdir())]


@pytest.mark.long
def test_a_driver_that_ends_leaves_no_temporary_files(tmp_path: Path) -> None:
    with WithTemporaryFolder(tmp_path, SETTINGS) as broker:
        at = ("-b", broker.address)
        run("sql", "CREATE TOPIC sensors (device STRING, temp DOUBLE)", *at)
        run("sql", "CREATE TOPIC hot AS SELECT sha2(device, 256) AS h FROM sensors", *at)
        (first,) = unpacked(broker)
        assert list(broker.temporary.iterdir()) == [first], "Spark writes nothing elsewhere"
        assert kill(broker, "driver")
        run("sql", "INSERT INTO sensors VALUES ('a', 1)", *at)
        until(lambda: any(found != first for found in unpacked(broker)), "the Spark of another driver")
        assert not first.exists()
        assert len(list(broker.temporary.iterdir())) == 1
        broker.stop()
    assert list(broker.temporary.iterdir()) == []
