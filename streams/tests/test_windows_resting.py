"""Queries without new data rest, and start again when data comes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.tests.test_windows_arranging import catalog, definition, know, streams_in
from barnabas.streams.windows.batches import owed_watermark_ms
from barnabas.streams.windows.checkpoint import Folder
from barnabas.streams.windows.groups import Group, Groups, new_group
from barnabas.streams.windows.manager import Streams
from barnabas.streams.windows.quiet import Quiet
from barnabas.streams.windows.resting import AWAKE, REST_SECONDS, resting
from barnabas.streams.windows.runner import Runner
from barnabas.streams.windows.source import write_mark
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.streams.clauses import parse_stream

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster
    from barnabas.streams.query.definitions import StreamDefinition

NOBODY = cast("Cluster", None)
MORE = 3


@dataclass(eq=False)
class Known:
    """The known facts about a query."""

    used_at: float
    idle: bool = True

    def may_rest(self) -> bool:
        return self.idle


def test_those_used_last_run_on_and_so_does_what_has_something_to_do() -> None:
    queries = [Known(float(at)) for at in range(AWAKE + MORE)]
    at = AWAKE + MORE + REST_SECONDS
    assert resting(queries, at) == set(queries[:MORE])
    assert resting(queries, REST_SECONDS + 1) == set(queries[:2]), "after a while"
    assert resting(queries[:AWAKE], at) == set()
    busy = [Known(0.0, idle=False), *queries[1:]]
    assert resting(busy, at) == set(queries[1:MORE])


def spark_has(
    folder: Folder, batch: int, watermark: int, after: int | None, *, mark: int = 0, source: str = "s", end: int = 0
) -> None:
    """A batch in a checkpoint, completed if it has a watermark after it."""
    of_source = json.dumps({source: {"0": end}, "#close": {"at": mark}})
    for log, text in (
        ("offsets", f'v1\n{{"batchWatermarkMs":{watermark}}}\n{of_source}'),
        ("commits", f'v1\n{{"nextBatchWatermarkMs":{after}}}'),
    ):
        if log == "offsets" or after is not None:
            path = Path(folder.checkpoint, log, str(batch))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def test_a_checkpoint_is_settled_when_spark_would_do_nothing(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), "query")
    assert folder.is_settled(), "it has not begun"
    folder.make()
    spark_has(folder, 0, 0, None)
    assert not folder.is_settled(), "the batch is not done"
    spark_has(folder, 0, 0, 7000)
    assert not folder.is_settled(), "windows close in the next one"
    spark_has(folder, 1, 7000, 7000)
    assert folder.is_settled()
    write_mark(folder.close_file, 9000)
    assert not folder.is_settled(), "a mark waits"
    spark_has(folder, 2, 7000, 9000, mark=9000)
    spark_has(folder, 3, 9000, 9000, mark=9000)
    assert folder.is_settled()
    Path(folder.checkpoint, "commits", "3").write_text("v1\n")
    assert not folder.is_settled(), "what is damaged is for the start to tell"


def test_a_batch_without_records_is_owed_if_windows_are_closed_by_an_earlier_watermark(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), "query")
    assert owed_watermark_ms(folder.checkpoint) == 0, "it has not begun"
    spark_has(folder, 0, 0, 7000)
    assert owed_watermark_ms(folder.checkpoint) == 7000
    spark_has(folder, 1, 7000, None)
    assert owed_watermark_ms(folder.checkpoint) == 7000
    spark_has(folder, 1, 7000, 7000)
    assert owed_watermark_ms(folder.checkpoint) == 0


def test_no_mark_is_to_come_once_all_is_closed() -> None:
    clauses = parse_stream("MAX_DELAY 3s AS SELECT count(*) FROM s INTERVAL(10s)")
    quiet = Quiet(clauses, [clauses.window], 0.0)
    assert quiet.is_over(0, 0, 0), "nothing has come"
    assert not quiet.is_over(5000, 0, 1)
    mark = quiet.mark(10.0, 5000, 0, 1)
    assert mark is not None
    assert not quiet.is_over(5000, mark, 1), "it is on its way"
    assert quiet.is_over(mark, mark, 0)
    never = parse_stream("SELECT count(*) FROM s INTERVAL(10s)")
    assert Quiet(never, [never.window], 0.0).is_over(5000, 0, 1)


class Driver:
    """Streams with one source each; starts and stops are noted."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        text: str = "INTERVAL(1s)",
        before: Callable[[int, Folder], None] = lambda *_: None,
    ) -> None:
        """`before` gives the checkpoints at its start."""
        self.text, self.ends, self.running = text, dict[TopicPartition, int](), set[str]()
        self.groups = [self._group(folder, f"t{number}") for number in range(AWAKE + MORE)]
        Groups(str(folder)).write(self.groups)
        for number, group in enumerate(self.groups):
            before(number, Folder(str(folder), group.id))
        self.streams, self.said = streams_in(folder)
        self.streams._most = len(self.groups)
        self.at = 1000.0
        monkeypatch.setattr("barnabas.streams.windows.manager.now", lambda: self.at)
        monkeypatch.setattr(Streams, "_is_gone", lambda *_: False)
        monkeypatch.setattr(Streams, "_ask_ends", lambda streams, _: setattr(streams, "_ends", dict(self.ends)))
        monkeypatch.setattr(Streams, "_do", lambda _, task: task())
        monkeypatch.setattr(Runner, "start", lambda runner, *_: self._start(runner))
        monkeypatch.setattr(Runner, "look", lambda runner, at, ends: runner.count_lag(ends, at))
        monkeypatch.setattr(Runner, "stop", lambda runner: self.running.discard(self._name(runner)))
        know(self.streams, catalog(*(self.definition(group.members[0].topic) for group in self.groups)))

    def _group(self, folder: Path, topic: str) -> Group:
        group = new_group(self.definition(topic), topic, [])
        Folder(str(folder), group.id).make()
        self.ends["of " + topic, 0] = 0
        return group

    def definition(self, topic: str, state: str = "running") -> StreamDefinition:
        made = definition(topic, state)
        plan = msgspec.structs.replace(made.plan, source=f"of {topic}")
        return msgspec.structs.replace(made, plan=plan, text=f"AS SELECT count(*) FROM s {self.text}")

    def _start(self, runner: Runner) -> None:
        self.running.add(self._name(runner))
        runner.know_place()

    def _name(self, runner: Runner) -> str:
        return runner.group.members[0].topic

    def look(self, seconds: float = 1.0) -> None:
        """Let the driver look some time later."""
        self.at += seconds
        self.streams.look(NOBODY)

    def come(self, topic: str, records: int = 1) -> None:
        self.ends["of " + topic, 0] += records

    def done(self, topic: str, *, settled: bool = True) -> None:
        """A query has read everything."""
        runner = self.runner(topic)
        end = self.ends["of " + topic, 0]
        spark_has(runner.folder, 0, 0, 0 if settled else 5000, source="of " + topic, end=end)
        runner.ends = {("of " + topic, 0): end}
        runner.count_lag(self.ends, self.at)

    def runner(self, topic: str) -> Runner:
        return next(runner for runner in self.streams._runners or () if self._name(runner) == topic)

    def states(self) -> set[str]:
        return {told.state for told in self.streams.told()}


def test_streams_over_sources_without_records_are_not_started_but_for_a_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(tmp_path, monkeypatch)
    driver.look()
    first = {f"t{number}" for number in range(AWAKE)}
    assert driver.running == first
    assert driver.states() == {"RUNNING"}
    driver.look()
    assert {told.lag for told in driver.streams.told()} == {0}
    driver.come("t6")
    driver.look()
    assert driver.running == {*first - {"t3"}, "t6"}, "one was never used"


def test_what_has_come_before_a_start_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def before(number: int, folder: Folder) -> None:
        spark_has(folder, 0, 0, 4000 if number == 5 else 0, source=f"of t{number}", end=3 if number == 6 else 5)

    driver = Driver(tmp_path, monkeypatch, before=before)
    for number in range(AWAKE + MORE):
        driver.come(f"t{number}", 5)
    driver.look()
    assert {"t5", "t6"} <= driver.running, "one has windows to close, and one has records to read"
    assert "t4" not in driver.running


def test_a_query_rests_after_a_minute_and_its_streams_are_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(tmp_path, monkeypatch)
    for number in range(AWAKE + MORE):
        driver.come(f"t{number}")
        driver.look()
        driver.done(f"t{number}", settled=number != 1)
    everything = {f"t{number}" for number in range(AWAKE + MORE)}
    assert driver.running == everything
    driver.look(REST_SECONDS - 10)
    assert driver.running == everything
    driver.look(20)
    assert driver.running == everything - {"t0", "t2"}, "t1 has windows to close"
    assert [each["topics"] for each in driver.said if each["event"] == "stream.rests"] == ["t0", "t2"]
    assert driver.states() == {"RUNNING"}
    know(driver.streams, catalog(*(driver.definition(topic, "paused") for topic in sorted(everything))))
    assert driver.states() == {"PAUSED"}
    know(driver.streams, catalog(*map(driver.definition, sorted(everything))))
    driver.come("t0")
    driver.look()
    assert "t0" in driver.running
    assert "t2" not in driver.running
    know(driver.streams, catalog(*map(driver.definition, sorted(everything - {"t2"}))))
    assert len(driver.streams.told()) == AWAKE + MORE - 1


@pytest.mark.parametrize("text", ["PERIOD(10s)", "INTERVAL(10s)"])
def test_one_that_has_begun_and_goes_by_the_clock_does_not_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    def before(number: int, folder: Folder) -> None:
        spark_has(folder, 0, 0, 0, source=f"of t{number}", end=5)

    driver = Driver(tmp_path, monkeypatch, text, before)
    for number in range(AWAKE + MORE):
        driver.come(f"t{number}", 5)
    driver.look()
    assert (len(driver.running) == len(driver.groups)) == (text == "PERIOD(10s)")
