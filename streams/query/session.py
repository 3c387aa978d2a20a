"""The Spark session of the driver, and what it needs from the machine."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.client.command_config import VARIABLE
from barnabas.streams.java import JavaError, check_java, options
from barnabas.streams.query.errors import FatalError
from barnabas.wire.text import SPARK_REMEDY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Whether Spark puts variables into a text before it parses it: the environment, the JVM's properties, settings.
SUBSTITUTE = "spark.sql.variable.substitute"
#: What a text of SQL means, in every session: what is written in it, and nothing that stands elsewhere (decision 12).
TEXT_SETTINGS = {
    SUBSTITUTE: "false",  # ${env:NAME} is these characters, and never the driver's environment
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",  # a value that cannot be computed is null, and stops nothing
    "spark.sql.runSQLOnFiles": "false",  # a relation is a topic, and never a path
    "spark.sql.parser.quotedRegexColumnNames": "false",  # a name in backquotes is a name
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "false",  # 'it''s' is it's
}
#: Of each session, whatever is run in it.
SETTINGS: dict[str, bool | float | int | str | None] = {
    **TEXT_SETTINGS,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # With a limit of bytes Spark measures a batch anew for each row that it adds, which takes more than all else.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.python.daemon.module": "barnabas.streams.daemon",
    # Otherwise each column that is made asks the JVM four times, for a line of ours in errors that are about SQL.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
_LOCAL = re.compile(r"local(?:\[(\*|[1-9]\d*)(?:,\d+)?\])?")
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # spark-submit tells it to the program that it runs


def is_submitted() -> bool:
    """Whether spark-submit has started this process, with a master of its own."""
    return _SUBMITTED in os.environ


def local_threads(master: str) -> int:
    """How many tasks a master on this machine runs at once; 0 for a master of others."""
    found = _LOCAL.fullmatch(master)
    if found is None:
        return 0
    return _processors() if found[1] == "*" else int(found[1] or 1)


def _processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_session(
    name: str, master: str | None, *, driver_memory: str | None = None, java_options: str | None = None
) -> SparkSession:
    """A session for the project's own jobs. Raises FatalError where Java or PySpark is missing.

    `java_options` are for the JVM of a session that this process starts, by default those for one that runs long.
    Without `master` it is the one of spark-submit, if that has started this process, else `local[*]`.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise FatalError(f"Spark is not installed ({error.name}): {SPARK_REMEDY}") from None
    try:
        check_java()
    except JavaError as error:
        raise FatalError(str(error)) from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName(name)
        .config(map=SETTINGS)
        # Nothing makes tables. Spark would make the folder for them where the program was started.
        .config("spark.sql.warehouse.dir", os.path.join(tempfile.gettempdir(), f"spark-warehouse-{os.getpid()}"))
    )
    if master is None and not is_submitted():
        master = "local[*]"
    if master is not None:
        builder = builder.master(master)
    if master is not None and master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    if not is_submitted():
        builder = builder.config("spark.driver.extraJavaOptions", java_options or options())
    if VARIABLE in os.environ:  # tasks on other machines are clients of the broker, too
        builder = builder.config(f"spark.executorEnv.{VARIABLE}", os.environ[VARIABLE])
    if driver_memory:
        builder = builder.config("spark.driver.memory", driver_memory)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise FatalError(f"Spark does not start: {str(error).splitlines()[0]}") from error


def run_init(spark: SparkSession, path: str) -> None:
    """Run `init(spark)` of a Python file, which may register functions. Raises FatalError."""
    try:
        names: dict[str, object] = {"__name__": "barnabas_init", "__file__": path}
        exec(compile(Path(path).read_text(), path, "exec"), names)
        init = names.get("init")
        if not callable(init):
            raise FatalError(f"{path} has no function init(spark)")
        init(spark)
    except FatalError:
        raise
    except Exception as error:
        raise FatalError(f"{path}: {type(error).__name__}: {error}") from error
