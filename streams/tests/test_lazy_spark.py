"""A session that starts on the first request: once, and again only after a while if the start has failed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import pytest

from barnabas.streams.query import lazy_spark
from barnabas.streams.query.errors import FatalError
from barnabas.streams.query.lazy_spark import LazySpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SESSION = cast("SparkSession", object())


def test_it_starts_once_and_all_who_ask_get_the_same() -> None:
    starts, go = [], threading.Event()

    def start() -> SparkSession:
        starts.append(1)
        go.wait()
        return SESSION

    spark = LazySpark(start)
    assert (spark.is_up, starts) == (False, [])
    spark.want()
    spark.want()
    assert not spark.is_up
    got: list[object] = []
    asking = [threading.Thread(target=lambda: got.append(spark.get())) for _ in range(4)]
    for thread in asking:
        thread.start()
    go.set()
    for thread in asking:
        thread.join()
    assert got == [SESSION] * 4
    assert (spark.is_up, len(starts)) == (True, 1)


def test_who_asks_for_one_that_does_not_start_hears_why(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []

    def start() -> SparkSession:
        starts.append(1)
        if len(starts) == 1:
            raise FatalError("Spark needs Java 17 or newer, and there is none on the PATH")
        return SESSION

    spark = LazySpark(start)
    for _ in range(2):  # the second time, at once
        with pytest.raises(FatalError, match="there is none on the PATH"):
            spark.get()
    assert (len(starts), spark.is_up) == (1, False)
    monkeypatch.setattr(lazy_spark, "AGAIN_SECONDS", 0.0)
    assert spark.get() is SESSION
    assert (len(starts), spark.why) == (2, None)
