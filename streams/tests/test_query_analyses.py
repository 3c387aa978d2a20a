"""Questions to Spark while it starts, if it does not start, and after its JVM is gone."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.query import analyses as analyses_module
from barnabas.streams.query.analyses import Analyses
from barnabas.streams.query.errors import FatalError, NoSparkError, StartingError
from barnabas.streams.query.lazy_spark import LazySpark
from barnabas.wire.queries.plan import Values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = Values(format="json", schema="a BIGINT")


def refused() -> SparkSession:
    raise FatalError("Spark does not start: [Errno 111] Connection refused")


def failed() -> LazySpark:
    spark = LazySpark(refused)
    with pytest.raises(FatalError):
        spark.get()
    return spark


def test_simple_queries_are_understood_while_spark_starts_and_others_start_it() -> None:
    go = threading.Event()

    def start() -> SparkSession:
        go.wait()
        return refused()

    spark = LazySpark(start)
    found = Analyses(spark)
    assert found.source_of("SELECT a FROM s") == "s"
    assert found.facts("SELECT a FROM s", "s", VALUES).simple is not None
    assert not spark.is_starting
    with pytest.raises(StartingError):
        found.source_of("SELECT a + 1 AS b FROM s")
    assert spark.is_starting
    go.set()


def test_where_spark_does_not_start_it_is_told_and_a_driver_that_never_had_a_jvm_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(analyses_module, "has_gateway", lambda: False)
    found = Analyses(failed())
    with pytest.raises(NoSparkError, match="Connection refused"):
        found.facts("SELECT a + 1 AS b FROM s", "s", VALUES)
    found.check_jvm()


def test_a_jvm_that_ended_as_it_started_ends_the_driver_as_this_process_gets_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(analyses_module, "has_gateway", lambda: True)
    with pytest.raises(FatalError, match="Connection refused"):
        Analyses(failed()).check_jvm()
