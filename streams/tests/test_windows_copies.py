"""Copies of checkpoints: their content, damaged copies, and a query that goes on from an old copy."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
pytest.importorskip("obstore", reason="obstore is not installed: make setup-all")

from barnabas.storage.config import LogConfig
from barnabas.streams.query.errors import QueryError
from barnabas.streams.tests.support import NOW, Logs
from barnabas.streams.tests.windows_support import Noting
from barnabas.streams.windows.checkpoint import Folder
from barnabas.streams.windows.copies import Copies, snapshot
from barnabas.streams.windows.groups import Group, Joined
from barnabas.streams.windows.session import streams_session
from barnabas.wire.queries.plan import Values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = Values(format="json", schema="device STRING, n INT, ts TIMESTAMP")
GROUP = Group("query", "kind", (), (), (Joined("out", "id", 0, 0),), 1)
TEXT = (
    "PARALLELISM 2 EVENT_TIME ts WATERMARK 20s AS "
    "SELECT _wstart, device, count(*) AS c, sum(n) AS s FROM sensors PARTITION BY device INTERVAL(30s) SLIDING(10s)"
)


def text_of(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def put(logs: Logs, seed: int, seconds: range) -> None:
    """Write records that are late and out of order, within and beyond the watermark."""
    moments = random.Random(seed)
    for partition in range(2):
        values = []
        for second in seconds:
            at = NOW - 1_000_000 + 1000 * (second - moments.choice((0, 1, 15, 60)))
            values.append(json.dumps({"device": moments.choice("ab"), "n": second, "ts": text_of(at)}).encode())
        logs.write(values, "sensors", partition, each=3)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return streams_session(spark)


@pytest.mark.long
def test_a_query_goes_on_from_an_old_copy_with_the_batches_that_it_had(session: SparkSession, tmp_path: Path) -> None:
    """Batches of other sizes would close windows, and consider rows late, at other places."""
    logs, copies = Logs(tmp_path / "data", LogConfig(index_interval_bytes=100)), Copies(str(tmp_path / "copies"), "c")
    saved: dict[int, int] = {}

    def save(batch: int) -> None:
        if batch in (2, 4, 5):
            saved[batch] = copies.save(GROUP, first.folder)

    first = Noting(session, logs.path, tmp_path / "first", TEXT, VALUES, each=save)
    put(logs, 1, range(100))
    first.start(batch_bytes=3000)
    first.results()
    put(logs, 2, range(100, 250))  # it was stopped, and has a batch without records before these
    first.start(batch_bytes=4000)
    first.results()
    assert saved == {2: 1, 4: 3, 5: 4}
    last = max(first.batches)
    assert last > 9
    assert any(first.batches[batch] for batch in range(5, last)), "windows have closed since"
    put(logs, 3, range(250, 300))
    first.start(batch_bytes=2500)
    expected = first.results()

    restored = Noting(session, logs.path, tmp_path / "restored", TEXT, VALUES, each=lambda _: None)
    assert copies.restore(GROUP.id, restored.folder) == 4
    assert restored.folder.checkpoint_id() == first.folder.checkpoint_id()
    noted = {batch: text for batch, text in first.noted.items() if batch <= last}
    with pytest.raises(QueryError, match=r"it is not known what the batches between them read: RECALCULATE"):
        restored.folder.make_again(last + 1, {k: v for k, v in noted.items() if k != last - 1})
    assert restored.folder.make_again(last + 1, noted) == last - 4
    assert restored.folder.make_again(5, {}) == 0
    restored.start(batch_bytes=2500)
    restored.results()
    assert min(restored.batches) == 5
    assert {k: v for k, v in first.batches.items() if 5 <= k <= last} == {
        k: v for k, v in restored.batches.items() if k <= last
    }, "the same batches with the same results"
    assert {k: json.loads(v.split("\n")[1])["batchWatermarkMs"] for k, v in first.noted.items() if 5 <= k <= last} == {
        k: json.loads(v.split("\n")[1])["batchWatermarkMs"] for k, v in restored.noted.items() if k <= last
    }
    before = [value for k, rows in first.batches.items() if k < 5 for _, value, _ in rows]
    after = [value for rows in restored.batches.values() for _, value, _ in rows]
    assert sorted(map(str, before + after)) == sorted(map(str, expected))


def checkpoint(folder: Folder, last: int, snapshots: tuple[int, ...] = ()) -> None:
    """A checkpoint as Spark would have it."""
    root = Path(folder.checkpoint)
    for log in ("offsets", "commits", "state/0/0/SSTs"):
        (root / log).mkdir(parents=True, exist_ok=True)
    (root / "metadata").write_text('{"id":"id-1"}')
    for batch in range(last + 2):
        (root / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"t":{{"0":{batch}}}}}')
        (root / "offsets" / f".{batch}.crc").write_text("crc")
        if batch <= last:
            (root / "commits" / str(batch)).write_text("v1\n{}")
        (root / "state/0/0" / f"{batch + 1}.changelog").write_text(f"changes {batch + 1}")
    for version in snapshots:
        (root / "state/0/0" / f"{version}.zip").write_text(f"names of files {version}")
    (root / "state/0/0/SSTs/1.sst").write_text("rows")
    (root / "state/0/0/.9.changelog.0f3c.TID1.tmp").write_text("half")


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_a_copy_has_what_is_needed_to_go_on_after_the_last_batch_that_is_done(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), "query")
    into = tmp_path / "into"
    assert snapshot(folder.checkpoint, str(into)) == -1
    checkpoint(folder, 6, snapshots=(2, 5, 8))
    assert snapshot(folder.checkpoint, str(into)) == 6
    state = {"state/0/0/5.zip", *(f"state/0/0/{version}.changelog" for version in (5, 6, 7)), "state/0/0/SSTs/1.sst"}
    logs = {name for batch in (5, 6) for name in (f"offsets/{batch}", f"offsets/.{batch}.crc", f"commits/{batch}")}
    assert files(into) == state | logs | {"metadata"}


def test_a_damaged_copy_is_passed_over_and_two_are_kept(tmp_path: Path) -> None:
    folder, target = Folder(str(tmp_path), "query"), tmp_path / "copies"
    copies = Copies(str(target), "cluster")
    assert (copies.newest(), copies.restore("query", folder)) == ([], None)
    assert copies.save(GROUP, folder) == -1
    for last in (3, 4, 5):
        checkpoint(folder, last)
        assert copies.save(GROUP, folder) == last
    there = files(target)
    assert there == {f"cluster/query/{batch:020}.{kind}" for batch in (4, 5) for kind in ("json", "tar")}
    assert not [name for name in files(Path(folder.path)) if "copying" in name]
    (found,) = copies.newest()
    assert (found.group, found.batch, found.checkpoint) == (GROUP, 5, "id-1")
    assert Copies(str(target), "another cluster").newest() == []

    def restored(name: str) -> tuple[int | None, int]:
        other = Folder(str(tmp_path / name), "query")
        return copies.restore("query", other), other.last_batch()

    assert restored("whole") == (5, 5)
    newest = target / f"cluster/query/{5:020}.tar"
    newest.write_bytes(newest.read_bytes().replace(b"changes 6", b"changes 7"))
    assert restored("damaged") == (4, 4)
    (target / f"cluster/query/{5:020}.json").write_bytes(b'{"group":')  # the target lost power
    assert restored("torn") == (4, 4)
    assert [copy.batch for copy in copies.newest()] == [4]
    (target / f"cluster/query/{4:020}.json").write_bytes(b"")
    assert restored("none") == (None, -1)
    copies.remove("query")
    assert files(target) == set()


def test_a_target_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=r"barnabas.streams.checkpoint.copies=gopher://x: "):
        Copies("gopher://x", "cluster")
    (tmp_path / "file").write_text("")
    with pytest.raises(QueryError, match=r"barnabas.streams.checkpoint.copies=.*file/folder: "):
        Copies(str(tmp_path / "file" / "folder"), "cluster")
