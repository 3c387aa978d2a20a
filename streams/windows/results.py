"""Writes the results of a batch: by one task, in the order of their windows.

Spark closes the windows of a batch in the order of its state, not in the order of time. But in a compacted topic of
results the latest window of a key must come last, and a stream over the results must not get the earlier ones late.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from barnabas.streams.windows.expired import Expired

ResultsOf = Callable[[DataFrame, int], DataFrame]
_PLACE = "__place"


def batch_results(results_of: Callable[[DataFrame], DataFrame], expired: Expired | None, tasks: int) -> ResultsOf:
    """The results of a batch's rows, made by `tasks` tasks, together with those of recalculated windows.

    They are in one partition, ordered by the time of their records, and for equal times in the order of their creation.
    """

    def found(rows: DataFrame, batch: int) -> DataFrame:
        made = results_of(rows)
        again = expired.results(rows.sparkSession, batch) if expired is not None else None
        if again is not None:
            made = made.union(again)
        made = made.repartition(1) if tasks > 1 else made.coalesce(1)
        placed = made.withColumn(_PLACE, F.monotonically_increasing_id())
        return placed.sortWithinPartitions("timestamp", _PLACE).drop(_PLACE)

    return found
