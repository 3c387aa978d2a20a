"""One Spark session for all tests that need one; they are skipped if Spark cannot run."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from barnabas.streams import register
from barnabas.streams.java import options
from barnabas.streams.query.session import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MORE_SETTINGS: dict[str, bool | float | int | str | None] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": options(brief=True),
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed: make setup-all")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("there is no Java on this machine")
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"}
    builder = sql.SparkSession.builder.master("local[2]").appName("barnabas tests")
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    session = builder.config(map=SETTINGS | MORE_SETTINGS).config("spark.sql.warehouse.dir", warehouse).getOrCreate()
    register(session)
    yield session
    session.stop()
