"""Points as records: one topic per measurement, the series as key, tags and fields as columns of a JSON object."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from barnabas.connect.binlog.naming import NameClashError, Topics
from barnabas.connect.influx.lines import BadPointError, Point
from barnabas.wire.batch import Record

#: Columns of every value.
TIME, MEASUREMENT = "time", "measurement"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENCODER = msgspec.json.Encoder()


class Naming:
    """Where points go: to PREFIX.MEASUREMENT, or DATABASE.MEASUREMENT without a prefix, or all to one topic."""

    def __init__(self, *, prefix: str, topic: str, most: int) -> None:
        """`most` limits the number of topics, because the senders of points choose their names."""
        self._topic, self._most = topic, most
        self._topics = Topics("table", prefix)
        self._seen: set[str] = set()

    def of(self, database: str, measurement: str) -> str:
        """The topic of a measurement. Raises BadPointError if there are too many."""
        if self._topic:
            return self._topic
        try:
            found = self._topics.of(database, measurement)
        except NameClashError as error:
            raise BadPointError(str(error)) from None
        if found not in self._seen:
            if len(self._seen) >= self._most:
                raise BadPointError(f"there are {self._most} topics already: --max-topics bounds them")
            self._seen.add(found)
        return found

    @property
    def has_one(self) -> bool:
        """Whether all points go to one topic. Their values then contain the measurement."""
        return bool(self._topic)


def record_of(point: Point, now_ns: int, *, with_measurement: bool) -> Record:
    """A point's record. The value's time is in microseconds, like Spark's. Raises BadPointError."""
    at = now_ns if point.time is None else point.time
    columns: dict[str, object] = {TIME: _text(at)}
    if with_measurement:
        columns[MEASUREMENT] = point.measurement
    for name in columns:
        if name in point.tags or name in point.fields:
            raise BadPointError(f"{name} is a column of every value: rename the tag or field")
    columns |= {**point.tags, **point.fields}
    series = ",".join([point.measurement, *(f"{name}={point.tags[name]}" for name in sorted(point.tags))])
    return Record(series.encode(), _ENCODER.encode(columns), max(at // 1_000_000, 0), ())


def _text(nanoseconds: int) -> str:
    return (_EPOCH + timedelta(microseconds=nanoseconds // 1000)).isoformat(timespec="microseconds")[:-6] + "Z"
