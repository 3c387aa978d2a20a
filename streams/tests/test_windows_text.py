"""A stream's SELECT in three parts, and whether a checkpoint fits: the parts that need no running Spark."""

from __future__ import annotations

import stat
from collections import Counter
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.client.groups import Committed
from barnabas.streams.query.definitions import StreamDefinition
from barnabas.streams.query.errors import QueryError
from barnabas.streams.windows.batches import Replay
from barnabas.streams.windows.checkpoint import Folder, Progress, remove_others
from barnabas.streams.windows.groups import Groups, Joined, kind_of, new_group
from barnabas.streams.windows.slots import Slot, fits, slots_for
from barnabas.streams.windows.source import read_mark, write_mark
from barnabas.streams.windows.stages import Call, Stages, stages_of
from barnabas.wire.queries.plan import Values
from barnabas.wire.streams.clauses import parse_stream
from barnabas.wire.streams.plan import StreamPlan


def stages(text: str) -> Stages:
    return stages_of(parse_stream(text))


def test_a_select_becomes_three() -> None:
    found = stages(
        "PRE_FILTER(n > 0) SUBTABLE(concat('d-', device)) EVENT_TIME ts AS "
        "SELECT _wstart, device, 2 * avg(temp + 1) AS t, AVG(temp + 1) - min(`n`) m, `a b`, 'avg(x)' AS s "
        "FROM `my.sensors` WHERE temp > 0 OR n IS NULL "
        "PARTITION BY device, upper(Site) AS `a b` INTERVAL(10s) HAVING count(*) > 5 AND approx_percentile(n, 0.9) > 1"
    )
    assert found.inputs == (
        "SELECT (temp + 1) AS `__x0`, (`n`) AS `__x1`, (1) AS `__x2`, (n) AS `__x3`, (device) AS `device`, "
        "(upper(Site)) AS `a b`, `ts` AS `__time` FROM `my.sensors` WHERE (n > 0) AND (temp > 0 OR n IS NULL)"
    )
    assert found.calls == (
        Call("avg", ("__x0",), (), "__a0"),
        Call("min", ("__x1",), (), "__a1"),
        Call("count", ("__x2",), (), "__a2"),
        Call("approx_percentile", ("__x3",), (0.9,), "__a3"),
    )
    assert found.keys == ("device", "a b")
    assert found.outputs == (
        "SELECT _wstart AS `_wstart`, `device` AS `device`, 2 * `__a0` AS `t`, `__a0` - `__a1` AS `m`, `a b` AS `a b`, "
        "'avg(x)' AS `s`, CAST(concat ( 'd-' , `device` ) AS STRING) AS `_key` FROM `__windows` "
        "WHERE `__a2` > 5 AND `__a3` > 1"
    )


def test_tags_are_columns_of_partition_by() -> None:
    found = stages("TAGS(site, device AS d) SELECT site, count(*) AS c FROM s PARTITION BY device, site INTERVAL(1s)")
    assert found.outputs == "SELECT `site` AS `site`, `__a0` AS `c`, `device` AS `d` FROM `__windows`"
    with pytest.raises(QueryError, match=r'column 9, at "nope\).*: a tag is a column of PARTITION BY'):
        stages("TAGS(x, nope) SELECT count(*) AS c FROM s PARTITION BY x INTERVAL(1s)")
    with pytest.raises(QueryError, match=r"a tag is a column of PARTITION BY: write TAGS\(x AS place\)"):
        stages("TAGS(place AS x) SELECT count(*) AS c FROM s PARTITION BY x INTERVAL(1s)")


def test_what_is_grouped_by_is_found_whatever_its_case_and_spaces() -> None:
    found = stages("SELECT UPPER( device ) AS d, x.upper FROM s PARTITION BY upper(device) INTERVAL(1s)")
    assert found.outputs.startswith("SELECT `upper(device)` AS `d`, x . upper AS ")


@pytest.mark.parametrize(
    ("select", "told"),
    [
        ("max(avg(x))", 'at "avg(x)) FROM'),
        ("count(DISTINCT x)", "approx_count_distinct"),
        ("avg(x) FILTER (WHERE x > 1)", "FILTER is not possible"),
        ("avg(x, y)", "avg takes 1 argument"),
        ("avg()", "avg takes 1 argument"),
        ("max_by(x)", "max_by takes 2 arguments"),
        ("approx_percentile(x, y)", "a number from 0 to 1"),
        ("approx_percentile(x, 2)", "a number from 0 to 1"),
        ("collect_set(x)", "its state grows"),
        ("`Collect_Set`(x)", "its state grows"),
        ("median(x)", "use approx_percentile"),
        ("twa(x)", "use avg"),
    ],
)
def test_what_no_window_can_have(select: str, told: str) -> None:
    with pytest.raises(QueryError, match="line 1, column") as caught:
        stages(f"SELECT {select} FROM s INTERVAL(1s)")
    assert told in str(caught.value)


@pytest.mark.parametrize("by", ["x AS _wstart", "x AS _key", "x AS __a0", "x, y AS X"])
def test_names_of_our_own_are_not_grouped_by(by: str) -> None:
    with pytest.raises(QueryError, match="use AS"):
        stages(f"SELECT count(*) FROM s PARTITION BY {by} INTERVAL(1s)")


def with_batches(folder: Folder, batches: int, checkpoint: str = "id-1") -> None:
    offsets = Path(folder.checkpoint, "offsets")
    offsets.mkdir(parents=True)
    Path(folder.checkpoint, "metadata").write_bytes(msgspec.json.encode({"id": checkpoint}))
    for number in range(batches):
        (offsets / str(number)).write_text(f'v1\n{{}}\n{{"t": {{"0": {10 * number}}}, "#close": {{"at": 0}}}}')
    (offsets / ".7.crc").touch()
    (offsets / "8.tmp").touch()


def member(topic: str = "t", run: int = 0, batch: int = 0) -> Joined:
    return Joined(topic, f"id of {topic}", run, 0, batch)


def noted(after: int, of: Joined, checkpoint: str = "id-1") -> Committed:
    return Committed(after, Progress(of.topic_id, of.run, checkpoint).encode())


@pytest.mark.parametrize(
    ("batches", "after", "first"),
    [
        (0, None, 0),  # new
        (1, None, 0),  # the first batch was planned
        (3, 2, 2),  # the third was planned
        (3, 3, 3),  # and is committed, which Spark does not know
        (0, 0, 0),
        (3, 4, "is older than the results"),
        (3, 1, "is newer than the results"),
        (3, None, "is newer than the results"),
    ],
)
def test_a_checkpoint_fits_if_its_last_batch_is_the_next_one_or_the_last_one_that_is_in(
    tmp_path: Path, batches: int, after: int | None, first: int | str
) -> None:
    folder = Folder(str(tmp_path), "query")
    with_batches(folder, batches)
    positions = {} if after is None else {"t": noted(after, member())}
    if isinstance(first, int):
        assert folder.first_batch([member()], positions) == first
        return
    with pytest.raises(QueryError, match=f"{first}.*RECALCULATE STREAM"):
        folder.make_again(folder.first_batch([member()], positions), noted={})


def test_a_batch_that_ends_where_the_one_before_does_gets_an_end_of_its_own(tmp_path: Path) -> None:
    """Spark of an earlier version planned these by itself. Now it plans a batch only if the source has a new end."""
    folder = Folder(str(tmp_path), "query")
    with_batches(folder, 1)

    def of(end: int, watermark: int) -> str:
        return f'v1\n{{"batchWatermarkMs": {watermark}}}\n{{"t": {{"0": {end}}}, "#close": {{"at": 0}}}}'

    assert folder.make_again(4, {1: of(10, 0), 2: of(10, 70), 3: of(20, 70)}) == 3
    written = Path(folder.checkpoint, "offsets", "1")
    assert not written.exists(), "Spark repeats its own last batch first"
    replay = Replay(folder.replay_file)
    first = replay.next()
    written.write_text("v1")
    second = replay.next()
    written.with_name("2").write_text("v1")
    assert (first, second, replay.next()) == (
        {"t": {"0": 10}, "#close": {"at": 0}},
        {"t": {"0": 10}, "#close": {"at": 0, "foreseen": 70}},
        {"t": {"0": 20}, "#close": {"at": 0}},
    )


def test_another_checkpoint_or_none_does_not_fit_and_another_streams_progress_does_not_count(tmp_path: Path) -> None:
    folder, mine = Folder(str(tmp_path), "query"), member(run=1)
    with pytest.raises(QueryError, match="is gone: put it back"):
        folder.first_batch([mine], {"t": noted(4, mine)})
    for other in (Progress(mine.topic_id, 0, "id-1"), Progress("an older topic of the name", 1, "id-1")):
        assert folder.first_batch([mine], {"t": Committed(4, other.encode())}) == 0
    assert folder.first_batch([mine], {"t": Committed(4, "no note of ours")}) == 0
    with_batches(folder, 4, "id-2")
    with pytest.raises(QueryError, match="is not the one of the results"):
        folder.first_batch([mine], {"t": noted(4, mine)})
    Path(folder.checkpoint, "metadata").write_bytes(b"{")
    with pytest.raises(QueryError, match="is damaged"):
        folder.first_batch([mine], {"t": noted(4, mine)})


def test_of_the_streams_of_a_query_all_have_the_same_batches(tmp_path: Path) -> None:
    """One that joined later starts with those committed then, until its own first batch is committed."""
    folder = Folder(str(tmp_path), "query")
    with_batches(folder, 4)
    one, later = member("one"), member("later", batch=3)
    assert folder.first_batch([one, later], {"one": noted(3, one)}) == 3
    assert folder.first_batch([one, later], {"one": noted(4, one), "later": noted(4, later)}) == 4
    assert folder.first_batch([later], {}) == 3, "it is the only one that is left"
    with pytest.raises(QueryError, match="not that of all its streams"):
        folder.first_batch([one, later], {"one": noted(4, one)})


def test_a_folder_says_how_far_its_last_batch_is_in_the_source(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), "query")
    assert folder.planned_offsets() == {}
    with_batches(folder, 3)
    assert folder.planned_offsets() == {("t", 0): 20}
    Path(folder.checkpoint, "offsets", "2").write_text("v1\n")
    with pytest.raises(QueryError, match="is damaged"):
        folder.planned_offsets()


def test_what_a_killed_query_has_half_written_does_not_keep_it_from_starting(tmp_path: Path) -> None:
    """Spark refuses a first batch if anything is in the folder of offsets."""
    folder = Folder(str(tmp_path), "query")
    folder.mend()  # nothing exists yet
    with_batches(folder, 2)
    offsets, commits = Path(folder.checkpoint, "offsets"), Path(folder.checkpoint, "commits")
    commits.mkdir(exist_ok=True)
    kept = sorted(path.name for path in offsets.iterdir())
    for name in (".2.0f3c.tmp", "..2.0f3c.tmp.crc"):
        (offsets / name).write_bytes(b"v1")
        (commits / name).write_bytes(b"v1")
    (offsets / ".1.crc").write_bytes(b"crc")
    folder.mend()
    kept.remove(".7.crc")  # it is empty
    assert sorted(path.name for path in offsets.iterdir()) == sorted([*kept, ".1.crc"])
    assert not [path for path in commits.iterdir() if "tmp" in path.name]


def test_a_copy_of_a_checkpoint_stays_as_it_is(tmp_path: Path) -> None:
    folder, copy = Folder(str(tmp_path), "query"), Folder(str(tmp_path), "copy")
    with_batches(folder, 3)
    write_mark(folder.close_file, 5)
    folder.copy_to(copy)
    write_mark(folder.close_file, 6)
    Path(folder.checkpoint, "offsets", "3").write_text("v1\n")
    Path(folder.checkpoint, "offsets", "0").unlink()
    assert (copy.last_batch(), read_mark(copy.close_file)) == (2, 5)
    assert copy.planned_offsets() == {("t", 0): 20}
    assert stat.S_IMODE(Path(copy.path).stat().st_mode) == 0o700
    assert copy.checkpoint_id() not in ("", "id-1"), "Spark runs one query of an id"
    assert folder.checkpoint_id() == "id-1"
    with pytest.raises(QueryError, match="is not the one of the results"):
        copy.first_batch([member()], {"t": noted(3, member())})
    assert copy.first_batch([member()], {"t": noted(3, member())}, was="id-1") == 3
    assert copy.first_batch([member()], {"t": noted(3, member(), copy.checkpoint_id())}, was="id-1") == 3


def test_folders_of_queries_that_are_no_more_are_removed(tmp_path: Path) -> None:
    assert remove_others(str(tmp_path), []) == []
    kept, gone = Folder(str(tmp_path), "kept"), Folder(str(tmp_path), "gone")
    for folder in (kept, gone):
        folder.make()
        Path(folder.path).stat()
    groups = Groups(str(tmp_path))
    groups.write([])
    assert remove_others(str(tmp_path), [kept.path]) == ["gone"]
    assert sorted(path.name for path in (tmp_path / "streams").iterdir()) == ["groups", "kept"]
    assert groups.read() == []


def definition(topic: str, text: str, starts: tuple[int, ...] = (0,), run: int = 0) -> StreamDefinition:
    plan = StreamPlan(source="s", source_id="s-1", starts=starts)
    return StreamDefinition(topic, f"id of {topic}", topic, text, "running", run, plan, 1)


def test_which_streams_share_a_query_is_kept_and_a_number_is_given_once(tmp_path: Path) -> None:
    a, b, c = (definition(name, "SELECT count(*) FROM s INTERVAL(1s)") for name in "abc")
    group = new_group(a, "kind", [Slot("sum", ("double",))])
    group = group.join([b], 7)
    assert [(m.topic, m.number, m.batch) for m in group.members] == [("a", 0, 0), ("b", 1, 7)]
    apart = group.apart(group.members[1:], "id-1")
    left = group.only(group.members[:1]).join([c], 9)
    assert [(m.topic, m.number, m.batch) for m in left.members] == [("a", 0, 0), ("c", 2, 9)]
    assert apart.id != group.id
    assert apart.was == "id-1"
    groups = Groups(str(tmp_path))
    assert groups.read() == []
    groups.write([left, apart])
    assert groups.read() == [left, apart]
    assert left.members[0].is_of(a)
    assert not left.members[0].is_of(definition("a", a.text, run=1))
    assert not left.members[0].is_of(None)
    (tmp_path / "streams" / "groups").write_text("[")
    with pytest.raises(QueryError, match="is damaged"):
        groups.read()


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("SELECT max(x), k FROM s WHERE x > 1 PARTITION BY k INTERVAL(1h) SLIDING(1m)", True),
        ("MAX_STATE_ROWS 7 FILL_HISTORY 1 SELECT count(*) FROM s INTERVAL(1s)", True),
        ("WATERMARK 1s SELECT count(*) FROM s INTERVAL(1s)", False),
        ("EVENT_TIME t SELECT count(*) FROM s INTERVAL(1s)", False),
        ("TRIGGER AT_ONCE SELECT count(*) FROM s INTERVAL(1s)", False),
        ("MAX_AHEAD 1s SELECT count(*) FROM s INTERVAL(1s)", False),
        ("IGNORE EXPIRED 1 SELECT count(*) FROM s INTERVAL(1s)", True),
        ("IGNORE EXPIRED 0 SELECT count(*) FROM s INTERVAL(1s)", False),
        ("MAX_DELAY 3s SELECT count(*) FROM s INTERVAL(1s)", False),
        ("PARALLELISM 1 SELECT count(*) FROM s INTERVAL(1s)", True),
        ("PARALLELISM 2 SELECT count(*) FROM s INTERVAL(1s)", False),
        ("SELECT count(*) FROM other INTERVAL(1s)", False),
        ("SELECT count(*) FROM s SESSION(1s)", False),
        ("SELECT count(*) FROM s INTERVAL(1s) FILL(PREV)", False),
        ("SELECT count(*) FROM s COUNT_WINDOW(3)", False),
        ("SELECT count(*) FROM s PERIOD(1s)", False),
    ],
)
def test_streams_share_a_query_whose_windows_close_together(text: str, same: bool) -> None:
    one, other = parse_stream("SELECT count(*) FROM s INTERVAL(1s)"), parse_stream(text)
    values = Values(format="json", schema="x INT")
    assert (kind_of(one, "s-1", values) == kind_of(other, "s-1", values)) == same
    assert kind_of(one, "s-1", values) != kind_of(one, "s-2", values)
    assert kind_of(one, "s-1", values) != kind_of(one, "s-1", Values(format="json", schema="x BIGINT"))


def test_streams_of_one_period_share_a_query() -> None:
    def kind(text: str) -> str:
        return kind_of(parse_stream(f"SELECT count(*) FROM s {text}"), "s-1", Values())

    assert kind("PERIOD(5s)") == kind("WHERE x > 1 PARTITION BY k PERIOD(5s)")
    assert kind("PERIOD(5s)") != kind("PERIOD(6s)")
    assert kind("PERIOD(5s)") != kind("PERIOD(5s, 1s)")


def test_a_stream_fits_where_there_are_slots_for_all_it_needs() -> None:
    total, first = Slot("sum", ("double",)), Slot("first", ("string",))
    light = slots_for(Counter([total]))
    assert light.count(total) == 2
    assert fits(Counter({total: 2}), light)
    assert not fits(Counter({total: 3}), light)
    assert not fits(Counter([first]), light)
    heavy = slots_for(Counter({first: 1, total: 5}))
    assert heavy.count(total) == 5
    assert fits(Counter([first, total]), heavy)
    assert not fits(Counter([total]), heavy), "it would be sorted for nothing"
