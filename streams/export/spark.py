"""Spark for an export: checks that it can run, and starts one task for each partition."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from functools import partial

from barnabas.client.command_config import VARIABLE
from barnabas.streams.captured_output import CapturedOutput, in_one_line
from barnabas.streams.export.partition import ExportPlan, Outcome, Work, export_partition
from barnabas.streams.java import JavaError, check_java, options
from barnabas.streams.wal import WalError
from barnabas.wire.text import SPARK_REMEDY

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def check() -> None:
    """Raises WalError if Spark is missing, or a Java that is new enough for it."""
    if importlib.util.find_spec("pyspark") is None:
        raise WalError(f"the export needs pyspark: {SPARK_REMEDY}")
    try:
        check_java()
    except JavaError as error:
        raise WalError(str(error)) from None


def run(master: str, plan: ExportPlan, works: Sequence[Work], captured: CapturedOutput) -> list[Outcome]:
    """The outcome of every task. Raises WalError if Spark does not start or a task is lost."""
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException, PySparkRuntimeError

    settings = _SETTINGS | {"spark.driver.extraJavaOptions": options(brief=True)}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers use the first python3 in the path
    if VARIABLE in os.environ:
        settings |= {f"spark.executorEnv.{VARIABLE}": os.environ[VARIABLE]}
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= _LOCAL
    conf = SparkConf().setMaster(master).setAppName("barnabas export").setAll(list(settings.items()))
    try:
        with SparkContext(conf=conf) as context:
            return context.parallelize(works, len(works)).map(partial(export_partition, plan)).collect()
    except PySparkRuntimeError as error:
        raise WalError(f"Spark (master {master}) does not start: {captured.why(error)}") from None
    except (Py4JError, PySparkException) as error:
        raise WalError(
            f"Spark (master {master}) did not come to its end: {in_one_line(error)}; "
            "what is finished stays, start the export again to go on"
        ) from None
