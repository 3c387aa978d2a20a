"""The analysis of each query: made here if the query is simple, by Spark if not, and only once in either case."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from barnabas.streams.query import plain
from barnabas.streams.query.analysis import source_of
from barnabas.streams.query.catalyst import has_gateway, jvm_has_ended
from barnabas.streams.query.errors import FatalError, NoSparkError, QueryError, StartingError, reason_of
from barnabas.streams.query.facts import Facts
from barnabas.streams.query.job import Job
from barnabas.streams.query.lazy_spark import LazySpark
from barnabas.wire.queries.plan import Values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
#: A SELECT, its source, and the form of the source's values.
Analysis = tuple[str, str, Values]


class Analyses:
    """The facts of all requested queries."""

    def __init__(self, spark: LazySpark) -> None:
        self._spark = spark
        self._facts: dict[Analysis, Facts] = {}

    def source_of(self, query: str) -> str:
        """The topic that a query reads. Raises QueryError, and like `by_spark`."""
        asked = plain.parse(query)
        return asked.source if asked is not None else self.by_spark(source_of, query)

    def facts(self, query: str, source: str, values: Values) -> Facts:
        """The facts about a query. Raises QueryError for an invalid one, and like `by_spark`."""
        key = (query, source, values)
        if key not in self._facts:
            self._facts[key] = plain.facts(*key) or self.by_spark(Job.check, *key)
        return self._facts[key]

    def keep(self, wanted: Collection[Analysis]) -> None:
        """Forget all others."""
        self._facts = {key: found for key, found in self._facts.items() if key in wanted}

    def by_spark(self, ask: Callable[..., T], *arguments: object) -> T:
        """Spark's answer about a query. No query ends the driver as long as its JVM lives.

        Raises QueryError; StartingError while Spark starts, which this call begins if needed; and NoSparkError if it
        does not start.
        """
        spark = self.spark()
        try:
            return ask(spark, *arguments)
        except QueryError:
            raise
        except Exception as error:
            self.check_jvm()
            raise QueryError(f"Spark cannot take this query: {reason_of(error)}") from None

    def spark(self) -> SparkSession:
        """The session, without waiting. Raises StartingError or NoSparkError if there is none."""
        self._spark.want()
        if self._spark.is_up:
            return self._spark.get()
        if self._spark.why is not None:
            raise NoSparkError(self._spark.why)
        raise StartingError

    def check_jvm(self) -> None:
        """Raises FatalError if Spark's JVM has ended, even during its start. A new driver then starts with another."""
        if self._spark.why is not None and has_gateway():
            raise FatalError(self._spark.why)
        if self._spark.is_up and jvm_has_ended(self._spark.get()):
            raise FatalError(
                "Spark's JVM has ended: if it was out of memory, raise barnabas.streams.driver.memory (--driver-memory)"
            )
