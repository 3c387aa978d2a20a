"""Spark's own plans and expressions, reached through Py4J.

PySpark's public API does not give access to them, so this uses private attributes
(docs/decisions/0020-private-doors.md), which are named only here. Another version of Spark may lack such an attribute,
class or method. That raises one of `SHUT` and fails the query that needs it, never the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from barnabas.streams.query.session import SUBSTITUTE

#: The errors for an attribute, class (which Py4J takes for a package) or method that does not exist.
SHUT = (AttributeError, TypeError, Py4JError)


def jvm_of(spark: SparkSession) -> Any:
    """Access to the JVM's classes."""
    return spark._jvm


def session_state(spark: SparkSession) -> Any:
    """The parser, analyser and catalog of a session."""
    session: Any = spark._jsparkSession
    return session.sessionState()


def parsed(spark: SparkSession, text: str) -> Any:
    """The tree that Spark's parser makes from a text. Nothing runs, and no variables are substituted.

    The parser takes its settings from the thread, not from its session. Even if they were changed in this thread, it
    substitutes no variables in a client's text.
    """
    settings = getattr(jvm_of(spark), "org.apache.spark.sql.internal.SQLConf").get()
    if settings.variableSubstituteEnabled():
        settings.setConfString(SUBSTITUTE, "false")
    return session_state(spark).sqlParser().parsePlan(text)


def is_collated(jvm: Any, kind: Any) -> bool:
    """Whether a type contains texts that are not compared by their bytes."""
    return bool(getattr(jvm, "org.apache.spark.sql.util.SchemaUtils").hasNonUTF8BinaryCollation(kind))


def empty_frame(spark: SparkSession, schema: StructType | str) -> DataFrame:
    """A frame without rows. PySpark's `createDataFrame` would import pandas, which takes 45 MB."""
    try:
        jvm, session = jvm_of(spark), cast(Any, spark._jsparkSession)
        types = getattr(jvm, "org.apache.spark.sql.types.DataType")
        kind = types.fromDDL(schema) if isinstance(schema, str) else types.fromJson(schema.json())
        return DataFrame(session.createDataFrame(jvm.java.util.ArrayList(), kind), spark)
    except SHUT:
        return spark.createDataFrame([], schema)


def map_in_arrow(frame: DataFrame, function: Callable[..., Any], schema: StructType | str) -> DataFrame:
    """The frame that a function from Arrow batches to Arrow batches makes of this one.

    It is PySpark's `mapInArrow`, which would import pandas.
    """
    try:
        made = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
        given = cast(Any, made(*(frame[name] for name in frame.columns)))
        return DataFrame(frame._jdf.mapInArrow(given._jc, False, None), frame.sparkSession)
    except SHUT:
        return frame.mapInArrow(function, schema)


def analysed_plan(frame: DataFrame) -> Any:
    """A frame's plan with resolved names."""
    return frame._jdf.queryExecution().analyzed()


def optimised_plan(frame: DataFrame) -> Any:
    """The plan that Spark would run for a frame."""
    return frame._jdf.queryExecution().optimizedPlan()


def spark_plan(frame: DataFrame) -> Any:
    """Spark's physical plan for a frame, before it is divided into stages and compiled."""
    return frame._jdf.queryExecution().sparkPlan()


def projected(frame: DataFrame) -> list[Any]:
    """The named expressions of a frame that is a projection."""
    return list(seq(analysed_plan(frame).projectList()))


def column(jvm: Any, expression: Any) -> Column:
    """A Spark expression as a PySpark column."""
    # by its full name, because each part of it would cost another call to the JVM
    return Column(getattr(jvm, "org.apache.spark.sql.classic.ExpressionUtils").column(expression))


def companion(package: Any, name: str) -> Any:
    """The Scala object with this name."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def jvm_process(spark: SparkSession) -> Any:
    """The JVM's process, a `subprocess.Popen`; None if another program started it, or Spark does not tell."""
    return getattr(getattr(spark.sparkContext, "_gateway", None), "proc", None)


def jvm_has_ended(spark: SparkSession) -> bool:
    """Whether the JVM is gone: its process has ended or, if that is unknown, it no longer answers."""
    process = jvm_process(spark)
    if process is not None:
        return process.poll() is not None
    try:
        spark.sparkContext.statusTracker().getActiveJobsIds()
    except (OSError, Py4JNetworkError):
        return True
    return False


def has_gateway() -> bool:
    """Whether this process has, or had, a JVM. PySpark makes no second one, even if the first has ended."""
    return getattr(SparkContext, "_gateway", None) is not None


def status_tracker(spark: SparkSession) -> Any:
    """Spark's information on jobs and stages."""
    context: Any = spark.sparkContext
    return context._jsc.sc().statusTracker()


def nodes(tree: Any) -> Iterator[Any]:
    """The nodes of a Catalyst tree, from its root on."""
    yield tree
    for child in seq(tree.children()):
        yield from nodes(child)


def seq(scala: Any) -> Iterator[Any]:
    """The elements of a Scala collection."""
    found = scala.iterator()
    for _ in range(scala.size()):  # each call to the JVM takes time
        yield found.next()


def kind_of(node: Any) -> str:
    """The class name of a plan or an expression, without its package."""
    return str(node.getClass().getName()).rpartition(".")[2]
