"""The unread part of a source: each of its records is read once, and none if there are many."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.tests.support import NOW, Logs, numbers
from barnabas.streams.wal import Planner, Split
from barnabas.streams.windows import ahead
from barnabas.streams.windows.ahead import Ahead
from barnabas.streams.windows.due import Unread
from barnabas.wire.aliases import TopicPartition


class Counted(Ahead):
    """Notes the ranges of offsets that it reads."""

    def __init__(self, logs: Logs) -> None:
        super().__init__(Planner(logs.log_dir(), fail_on_data_loss=False))
        self.logs, self.looked = logs, list[tuple[int, int]]()

    def _newest(self, split: Split) -> int | None:
        self.looked.append((split.lo, split.hi))
        return super()._newest(split)

    def now(self, start: int) -> Unread:
        key: TopicPartition = ("t", 0)
        return self.look({key: start}, self.logs.log_dir().ranges([key]))


def test_each_record_is_looked_at_once_until_something_is_read(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    logs.write(numbers(0, 6), timestamp=NOW)
    of = Counted(logs)
    first = of.now(0)
    assert (first.newest, of.now(0), of.looked) == (NOW + 5, first, [(0, 6)])
    logs.write(numbers(0, 3), timestamp=NOW - 1000)
    second = of.now(0)
    assert (second.newest, second.size > first.size, of.looked) == (NOW + 5, True, [(0, 6), (6, 9)])
    assert (of.now(6).newest, of.looked[2:]) == (NOW - 998, [(6, 9)])
    assert of.now(9) == Unread()


def test_of_much_none_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a client could make the driver parse all of its records twice."""
    logs = Logs(tmp_path / "data")
    logs.write(numbers(0, 6), timestamp=NOW)
    of = Counted(logs)
    size = of.now(0).size
    monkeypatch.setattr(ahead, "MOST_BYTES", 2 * size)
    logs.write(numbers(0, 30), timestamp=NOW + 1000)
    found = of.now(0)
    assert (found.newest, of.looked) == (NOW + 5, [(0, 6)])
    assert found.size >= 2 * size
    assert (of.now(1).size >= 2 * size, of.looked) == (True, [(0, 6)])


def test_what_retention_has_removed_is_no_more_to_be_read(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    logs.write(numbers(0, 6), timestamp=NOW)
    of = Counted(logs)
    assert of.look({("t", 0): 0}, {("t", 0): (6, 6)}) == Unread()
    assert of.look({("t", 0): 9}, {("t", 0): (0, 6)}) == Unread(), "a topic that was made again is not this query's"
    assert of.look({}, {("t", 0): (3, 6)}).newest == NOW + 5, "a partition that is new"


def test_of_what_is_gone_meanwhile_the_time_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention removes segments at any time: that must not end the query."""
    logs = Logs(tmp_path / "data")
    logs.write(numbers(0, 6), timestamp=NOW)

    def gone(place: str) -> None:
        raise FileNotFoundError(place)

    monkeypatch.setattr(ahead, "opened", gone)
    found = Counted(logs).now(0)
    assert (found.size > 0, found.newest) == (True, None)
