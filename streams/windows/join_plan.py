"""A stream's source with the other topic of its JOIN, as a column under the other topic's name in the text.

    table       the source has the rows (others.py)
    two streams
        rows of both topics -> event time and watermark -> those of one topic and those of the other
                            -> Spark's join of streams, by keys and times -> a row for each pair

Both topics share one watermark, set by the latest record of either: a quiet topic does not hold up the other one. Spark
keeps a record until the watermark has passed its time plus WITHIN, and reads each batch twice, once for each side. A
pair has the time of the record from the stream's own topic.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from barnabas.streams.query.errors import QueryError
from barnabas.streams.source.names import CORRUPT
from barnabas.streams.windows.key_texts import key_text
from barnabas.streams.windows.others import OTHER
from barnabas.streams.windows.stages import quoted
from barnabas.streams.windows.watched import CLOSE, TIME, Looked, is_kept, watched
from barnabas.wire.streams.clauses import Clauses
from barnabas.wire.streams.joins import Join
from barnabas.wire.streams.tokens import problem

_TABLE_KEYS = ("string", "binary", "tinyint", "smallint", "int", "bigint")
_MINE, _THEIRS, _THEIR_TIME = "__is_mine", "__is_theirs", "__their_time"


def with_other(frame: DataFrame, clauses: Clauses) -> DataFrame:
    """The source's rows joined with the other topic's; for two streams the pairs, with their event time as `TIME`.

    Raises QueryError.
    """
    join = clauses.join
    if join is None:
        return frame
    return _Joiner(frame, clauses, join).joined()


class _Joiner:
    def __init__(self, frame: DataFrame, clauses: Clauses, join: Join) -> None:
        self._frame, self._clauses, self._join = frame, clauses, join
        other = frame.schema[OTHER].dataType
        assert isinstance(other, StructType)
        self._other = other
        self._own = StructType([field for field in frame.schema.fields if field.name not in (CLOSE, OTHER)])

    def joined(self) -> DataFrame:
        join = self._join
        if join.name.lower() in map(str.lower, self._frame.columns):
            raise self._wrong(f"{join.name} is a column of {self._clauses.source}: give the other topic another name")
        if not join.is_table:
            return self._pairs()
        _, kind = self._mine(join.keys[0][0])
        if kind not in _TABLE_KEYS:
            raise self._wrong(
                f"a table's keys are texts, and {join.keys[0][0]} is a {kind}: compare a text or a number"
            )
        return self._frame.withColumnRenamed(OTHER, join.name)

    def _pairs(self) -> DataFrame:
        join, is_mine = self._join, F.col(OTHER).isNull()
        own, theirs = self._keys(join.name)
        (time, _), (other_time, kind) = self._mine(self._clauses.time), self._theirs(self._clauses.time)
        if kind != "timestamp":
            raise self._wrong(f"the event time {join.name}.{self._clauses.time} is a {kind}: it must be a TIMESTAMP")
        malformed = F.col(CORRUPT).isNotNull() if CORRUPT in self._own.names else F.lit(False)
        other_malformed = F.col(OTHER)[CORRUPT].isNotNull() if CORRUPT in self._other.names else F.lit(False)
        looked = Looked(
            F.when(is_mine, time).otherwise(other_time),
            F.when(is_mine, F.col("_timestamp")).otherwise(F.col(OTHER)["_timestamp"]),
            F.when(is_mine, malformed).otherwise(other_malformed),
        )
        row = F.struct(
            is_mine.alias(_MINE), *(F.col(quoted(name)) for name in self._own.names), F.col(OTHER).alias(join.name)
        )
        rows = watched(self._frame, looked, self._clauses, F.array(F.when(is_kept(looked, self._clauses), row)))
        left = rows.where(F.col(_MINE)).select(
            TIME, *(F.col(quoted(name)) for name in self._own.names), *(k.alias(f"__k{n}") for n, k in enumerate(own))
        )
        right = rows.where(~F.col(_MINE)).select(
            F.col(TIME).alias(_THEIR_TIME),
            F.col(quoted(join.name)),
            *(k.alias(f"__o{n}") for n, k in enumerate(theirs)),
        )
        within = F.expr(f"INTERVAL {join.within_ms} MILLISECONDS")
        met = (F.col(_THEIR_TIME) >= F.col(TIME) - within) & (F.col(_THEIR_TIME) <= F.col(TIME) + within)
        for number in range(len(own)):
            met = (F.col(f"__k{number}") == F.col(f"__o{number}")) & met
        found = left.join(right, met, "left" if join.is_left else "inner")
        return found.select(TIME, *(F.col(quoted(name)) for name in self._own.names), F.col(quoted(join.name)))

    def _keys(self, name: str) -> tuple[list[Column], list[Column]]:
        """The columns of both topics to compare, as texts; those of the other topic are in the column `name`."""
        own, other = [], []
        for one, two in self._join.keys:
            (mine, kind), (theirs, their_kind) = self._mine(one), self._theirs(two, name)
            if kind != their_kind:
                raise self._wrong(
                    f"{one} is a {kind}, and {self._join.name}.{two} a {their_kind}: they are not compared"
                )
            own.append(key_text(mine, kind))
            other.append(key_text(theirs, kind))
        return own, other

    def _mine(self, name: str) -> tuple[Column, str]:
        """A column of the stream's own topic, and its type."""
        field = self._field(self._own, name, self._clauses.source)
        return F.col(quoted(field[0])), field[1]

    def _theirs(self, name: str, column: str = OTHER) -> tuple[Column, str]:
        """A column of the other topic, and its type."""
        field = self._field(self._other, name, self._join.source)
        return F.col(quoted(column))[field[0]], field[1]

    def _field(self, columns: StructType, name: str, topic: str) -> tuple[str, str]:
        for field in columns:
            if field.name.lower() == name.lower() and field.name != CORRUPT and not field.name.startswith("__"):
                return field.name, field.dataType.simpleString()
        shown = [known for known in columns.names if known != CORRUPT and not known.startswith("__")]
        raise self._wrong(f"there is no column {name}: a record of {topic} has {', '.join(shown)}")

    def _wrong(self, what: str) -> QueryError:
        return QueryError(str(problem(self._clauses.text, self._join.at, what)))
