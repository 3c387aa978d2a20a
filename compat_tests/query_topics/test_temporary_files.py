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

    def create(self, query: str) -> None:
        """Create a source and a query topic over it, which starts a driver."""
        run("sql", "CREATE TOPIC sensors (device STRING, temp DOUBLE)", "-b", self.address)
        run("sql", f"CREATE TOPIC hot AS {query} FROM sensors", "-b", self.address)

    def folders(self) -> set[Path]:
        """What is there, whoever made it."""
        return set(self.temporary.iterdir())

    def with_spark(self) -> set[Path]:
        """The folders of drivers whose JVM has made its own folders."""
        return {found for found in self.folders() if any(found.glob("barnabas-spark-*/spark-*"))}


@pytest.mark.long
def test_a_driver_that_ends_leaves_no_temporary_files(tmp_path: Path) -> None:
    with WithTemporaryFolder(tmp_path, SETTINGS) as broker:
        broker.create("SELECT sha2(device, 256) AS h")
        first = broker.folders()
        assert len(first) == 1
        assert broker.with_spark() == first
        assert kill(broker, "driver")
        until(lambda: broker.folders() - first, "another driver")
        assert not broker.folders() & first
        run("sql", "INSERT INTO sensors VALUES ('a', 1)", "-b", broker.address)
        until(broker.with_spark, "its Spark")
        assert len(broker.folders()) == 1
        broker.stop()
        assert broker.folders() == set()
        broker.start()
        until(broker.folders, "a driver, which is still starting")
        broker.stop()
        assert broker.folders() == set()


@pytest.mark.long
def test_the_files_of_a_driver_whose_broker_was_killed_are_removed_by_the_next_one(tmp_path: Path) -> None:
    with WithTemporaryFolder(tmp_path, SETTINGS) as broker:
        broker.create("SELECT device")
        left = broker.folders()
        assert len(left) == 1
        broker.kill()
        assert broker.folders() == left
        broker.start()
        until(lambda: broker.folders() and not broker.folders() & left, "another driver")
        broker.stop()
        assert broker.folders() == set()
