"""Exports to Parquet: their files, where a run goes on, refused ones; and the command with its Spark, killed."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from barnabas.storage.checkpoints import write_properties
from barnabas.storage.config import LogConfig
from barnabas.storage.io import Io
from barnabas.streams.export import ExportPlan, Request, Totals, Work, export, export_partition, spark
from barnabas.streams.export.progress import Progress, Seen
from barnabas.streams.export.target import Span, claim, finished, opened, partition_folder
from barnabas.streams.tests.support import NOW, Logs, numbers, table
from barnabas.streams.wal import WalError
from compat_tests.tools import ROOT

Export = Callable[..., Totals]


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path / "data")


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def run(logs: Logs, to: Path, monkeypatch: pytest.MonkeyPatch) -> Export:
    """An export of topic t whose tasks run here, without Spark."""
    monkeypatch.setattr(spark, "check", lambda: None)
    monkeypatch.setattr(spark, "run", lambda _, plan, works, quiet: [export_partition(plan, work) for work in works])

    def act(**options: Any) -> Totals:
        request = {"topics": ("t",), "data_dir": str(logs.path), "to": str(to)} | options
        return export(Request(**request), io.StringIO())

    return act


def names(to: Path, topic: str = "t", partition: int = 0) -> list[tuple[int, int]]:
    return [(span.first, span.last) for span in finished(partition_folder(to, (topic, partition)))]


def exported(to: Path, topic: str = "t", partition: int = 0) -> pa.Table:
    """The rows of a partition's files, whose offset ranges do not overlap."""
    files = finished(partition_folder(to, (topic, partition)))
    spans = list(files)
    assert all(one.last < other.first for one, other in pairwise(spans))
    return pa.concat_tables(parquet.ParquetFile(path).read() for path in files.values())


def offsets(to: Path, partition: int = 0) -> list[int]:
    return list(exported(to, partition=partition)["offset"].to_pylist())


def test_all_columns_of_a_record(logs: Logs, to: Path, run: Export) -> None:
    logs.write([b"a", None, b"c"])
    totals = run()
    assert (totals.rows, totals.files, totals.errors) == (3, 1, [])
    assert totals.bytes == sum(one.stat().st_size for one in to.rglob("*.parquet"))
    found = exported(to)
    assert found.column_names == ["key", "value", "offset", "timestamp", "timestampType", "headers"]
    plain = table(logs.log_dir(), columns=found.column_names)
    assert found["timestamp"].cast("int64").to_pylist() == [(NOW + i) * 1000 for i in range(3)]
    for name in ("key", "value", "offset", "timestampType", "headers"):
        assert found[name].to_pylist() == plain[name].to_pylist()


def test_files_of_so_many_rows_and_the_next_run_appends(logs: Logs, to: Path, run: Export) -> None:
    logs.write(numbers(0, 25), each=4)
    assert run(rows_per_file=10).files == 3
    assert names(to) == [(0, 9), (10, 19), (20, 24)]
    assert run(rows_per_file=10).rows == 0
    logs.write(numbers(25, 30))
    assert run(rows_per_file=10).rows == 5
    assert names(to)[3:] == [(25, 29)]
    assert exported(to)["value"].to_pylist() == numbers(0, 30)


def test_partitions_topics_and_a_pattern(logs: Logs, to: Path, run: Export) -> None:
    for topic, partition in (("t", 0), ("t", 1), ("u1", 0), ("u2", 0), ("v", 0)):
        logs.write(numbers(0, 5), topic, partition)
    totals = run(pattern="u.")
    assert (totals.rows, totals.files) == (20, 4)
    assert {one.name for one in to.iterdir()} == {"topic=t", "topic=u1", "topic=u2", "_barnabas_export.json"}
    assert names(to, "u2") == [(0, 4)]
    assert names(to, partition=1) == [(0, 4)]


def test_from_a_time(logs: Logs, to: Path, run: Export) -> None:
    logs.write(numbers(0, 30))
    run(since_ms=NOW + 12)
    assert names(to) == [(12, 29)]
    logs.write(numbers(30, 40), timestamp=NOW - 1000)
    run(since_ms=NOW + 12)
    assert offsets(to) == list(range(12, 40))  # the time applies to partitions that are not started yet


def test_json_columns_and_the_offset(logs: Logs, to: Path, run: Export) -> None:
    logs.write([b'{"device":"a","temp":1.5}', b"oops", None])
    with pytest.raises(WalError, match="this fits: --schema 'device STRING, temp DOUBLE'"):
        run(format="json")
    run(format="json", schema="device string, _corrupt_record string")
    assert exported(to).to_pylist() == [
        {"device": "a", "_corrupt_record": None, "_offset": 0},
        {"device": None, "_corrupt_record": "oops", "_offset": 1},
        {"device": None, "_corrupt_record": None, "_offset": 2},
    ]
    assert run(format="json", schema="device STRING,_corrupt_record STRING").rows == 0
    with pytest.raises(WalError, match="holds an export with schema device STRING"):
        run(format="json", schema="device int")


def test_an_empty_topic_makes_no_files(logs: Logs, to: Path, run: Export) -> None:
    logs.vnode()
    assert run().files == 0
    assert names(to) == []


def test_what_retention_took_between_two_runs_is_told(logs: Logs, to: Path, run: Export) -> None:
    logs.write(numbers(0, 6))
    run()
    logs.write(numbers(6, 90))
    second = logs.vnode().segments[2].base_offset
    logs.vnode().truncate_prefix(second)
    totals = run()
    assert totals.warnings == [f"t-0: offsets 6 to {second - 1} were gone before they were exported"]
    assert offsets(to) == [*range(6), *range(second, 90)]
    assert run().warnings == []


def test_records_that_go_while_they_are_read(logs: Logs, to: Path) -> None:
    logs.write(numbers(0, 90))
    logs.vnode().truncate_prefix(logs.vnode().segments[2].base_offset)
    outcome = export_partition(ExportPlan(str(logs.path), str(to), "raw", "", 1000), Work("t", 0, 0, 90))
    assert outcome.error.startswith("t-0: offsets 0 to ")
    assert outcome.error.endswith("start the export again, it goes on behind them")


def test_a_new_topic_under_an_old_name_is_refused(logs: Logs, to: Path, run: Export) -> None:
    logs.write(numbers(0, 9), partition=0)
    logs.write(numbers(0, 9), partition=1)
    run()
    shutil.rmtree(logs.path / "t-0")
    del logs.vnodes["t", 0]
    logs.write(numbers(0, 3))
    logs.write(numbers(9, 12), partition=1)
    totals = run()
    assert (totals.rows, len(totals.errors)) == (3, 1)
    assert totals.errors[0].startswith("t-0: offsets before 9 are exported, but the log ends at 3")


@pytest.mark.parametrize("count", [9, 30])
def test_a_new_topic_that_has_grown_as_long_is_refused(logs: Logs, to: Path, run: Export, count: int) -> None:
    for partition in range(2):
        logs.write(numbers(0, 9), partition=partition)
    run()
    shutil.rmtree(logs.path / "t-0")
    del logs.vnodes["t", 0]
    logs.write(numbers(0, count))
    logs.write(numbers(9, 12), partition=1)
    metadata = logs.path / "t-0" / "partition.metadata"
    metadata.write_text(metadata.read_text().replace("AAECAwQ", "EAECAwQ"))
    totals = run()
    assert totals.rows == 3
    assert totals.errors == ["t-0: is of a new topic of the same name: export to another folder"]
    assert offsets(to) == list(range(9))


def test_a_topic_that_is_made_again_while_it_is_exported(logs: Logs, to: Path) -> None:
    logs.write(numbers(0, 9))
    work = Work("t", 0, 0, 9, logs.log_dir().topic_id(("t", 0)))
    logs.make_again(numbers(0, 30))
    outcome = export_partition(ExportPlan(str(logs.path), str(to), "raw", "", 1000), work)
    assert (outcome.rows, outcome.files) == (0, 0)
    assert outcome.error == (
        "t-0: offsets 0 to 8 are gone; the topic was deleted meanwhile, and made again: export to another folder"
    )


def test_files_of_an_export_that_did_not_note_the_topic_are_gone_on_with(logs: Logs, to: Path, run: Export) -> None:
    logs.write(numbers(0, 9))
    run()
    path = to / "topic=t" / "partition=0" / f"{0:020}-{8:020}.parquet"
    rows = parquet.read_table(path, partitioning=None)
    assert rows.schema.metadata[b"barnabas.topic.id"] == b"AAECAwQFBgcICQoLDA0ODw"
    parquet.write_table(rows.replace_schema_metadata(), path)
    logs.write(numbers(9, 12))
    assert (run().rows, run().errors) == (3, [])


def test_a_damaged_last_file_is_named_with_the_remedy_and_stops_only_its_partition(
    logs: Logs, to: Path, run: Export
) -> None:
    logs.write(numbers(0, 9))
    run()
    path = to / "topic=t" / "partition=0" / f"{0:020}-{8:020}.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    logs.write(numbers(9, 12))
    logs.write(numbers(0, 5), partition=1)
    told = run()
    (error,) = told.errors
    assert re.search(r"000008\.parquet cannot be read .*: delete it, and the export writes it again", error)
    assert told.rows == 5
    path.unlink()
    assert run().rows == 12


def test_damage_is_told_and_the_files_before_it_stay(logs: Logs, to: Path) -> None:
    logs.write(numbers(0, 60))
    path = logs.path / "t-0" / logs.vnode().segments[1].path().rpartition("/")[2]
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(bytes(data))
    outcome = export_partition(ExportPlan(str(logs.path), str(to), "raw", "", 1), Work("t", 0, 0, 60))
    assert "is damaged between bytes" in outcome.error
    assert outcome.rows > 0
    assert offsets(to) == list(range(outcome.rows))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topics": ("none",)}, "there is no topic none in"),
        ({"topics": ()}, "no topic is named: name one, or give a --pattern"),
        ({"pattern": "("}, "is not a regular expression"),
        ({"pattern": "x.*"}, "no topic matches x.*: there are t"),
        ({"data_dir": "/nonexistent"}, "/nonexistent is not a data directory"),
        ({"schema": "a int"}, "--schema is for --format json: leave it out"),
        ({"format": "json", "schema": "a map"}, "map is not a type for values"),
        ({"format": "json", "schema": "_offset string"}, "_offset of type string cannot be made"),
    ],
)
def test_refusals_before_anything_is_written(
    logs: Logs, to: Path, run: Export, options: dict[str, Any], told: str
) -> None:
    logs.write(numbers(0, 3))
    with pytest.raises(WalError) as caught:
        run(**options)
    assert told in str(caught.value)
    assert not to.exists()


def test_folders_that_are_not_this_exports_are_refused(logs: Logs, to: Path, run: Export) -> None:
    logs.write(numbers(0, 3))
    with pytest.raises(WalError, match="lies in the data directory"):
        run(to=str(logs.path / "out"))
    marks = {"cluster.id": "test-cluster", "format": "raw", "schema": ""}
    with claim(to, marks), pytest.raises(WalError, match="another export writes to"):
        run()
    write_properties(Io(), str(logs.path / "meta.properties"), {"version": "1", "cluster.id": "b", "node.id": "1"})
    with pytest.raises(WalError, match=r"holds an export with cluster\.id test-cluster, this one has b: take another"):
        run()
    (to / "_barnabas_export.json").write_text("{")
    with pytest.raises(WalError, match="is damaged: take another folder"):
        run()
    (to / "_barnabas_export.json").rename(to / "photos")
    with pytest.raises(WalError, match="has files that are no export's"):
        run()
    (to / "file").touch()
    with pytest.raises(WalError, match="cannot write to"):
        run(to=str(to / "file"))


def test_a_worker_of_a_killed_run_is_waited_for(logs: Logs, to: Path) -> None:
    """While another process holds the partition's folder, a task neither reads its position nor removes its file."""
    logs.write(numbers(0, 3))
    work = "from barnabas.streams.export import *; import sys; print(export_partition(ExportPlan(*sys.argv[1:3], 'raw', '', 9), Work('t', 0, 0, 3)).files)"  # noqa: E501
    with opened(to, ("t", 0)) as folder:
        task = subprocess.Popen(
            [sys.executable, "-c", work, logs.path, to], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        (folder / f"{0:020}-{1:020}.parquet").touch()
    assert task.communicate()[0] == "1\n"
    assert names(to) == [(0, 1), (2, 2)]


KILLED = """
import os, signal, sys
from barnabas.streams.export import ExportPlan, Work, export_partition
sync, left = os.fsync, int(sys.argv[3])
def fsync(fd):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    sync(fd)
os.fsync = fsync
export_partition(ExportPlan(*sys.argv[1:3], "raw", "", 10), Work("t", 0, 0, 35))
"""


@pytest.mark.parametrize("at", range(1, 11, 3))
def test_killed_at_any_step(logs: Logs, to: Path, at: int) -> None:
    """The steps are those that reach the disk: the folder's names, the file's bytes, its new name."""
    logs.write(numbers(0, 35))
    command = [sys.executable, "-c", KILLED, str(logs.path), str(to), str(at)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert export_partition(ExportPlan(str(logs.path), str(to), "raw", "", 10), Work("t", 0, 0, 35)).error == ""
    assert exported(to)["value"].to_pylist() == numbers(0, 35)
    assert [one for one in to.rglob("*") if one.name.endswith(".tmp")] == []


def test_progress_is_that_of_this_run(logs: Logs, to: Path, run: Export) -> None:
    logs.write(numbers(0, 10))
    run()
    logs.write(numbers(10, 40))
    logs.write(numbers(0, 30), partition=1)
    progress = Progress(to, [Work("t", 0, 0, 40), Work("t", 1, 0, 30)])
    assert progress.look() == (0, 0, 0, 0.0)
    export_partition(ExportPlan(str(logs.path), str(to), "raw", "", 7), Work("t", 0, 0, 40))
    seen = progress.look()
    assert (seen.rows, seen.done, seen.part) == (30, 1, 0.5)
    assert seen.bytes == sum(
        path.stat().st_size for span, path in finished(partition_folder(to, ("t", 0))).items() if span != Span(0, 9)
    )


def test_progress_for_people() -> None:
    half = Seen(1_234_567, 7_000_000, 1, 0.5)
    assert half.text(3) == "50%, 1,234,567 rows, 7.0 MB, 1 of 3 partitions"


def command(logs: Logs, to: Path, *options: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "barnabas", "export", "t", "--data-dir", str(logs.path), "--to", str(to), *options],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("script", "told"),
    [(None, "has none: install it"), ("echo 'java version \"1.8.0_392\"' >&2", "is Java 8")],
)
def test_without_a_java_that_will_do(logs: Logs, to: Path, tmp_path: Path, script: str | None, told: str) -> None:
    logs.write(numbers(0, 3))
    if script:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
    process = command(logs, to, JAVA_HOME=str(tmp_path))
    _, errors = process.communicate()
    assert process.returncode == 1
    assert len(errors.splitlines()) == 1
    assert told in errors


def test_sparks_own_words_stay_away(logs: Logs, to: Path) -> None:
    logs.write(numbers(0, 3))
    process = command(logs, to)
    said, errors = process.communicate()
    assert process.returncode == 0, errors
    assert said.startswith("3 rows in 1 files")
    assert [line for line in errors.splitlines() if not re.match(r"\d+%, \d+ rows", line)] == []


def test_why_java_ended_at_its_start_is_told(logs: Logs, to: Path) -> None:
    logs.write(numbers(0, 3))
    process = command(logs, to, PYSPARK_SUBMIT_ARGS="--driver-memory 900000g pyspark-shell")
    _, errors = process.communicate()
    assert process.returncode == 1
    last = errors.splitlines()[-1]
    assert "Spark (master local[2]) does not start: Error occurred during initialization of VM; " in last
    assert "heap" in last


def test_a_master_that_is_none(logs: Logs, to: Path) -> None:
    logs.write(numbers(0, 3))
    process = command(logs, to, "--master", "nonsense")
    _, errors = process.communicate()
    assert process.returncode == 1
    assert "nonsense" in errors.splitlines()[-1]
    assert " at " not in errors.splitlines()[-1]


def test_a_time_that_is_none(logs: Logs, to: Path) -> None:
    process = command(logs, to, "--from", "noon")
    _, errors = process.communicate()
    assert (process.returncode, errors.splitlines()) == (
        1,
        ["barnabas: --from noon: expected earliest, milliseconds since 1970, or a time like 2024-05-01T12:00:00Z"],
    )


@pytest.mark.long
def test_the_command_killed_in_the_middle_and_started_again(tmp_path: Path, to: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("there is no Java on this machine")
    logs = Logs(tmp_path / "data", LogConfig())
    for partition in range(3):
        logs.write(numbers(0, 60_000), partition=partition, each=1000)
    process = command(logs, to, "--master", "local[1]", "--rows-per-file", "50")
    assert process.stderr is not None
    assert any(" rows, " in line for line in process.stderr)  # the first files are there
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert len(list(to.rglob("*.parquet"))) < 3 * 60_000 // 50
    again = command(logs, to, "--master", "local[2]", "--from", "2020-01-01T00:00:00Z")
    told, errors = again.communicate()
    assert again.returncode == 0, errors
    assert told.splitlines()[-1].endswith(f"to {to}")
    for partition in range(3):
        found = exported(to, partition=partition)
        assert found["offset"].to_pylist() == list(range(60_000))
        assert found["value"].to_pylist() == numbers(0, 60_000)
    assert json.loads((to / "_barnabas_export.json").read_text())["format"] == "raw"
