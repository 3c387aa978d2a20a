"""A stream's SELECT in three parts, and how a checkpoint fits: what needs no Spark to run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.client.groups import Committed
from barnabas.streams.query.errors import QueryError
from barnabas.streams.windows.checkpoint import Folder, Progress, remove_others
from barnabas.streams.windows.stages import Call, Stages, stages_of
from barnabas.wire.streams.clauses import parse_stream


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
        (offsets / str(number)).touch()
    (offsets / ".7.crc").touch()
    (offsets / "8.tmp").touch()


@pytest.mark.parametrize(
    ("batches", "after", "first"),
    [
        (0, None, 0),  # new
        (1, None, 0),  # the first batch was planned
        (3, 2, 2),  # the third was planned
        (3, 3, 3),  # and is in, of which Spark does not know
        (0, 0, 0),
        (3, 4, "is older than the results"),
        (3, 1, "is newer than the results"),
        (3, None, "is newer than the results"),
    ],
)
def test_a_checkpoint_fits_if_its_last_batch_is_the_next_one_or_the_last_one_that_is_in(
    tmp_path: Path, batches: int, after: int | None, first: int | str
) -> None:
    folder = Folder(str(tmp_path), "topic", 0)
    with_batches(folder, batches)
    position = None if after is None else Committed(after, Progress("topic", 0, "id-1").encode())
    if isinstance(first, int):
        assert folder.first_batch(position) == first
        return
    with pytest.raises(QueryError, match=f"{first}.*RECALCULATE STREAM"):
        folder.first_batch(position)


def test_another_checkpoint_or_none_does_not_fit_and_another_streams_progress_does_not_count(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), "topic", 1)
    noted = Committed(4, Progress("topic", 1, "id-1").encode())
    with pytest.raises(QueryError, match="is gone: put it back"):
        folder.first_batch(noted)
    for other in (Progress("topic", 0, "id-1"), Progress("an older topic of the name", 1, "id-1")):
        assert folder.first_batch(Committed(4, other.encode())) == 0
    assert folder.first_batch(Committed(4, "no note of ours")) == 0
    with_batches(folder, 4, "id-2")
    with pytest.raises(QueryError, match="another one than that of the results"):
        folder.first_batch(noted)
    Path(folder.checkpoint, "metadata").write_bytes(b"{")
    with pytest.raises(QueryError, match="is damaged"):
        folder.first_batch(noted)


def test_folders_of_streams_that_are_no_more_are_removed(tmp_path: Path) -> None:
    assert remove_others(str(tmp_path), []) == []
    kept, gone = Folder(str(tmp_path), "kept", 2), Folder(str(tmp_path), "kept", 1)
    for folder in (kept, gone):
        folder.make()
        Path(folder.path).stat()
    assert remove_others(str(tmp_path), [kept.path]) == ["kept.1"]
    assert [path.name for path in (tmp_path / "streams").iterdir()] == ["kept.2"]
