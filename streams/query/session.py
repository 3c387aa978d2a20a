"""The Spark session of the driver, and what it needs from the machine."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.client.command_config import VARIABLE
from barnabas.client.temporary import TemporaryFolder
from barnabas.streams.java import JavaError, check_java, options
from barnabas.streams.query.errors import FatalError
from barnabas.streams.quick_arrow import WITHOUT_PANDAS, import_without_pandas
from barnabas.streams.template.start import TEMPLATE, Template
from barnabas.wire.text import SPARK_REMEDY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

#: Whether Spark substitutes variables in a text before it parses it: environment, JVM properties, settings.
SUBSTITUTE = "spark.sql.variable.substitute"
#: Settings that fix the meaning of an SQL text in every session: only its own characters count (decision 12).
TEXT_SETTINGS = {
    SUBSTITUTE: "false",  # ${env:NAME} stays these characters, and is never the driver's environment
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",  # a value that cannot be computed is null, and the query continues
    "spark.sql.runSQLOnFiles": "false",  # a relation is a topic, never a path
    "spark.sql.parser.quotedRegexColumnNames": "false",  # a name in backquotes is a name
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "false",  # 'it''s' is it's
}
#: Settings of every session.
SETTINGS: dict[str, bool | float | int | str | None] = {
    **TEXT_SETTINGS,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What has run is kept for the user interface, which is off: of each batch a plan as text and some thousand objects.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.cleaner.periodicGC.interval": "10min",  # a full collection, after which the JVM gives memory back
    "spark.log.level": "ERROR",
    # With a limit in bytes, Spark measures a batch again for each added row, which takes longer than everything else.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.python.daemon.module": "barnabas.streams.daemon",
    # Otherwise each new column calls the JVM four times, for a line of our code in errors that concern SQL.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
_LOCAL = re.compile(r"local(?:\[(\*|[1-9]\d*)(?:,\d+)?\])?")
# PySpark imports it for the first call of the JVM, to know whether there is NumPy.
_IMPORTS_PANDAS = "pyspark.testing.utils"
#: Each of Spark's Python processes begins with what is there.
WORKERS_PATH = str(Path(__file__).parents[1] / "workers_path")
#: How long a JVM may take to end.
_END_SECONDS = 2.0
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # spark-submit sets it for the program that it runs


def running_tasks(spark: SparkSession) -> int:
    """How many tasks run, also those that were cancelled and go on. Spark's status tracker does not count these."""
    counts = spark.sparkContext._jsc.sc().taskScheduler().runningTasksByExecutors().valuesIterator()
    found = 0
    while counts.hasNext():
        found += counts.next()
    return found


def jvm_has_ended() -> bool:
    """Whether the JVM that this process has started has ended or is just about to. If it goes on, this takes 2 s."""
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def end_session(spark: SparkSession) -> None:
    """End Spark whatever its tasks do, so that `start_session` starts it again. Its JVM may have ended before.

    Does nothing if this process has not started the JVM.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with contextlib.suppress(Exception):  # it cannot tell the JVM
        spark.sparkContext.stop()
    with contextlib.suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


@cache
def _temporary() -> TemporaryFolder:
    """The folder for temporary files of the JVM that this process starts.

    Spark's libraries unpack native code into it (15 MB for RocksDB alone), and Spark keeps the state of streams there.
    A JVM that is killed removes nothing.
    """
    return TemporaryFolder("barnabas-spark-")


def remove_temporary_files() -> None:
    """Remove the temporary files of Spark: the process and its JVM are about to end."""
    if _temporary.cache_info().currsize:
        _temporary().remove()


_template: Template | None = None


def _start_template(*, has_functions: bool) -> Template | None:
    """The template for Spark's Python processes of this machine. The first session starts it for all."""
    global _template
    if _template is None:
        _template = Template.start(_temporary().path, os.environ["PYSPARK_PYTHON"], has_functions=has_functions)
    return _template


def template_process() -> int | None:
    """The process from which Spark's Python processes are forked; None if this one has not started it."""
    return None if _template is None else _template.pid


@contextlib.contextmanager
def _environment(**changed: str) -> Iterator[None]:
    """The environment of a JVM that starts meanwhile, and so of all its Python processes."""
    before = dict(os.environ)
    os.environ.update(changed)
    try:
        yield
    finally:
        for name in changed:
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]


def is_submitted() -> bool:
    """Whether spark-submit has started this process, with its own master."""
    return _SUBMITTED in os.environ


def local_threads(master: str) -> int:
    """How many tasks a local master runs at once; 0 for any other master."""
    found = _LOCAL.fullmatch(master)
    if found is None:
        return 0
    return _processors() if found[1] == "*" else int(found[1] or 1)


def _processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_session(
    name: str,
    master: str | None,
    *,
    driver_memory: str | None = None,
    java_options: str | None = None,
    has_functions: bool = True,
) -> SparkSession:
    """A session for the project's own jobs. Raises FatalError if Java or PySpark is missing.

    `java_options` are for the JVM of a session that this process starts; the default is for a long-running one.
    `has_functions` says whether workers may run an operator's functions.
    `master` defaults to that of spark-submit, if it has started this process, otherwise to `local[*]`.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise FatalError(f"Spark is not installed ({error.name}): {SPARK_REMEDY}") from None
    try:
        check_java()
    except JavaError as error:
        raise FatalError(str(error)) from None
    try:
        temporary = _temporary().path
    except OSError as error:
        raise FatalError(f"Spark needs a folder for temporary files: {error} (TMPDIR says where)") from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName(name)
        .config(map=SETTINGS)
        # Nothing creates tables. Otherwise Spark would create their folder in the current directory.
        .config("spark.sql.warehouse.dir", str(temporary / "warehouse"))
    )
    if master is None and not is_submitted():
        master = "local[*]"
    if master is not None:
        builder = builder.master(master)
    of_jvm = {}
    if master is not None and master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        path = os.environ.get("PYTHONPATH")
        of_jvm["PYTHONPATH"] = f"{WORKERS_PATH}{os.pathsep}{path}" if path else WORKERS_PATH
        if (template := _start_template(has_functions=has_functions)) is not None:
            of_jvm[TEMPLATE] = str(template.path)
    if not is_submitted():
        folder = f'"-Djava.io.tmpdir={temporary}"'  # Spark removes the quotation marks
        builder = builder.config("spark.driver.extraJavaOptions", f"{java_options or options()} {folder}")
    if VARIABLE in os.environ:  # tasks on other machines are clients of the broker, too
        builder = builder.config(f"spark.executorEnv.{VARIABLE}", os.environ[VARIABLE])
    if not has_functions:
        builder = builder.config(f"spark.executorEnv.{WITHOUT_PANDAS}", "1")
        with contextlib.suppress(ImportError):  # another version of Spark
            import_without_pandas(_IMPORTS_PANDAS)
    if driver_memory:
        builder = builder.config("spark.driver.memory", driver_memory)
    try:
        with _environment(**of_jvm):
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
