"""Which streams share a query as topics come and go; no query runs here."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.client.groups import Committed
from barnabas.streams.java import JavaError
from barnabas.streams.query.definitions import Catalog, Source, StreamDefinition
from barnabas.streams.query.errors import FatalError, QueryError
from barnabas.streams.query.health import now
from barnabas.streams.query.lazy_spark import LazySpark
from barnabas.streams.windows import manager, restoring
from barnabas.streams.windows.checkpoint import Folder, Progress
from barnabas.streams.windows.copies import Copies, Copy
from barnabas.streams.windows.groups import Group, Groups, new_group
from barnabas.streams.windows.manager import WAITING, Streams
from barnabas.streams.windows.plain import Given
from barnabas.streams.windows.runner import Home, Runner
from barnabas.wire.streams.plan import StreamPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.client.cluster import Cluster


def definition(topic: str, state: str = "paused") -> StreamDefinition:
    plan = StreamPlan(source="s", source_id="s-1", starts=(0,))
    return StreamDefinition(topic, f"id of {topic}", topic, "SELECT count(*) FROM s INTERVAL(1s)", state, 0, plan, 1)


def catalog(*streams: StreamDefinition, is_whole: bool = True) -> Catalog:
    return Catalog({}, {}, streams={stream.topic: stream for stream in streams}, is_whole=is_whole)


def no_spark() -> SparkSession:
    raise FatalError("Spark needs Java 17 or newer, and there is none on the PATH")


def streams_in(folder: Path, copies: Copies | None = None) -> tuple[Streams, list[dict[str, Any]]]:
    said: list[dict[str, Any]] = []

    def say(level: str, event: str, **fields: Any) -> None:
        said.append({"event": event, **fields})

    home = Home("nowhere", str(folder), lambda: "", lambda _, __: None, say, copies)
    made = Streams(LazySpark(no_spark), home, trigger_ms=1, most=4)
    made._made = cast("SparkSession", object())  # no stream runs
    return made, said


def know(streams: Streams, known: Catalog) -> None:
    """Like `know`, in this thread."""
    streams._catalog = known
    streams._arrange(known)


def shared(folder: Path, *topics: str) -> Group:
    group = new_group(definition(topics[0]), "kind", []).join(map(definition, topics[1:]), 0)
    Groups(str(folder)).write([group])
    (folder / "streams" / group.id).mkdir()
    (folder / "streams" / "other").mkdir()
    return group


def test_the_first_plain_stream_is_known_while_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "check_java", lambda: None)
    streams, _ = streams_in(tmp_path)
    begun, goes_on = threading.Event(), threading.Event()

    def start() -> SparkSession:
        begun.set()
        goes_on.wait(60)
        return no_spark()

    streams._spark = LazySpark(start)
    schema = "device STRING, temp DOUBLE"
    source = Source(name="s", topic_id="s-1", partitions=1, format="json", schema=schema)
    text = "SELECT _wend, device, avg(temp) AS t FROM s PARTITION BY device INTERVAL(10s)"
    try:
        found = streams.check_plainly(text, lambda _: source)
        assert found is not None
        assert found[2] == Given("json", "_wend timestamp, device string, t double")
        assert begun.wait(60)
        assert streams._spark.is_starting
        assert streams.check_plainly(text.replace("avg(temp)", "stddev(temp)"), lambda _: source) is None
        streams._catalog = catalog(definition("a"))  # it may share a query
        assert streams.check_plainly(text, lambda _: source) is None
    finally:
        goes_on.set()


def test_where_java_is_missing_no_stream_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check_java() -> None:
        raise JavaError("there is none")

    monkeypatch.setattr(manager, "check_java", check_java)
    streams, _ = streams_in(tmp_path)
    assert streams.check_plainly("SELECT count(*) FROM s INTERVAL(1s)", lambda _: pytest.fail("asked")) is None


def test_what_is_gone_leaves_its_query_and_the_last_one_takes_it_along(tmp_path: Path) -> None:
    group = shared(tmp_path, "a", "b")
    streams, _ = streams_in(tmp_path)
    know(streams, catalog(definition("a"), definition("b")))
    assert not (tmp_path / "streams" / "other").exists()
    assert {told.topic: told.query for told in streams.told()} == dict.fromkeys("ab", group.id[:8])
    know(streams, catalog(definition("b")))
    assert [[member.topic for member in each.members] for each in Groups(str(tmp_path)).read()] == [["b"]]
    again = msgspec.structs.replace(definition("b"), topic_id="another")
    know(streams, catalog(again))
    assert Groups(str(tmp_path)).read() == []
    assert not (tmp_path / "streams" / group.id).exists()
    assert [(told.topic, told.state, told.query) for told in streams.told()] == [("b", "PAUSED", "")]


def test_what_goes_while_the_streams_are_arranged_is_arranged_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared(tmp_path, "a", "b", "c")
    streams, said = streams_in(tmp_path)
    know(streams, catalog(definition("a"), definition("b"), definition("c")))
    without_gone, tasks = streams._without_gone, list[Callable[[], None]]()
    monkeypatch.setattr(streams, "_do", tasks.append)

    def meanwhile(group: Group) -> Group:
        found = without_gone(group)
        streams.know(catalog(definition("c")))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(streams, "_without_gone", meanwhile)
        streams._arrange(catalog(definition("b"), definition("c")))
    assert {told.topic for told in streams.told()} == {"c"}
    assert [[member.topic for member in each.members] for each in Groups(str(tmp_path)).read()] == [["b", "c"]]
    for task in tasks:
        task()
    assert [[member.topic for member in each.members] for each in Groups(str(tmp_path)).read()] == [["c"]]
    assert [each["topics"] for each in said if each["event"] == "stream.gone"] == ["a", "b"]


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_query_that_is_stopped_is_not_taken_for_one_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The loop looks at a query that the thread is stopping, or the thread stops it during the loop's look."""
    shared(tmp_path, "a")
    streams, said = streams_in(tmp_path)
    know(streams, catalog(definition("a")))
    (runner,) = streams._runners or []
    runner.definitions = {"a": definition("a", "running")}
    streams._up.add(runner)
    monkeypatch.setattr(streams, "_ask_ends", lambda _: None)
    monkeypatch.setattr(streams, "_is_gone", lambda _: False)
    stopped, looked = list[Runner](), list[Runner]()

    def stop(each: Runner) -> None:
        stopped.append(each)
        if when == "before":
            streams.look(cast("Cluster", None))

    def look(each: Runner, at: float, ends: object) -> str:
        looked.append(each)
        if when == "while":
            streams._halt(each)
        return "the query has ended"

    monkeypatch.setattr(Runner, "stop", stop)
    monkeypatch.setattr(Runner, "look", look)
    if when == "before":
        streams._halt(runner)
    else:
        streams.look(cast("Cluster", None))
    assert stopped == [runner]
    assert looked == ([] if when == "before" else [runner])
    assert "stream.retrying" not in [each["event"] for each in said]
    assert runner.health.failures == 0
    assert runner not in streams._busy


def test_a_stream_of_whose_topic_nothing_is_known_for_a_while_keeps_its_state(tmp_path: Path) -> None:
    group = shared(tmp_path, "a", "b")
    streams, _ = streams_in(tmp_path)
    for known in (catalog(definition("a"), is_whole=False), catalog(is_whole=False)):
        know(streams, known)
        assert Groups(str(tmp_path)).read() == [group]
        assert (tmp_path / "streams" / group.id).exists()
    know(streams, catalog(definition("a"), definition("b")))
    know(streams, catalog(definition("a"), is_whole=False))
    assert Groups(str(tmp_path)).read() == [group]
    know(streams, catalog(definition("a")))
    assert [[member.topic for member in each.members] for each in Groups(str(tmp_path)).read()] == [["a"]]


def test_workers_that_have_died_are_not_the_streams_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark discovers one at each start, and a daemon may have many. Other failures separate the streams."""
    shared(tmp_path, "a", "b")
    streams, _ = streams_in(tmp_path)
    know(streams, catalog(definition("a"), definition("b")))
    assert streams._runners is not None
    (runner,) = streams._runners
    tasks: list[Callable[[], None]] = []
    monkeypatch.setattr(streams, "_do", tasks.append)
    for _ in range(20):
        streams._failed(runner, "Stream closed")
    assert (runner.health.state, runner.health.failures, runner.health.error) == ("RETRYING", 0, "Stream closed")
    assert not runner.health.may_run(now())
    assert runner.health.may_run(now() + 1.5)
    before = len(tasks)
    for _ in range(3):
        streams._failed(runner, "another reason")
    assert len(tasks) == before + 3, "it is stopped each time"
    streams._failed(runner, "another reason")
    assert len(tasks) == before + 5, "and parted"
    for _ in range(20):
        streams._failed(runner, "Stream closed")
    assert runner.health.failures > 4, "there cannot be so many"


def test_with_a_damaged_list_no_stream_runs_and_each_says_why(tmp_path: Path) -> None:
    group = shared(tmp_path, "a")
    (tmp_path / "streams" / "groups").write_text("[{")
    streams, said = streams_in(tmp_path)
    with pytest.raises(Exception, match="is damaged"):
        know(streams, catalog(definition("a", "running")))
    (told,) = streams.told()
    assert told.state == WAITING
    assert "RECALCULATE" in (told.last_error or "")
    assert said[0]["event"] == "streams.groups"
    assert (tmp_path / "streams" / group.id).exists()


def test_a_change_that_cannot_be_written_is_not_made(tmp_path: Path) -> None:
    group = shared(tmp_path, "a", "b")
    streams, _ = streams_in(tmp_path)
    know(streams, catalog(definition("a"), definition("b")))
    (tmp_path / "streams" / "groups.new").mkdir()  # as with a full disk
    with pytest.raises(OSError, match=r"groups\.new"):
        know(streams, catalog(definition("b")))
    assert Groups(str(tmp_path)).read() == [group]
    (tmp_path / "streams" / "groups.new").rmdir()
    know(streams, catalog(definition("b")))
    assert [[member.topic for member in each.members] for each in Groups(str(tmp_path)).read()] == [["b"]]


class Away:
    """Copies in a place that is unavailable for a while."""

    def __init__(self, *told: Exception | list[Copy]) -> None:
        self._told = list(told)

    def newest(self) -> list[Copy]:
        told = self._told.pop(0)
        if isinstance(told, Exception):
            raise told
        return told

    def restore(self, query: str, folder: Folder) -> int:
        folder.make()
        return 7


def test_nothing_begins_anew_while_the_copies_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is down, or the disk with the copies is not mounted: the folder is then empty."""
    a, new = definition("a"), definition("new")
    group = new_group(a, "kind", [])
    noted = Progress(a.topic_id, a.run, "checkpoint")
    away = Away(OSError("connection refused"), [], [Copy(group, 7, "checkpoint", "")])
    monkeypatch.setattr(restoring, "Cluster", lambda _: contextlib.nullcontext())
    positions = {("a", 0): Committed(8, noted.encode())}
    monkeypatch.setattr(restoring, "committed", lambda *_: positions)
    streams, said = streams_in(tmp_path, cast("Copies", away))
    with pytest.raises(OSError, match="connection refused"):
        know(streams, catalog(a, new))
    with pytest.raises(QueryError, match="there is neither the state of a nor a copy of it: put the folder back"):
        know(streams, catalog(a, new))
    assert not (tmp_path / "streams").exists()
    assert [each["event"] for each in said] == ["streams.groups"] * 2
    assert {told.topic: bool(told.last_error) for told in streams.told()} == {"a": True, "new": True}
    know(streams, catalog(a, new))
    assert [each.id for each in Groups(str(tmp_path)).read()] == [group.id]
    assert said[2]["event"] == "stream.restored"


def test_without_results_and_copies_streams_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "Cluster", lambda _: contextlib.nullcontext())
    a = msgspec.structs.replace(definition("a"), run=2)
    positions = {("a", 0): Committed(8, Progress(a.topic_id, 1, "checkpoint").encode())}  # before it was recalculated
    monkeypatch.setattr(restoring, "committed", lambda *_: positions)
    streams, said = streams_in(tmp_path, cast("Copies", Away([])))
    know(streams, catalog(a))
    assert Groups(str(tmp_path)).read() == []
    assert said == []


def running(folder: Path) -> tuple[Streams, Runner]:
    """Streams with one running query."""
    shared(folder, "a")
    streams, _ = streams_in(folder)
    know(streams, catalog(definition("a", "running")))
    assert streams._runners is not None
    (runner,) = streams._runners
    streams._up.add(runner)
    runner.health.ran(now(), 1, 0, 0.1)
    return streams, runner


def test_a_query_lags_that_has_been_behind_for_a_while_and_does_not_catch_up(tmp_path: Path) -> None:
    streams, runner = running(tmp_path)

    def state(at: float, end: int, read: int) -> str:
        runner.ends = {("s", 0): read}
        runner.count_lag({("s", 0): end, ("other", 0): 10**6}, at)
        (told,) = streams.told()
        assert told.lag == end - read
        return told.state

    start = 1000.0
    told = [state(start, 100, 0), state(start + 10, 200, 90), state(start + 31, 400, 90), state(start + 40, 500, 200)]
    assert told == ["RUNNING", "RUNNING", "LAGGING", "LAGGING"]
    assert state(start + 62, 500, 300) == "RUNNING", "it catches up"
    assert state(start + 93, 700, 490) == "LAGGING"
    assert [state(start + 100, 700, 700), state(start + 124, 1000, 700)] == ["RUNNING", "RUNNING"], (
        "it had none meanwhile"
    )
    assert state(start + 155, 2000, 1000) == "RUNNING", "what came lately may wait for its batch"


def test_a_lag_is_not_known_before_both_ends_are(tmp_path: Path) -> None:
    streams, runner = running(tmp_path)

    def lag(end: int | None) -> int | None:
        runner.count_lag({} if end is None else {("s", 0): end}, now())
        (told,) = streams.told()
        return told.lag

    assert lag(None) is None
    assert lag(100) is None, "its checkpoint has not been read"
    runner.ends = {("s", 0): 90}
    assert lag(None) is None, "nobody has asked the source"
    assert lag(100) == 10
    runner.ends = {}  # it has had no batch
    assert lag(100) == 100


def test_a_query_waits_for_a_stream_that_is_being_made_for_some_seconds_only(tmp_path: Path) -> None:
    streams, runner = running(tmp_path)
    streams._asked_at = now() + 3600  # so that it asks no broker
    runner.hold()
    hold = Path(runner.folder.hold_file)
    streams._held[runner] = now() + 3600
    streams.look(cast("Cluster", None))
    assert hold.exists()
    streams._held[runner] = now()
    streams.look(cast("Cluster", None))
    assert not hold.exists()
    assert streams._held == {}


def test_streams_without_spark_say_why_and_are_arranged_once_it_starts(tmp_path: Path) -> None:
    shared(tmp_path, "a")
    streams, _ = streams_in(tmp_path)
    session, streams._made = streams._made, None
    streams._catalog = catalog(definition("a", "running"))
    with pytest.raises(FatalError):
        streams._arrange(streams._catalog)
    (told,) = streams.told()
    assert (told.topic, told.state) == ("a", WAITING)
    assert told.last_error == "Spark needs Java 17 or newer, and there is none on the PATH"
    streams._made = session
    know(streams, catalog(definition("a")))
    (told,) = streams.told()
    assert (told.state, told.last_error) == ("PAUSED", None)
