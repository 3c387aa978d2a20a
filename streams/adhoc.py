"""SELECTs from the terminal: any Spark SQL over the topics of a broker on this machine."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.streams import register
from barnabas.streams.captured_output import CapturedOutput, in_one_line, spark_output_captured
from barnabas.streams.java import options
from barnabas.streams.progress import shown
from barnabas.streams.query.catalyst import analysed_plan
from barnabas.streams.query.definitions import Source, read_source
from barnabas.streams.query.errors import FatalError, QueryError
from barnabas.streams.query.functions import no_function
from barnabas.streams.query.literals import Literals
from barnabas.streams.query.parts import PARTS
from barnabas.streams.query.reading import reader_options
from barnabas.streams.query.session import end_session, jvm_has_ended, running_tasks, start_session
from barnabas.streams.query.source_rows import arrow_schema, value_columns
from barnabas.streams.schema import infer_json
from barnabas.streams.source.options import parse
from barnabas.streams.source.rows import rows_of
from barnabas.streams.wal import LogDir, WalError, plan
from barnabas.streams.wal.local_broker import log_dir_of
from barnabas.wire.streams.tokens import problem

#: Topics up to this size, on disk and uncompressed, are read here. At four times as much, both ways take equally long.
SMALL_BYTES = 16 << 20
#: How long the tasks of an interrupted statement may go on before Spark is ended, and how often they are counted.
_TASKS_SECONDS, _LOOK_SECONDS = 1.0, 0.05
_PLACE = re.compile(r"\(line (\d+), pos (\d+)\)")
_NO_SUCH_TABLE = "TABLE_OR_VIEW_NOT_FOUND"


class AdHoc:
    """Spark for one user's SELECTs: it starts with the first one, and stays for those that follow."""

    def __init__(self, server: str, data_dir: str | None, master: str) -> None:
        self._server, self._data_dir, self._master = server, data_dir, master
        self._spark: SparkSession | None = None
        self._views: set[str] = set()
        #: Tasks of an interrupted statement may still run.
        self._may_go_on = False

    def select(self, query: str, limit: int | None) -> pa.Table:
        """At most `limit` rows of a query, or all. Progress is shown on stderr.

        The broker reports its data directory, unless `data_dir` is given. Raises ClientError, in one line.
        """
        steps = _Steps()
        try:
            with ExitStack() as stack:
                cluster = stack.enter_context(Cluster(self._server))
                log_dir = log_dir_of(cluster, self._server, self._data_dir)
                captured = stack.enter_context(spark_output_captured(sys.stderr))
                stack.enter_context(shown(captured.terminal, steps.told))
                spark = self._started(captured, steps)
                steps.enter("looking at the query")
                found = self._analysed(spark, cluster, log_dir, query)
                Literals(spark).check_plan(analysed_plan(found))
                steps.enter("planning", spark)
                return (found if limit is None else found.limit(limit)).toArrow()
        except (FatalError, QueryError, WalError) as error:
            raise ClientError(str(error)) from None
        except KeyboardInterrupt:
            self._end_jobs()
            raise
        except (PySparkException, Py4JError, ConnectionError) as error:
            if _was_interrupted(error):
                self._end_jobs()
                raise KeyboardInterrupt from None
            if isinstance(error, PySparkException):
                raise ClientError(_in_our_words(error, query)) from None
            if not isinstance(error, Py4JNetworkError | ConnectionError) and not jvm_has_ended():
                raise ClientError(in_one_line(error)) from None
            self._end_spark()
            raise ClientError("Spark's JVM has ended: run the statement again, which starts another") from None

    def _end_spark(self) -> None:
        """End Spark, unless spark-submit has started it. The next statement starts it again."""
        if self._spark is not None:
            end_session(self._spark)
        self._spark, self._may_go_on = None, False
        self._views.clear()

    def _started(self, captured: CapturedOutput, steps: _Steps) -> SparkSession:
        if self._may_go_on:
            steps.enter("waiting for the tasks of the interrupted statement")
            if not self._tasks_have_ended():
                self._end_spark()
            self._may_go_on = False
        if self._spark is None:
            steps.enter("starting Spark")
            try:
                self._spark = start_session("barnabas sql", self._master, java_options=options(brief=True))
            except FatalError as error:
                raise ClientError(f"Spark does not start: {captured.why(error.__cause__ or error)}") from None
        return self._spark

    def _end_jobs(self) -> None:
        """Cancel the jobs of an interrupted statement. A task in a tight loop does not notice that."""
        if self._spark is not None:
            self._may_go_on = True
            try:
                self._spark.sparkContext.cancelAllJobs()
            except Exception:
                self._end_spark()

    def _tasks_have_ended(self) -> bool:
        """Whether the tasks of an interrupted statement end soon. They take the cores of the next one."""
        assert self._spark is not None
        until = time.monotonic() + _TASKS_SECONDS
        try:
            while running_tasks(self._spark):
                if time.monotonic() > until:
                    return False
                time.sleep(_LOOK_SECONDS)
        except Py4JError:  # Spark has ended
            return False
        return True

    def _analysed(self, spark: SparkSession, cluster: Cluster, log_dir: LogDir, query: str) -> DataFrame:
        """The query, with a view for each topic that Spark asks for, wherever in the query it occurs."""
        for view in self._views:  # the topics' state when the views were created
            spark.catalog.dropTempView(view)
        self._views.clear()
        while True:
            try:
                return spark.sql(query)
            except AnalysisException as error:
                told = error.getMessageParameters() or {}
                topic = told.get("relationName", "").replace("`.`", ".").strip("`")
                if error.getCondition() != _NO_SUCH_TABLE or topic in self._views:
                    raise
            if f"`{topic}`" not in query and "." in topic:
                raise QueryError(f"write the topic's name in backquotes: `{topic}`")
            frame_of(spark, log_dir, read_source(cluster, topic)).createOrReplaceTempView(f"`{topic}`")
            self._views.add(topic)


def select(server: str, data_dir: str | None, master: str, query: str, limit: int | None) -> pa.Table:
    """Run one query. Raises like `AdHoc.select`."""
    return AdHoc(server, data_dir, master).select(query, limit)


def _was_interrupted(error: BaseException) -> bool:
    """Whether Spark's error concerns a job that Ctrl-C has ended."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _in_our_words(error: PySparkException, query: str) -> str:
    """A Spark error in the words of the query topics' statements, with the position of a syntax error."""
    told, condition = error.getMessageParameters() or {}, error.getCondition() or ""
    if condition == "UNRESOLVED_ROUTINE":
        return no_function(told.get("routineName", "").strip("`"))
    place = _PLACE.search(str(error))
    if condition.startswith("PARSE_") and place is not None:
        lines = query.split("\n")
        line, column = min(int(place[1]), len(lines)), int(place[2])
        at = sum(len(each) + 1 for each in lines[: line - 1]) + column
        return str(problem(query, min(at, len(query)), "Spark's SQL has something else here"))
    if condition.startswith("UNRESOLVED_COLUMN"):
        near = re.findall(r"`((?:[^`]|``)+)`", told.get("proposal", ""))
        meant = f"; did you mean {near[0]}?" if near else ""
        return f"there is no column {told.get('objectName', '')}{meant}"
    return in_one_line(error)


class _Steps:
    """A SELECT's progress for its user: a step without a measure, or the number of completed tasks of a job."""

    def __init__(self) -> None:
        self._step = "starting Spark"
        self._tasks: Any = None

    def enter(self, step: str, spark: SparkSession | None = None) -> None:
        """Begin the next step. With a session, its tasks are counted."""
        if spark is not None:
            self._tasks = spark.sparkContext.statusTracker()
        self._step = step

    def told(self) -> tuple[float | None, str]:
        """The part of the tasks that is done, if known, and a text."""
        done, all_tasks = self._counted()
        if not all_tasks:
            return None, self._step
        return done / all_tasks, f"reading, {done} of {all_tasks} tasks done"

    def _counted(self) -> tuple[int, int]:
        """The completed tasks and all tasks of the running stages."""
        if self._tasks is None:
            return 0, 0
        try:
            found = [self._tasks.getStageInfo(stage) for stage in self._tasks.getActiveStageIds()]
        except Exception:  # Spark has ended; whoever reads its answer will report why
            return 0, 0
        running = [stage for stage in found if stage is not None]
        return sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running)


def infer(server: str, data_dir: str | None, topic: str) -> str:
    """The schema (DDL) of a topic's JSON values, from a sample. Raises ClientError."""
    try:
        with Cluster(server) as cluster:
            return infer_json(log_dir_of(cluster, server, data_dir), topic)
    except WalError as error:
        raise ClientError(str(error)) from None


def frame_of(spark: SparkSession, log_dir: LogDir, source: Source) -> DataFrame:
    """A topic's records, with the columns that query topics see. Raises QueryError, WalError."""
    topic, values = source.name, value_columns(source)
    options = {"path": log_dir.path, "topic": topic}
    if values.names:
        options |= reader_options(source)
        parts = {name: kind for name, kind in PARTS.items() if name != "_value"}
        schema = StructType([*values.fields, *_columns(parts).fields])
    else:
        options["includeHeaders"] = "true"
        parts = PARTS
        schema = _columns({name[1:]: kind for name, kind in parts.items()})
    found = _small(log_dir, topic, options, schema)
    if found is None:
        register(spark)
        frame = spark.read.format("wal").options(**options).schema(schema).load()
    else:
        # Each batch becomes a task.
        tasks = spark.sparkContext.defaultParallelism
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(found.num_rows // tasks + 1))
        frame = spark.createDataFrame(found.combine_chunks(), schema)
    return frame.toDF(*values.names, *parts)


def _columns(kinds: Mapping[str, str]) -> StructType:
    return StructType.fromDDL(", ".join(f"{name} {kind}" for name, kind in kinds.items()))  # type: ignore[return-value]


def _small(log_dir: LogDir, topic: str, options: Mapping[str, str], schema: StructType) -> pa.Table | None:
    """The whole of a small topic, read here: Spark takes seconds to start the Python workers of its source."""
    splits = plan(log_dir, log_dir.ranges(log_dir.partitions(topic)))
    if sum(split.end - split.start for split in splits) > SMALL_BYTES:
        return None
    target = arrow_schema(schema)
    rows = rows_of(parse(options), target)
    batches = [pa.RecordBatch.from_pylist([], schema=target)]  # Spark accepts no table without batches
    size = 0
    for split in splits:
        for batch in rows.batches(split):
            size += batch.nbytes
            if size > SMALL_BYTES:  # it was compressed
                return None
            batches.append(batch)
    return pa.Table.from_batches(batches, schema=target)
