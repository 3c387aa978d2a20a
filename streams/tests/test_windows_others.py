"""The other topic of a join, as the source and its workers read it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructField, StructType, TimestampType

from barnabas.storage.config import LogConfig
from barnabas.streams.query.source_rows import value_columns
from barnabas.streams.tests.support import NEXT_TOPIC_ID, NOW, TOPIC_ID, Logs, numbers
from barnabas.streams.tests.windows_support import NOWHERE
from barnabas.streams.wal import NewTopicError
from barnabas.streams.windows import others, source
from barnabas.streams.windows.others import OTHER, Other, OtherRows, Table, other_schema
from barnabas.streams.windows.source import StreamDataSource, ends_of, write_mark
from barnabas.streams.windows.watched import CLOSE
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.queries.plan import Values
from barnabas.wire.streams.plan import JoinedReads

JSON = Values(format="json", schema="site STRING, floor INT")
pytestmark = pytest.mark.usefixtures("spark")  # its JVM parses schemas
ALL = ReadAllAvailable()
Changes = Iterable[tuple[bytes | None, bytes | None]]


def keyed(logs: Logs, changes: Changes, topic: str = "devices", partition: int = 0) -> None:
    """Records with these keys and values, each in a batch of its own."""
    vnode = logs.vnode(topic, partition)
    for key, value in changes:
        vnode.append(bytearray(build_batch([Record(key, value, NOW)])), now_ms=NOW)
    logs.write([], topic, partition)


def reads(values: Values = JSON, *, topic_id: str = "", is_table: bool = True) -> JoinedReads:
    return JoinedReads(
        source="devices", source_id=topic_id, is_table=is_table, format=values.format, schema=values.schema
    )


def rows(of: JoinedReads, column: str = "value") -> OtherRows:
    kind = StructType([StructField(OTHER, other_schema(value_columns(of.values)))])
    return OtherRows(Other(of, column), to_arrow_schema(kind, timezone="UTC").field(OTHER).type)


def table(logs: Logs, of: JoinedReads | None = None) -> Table:
    return Table(str(logs.path), NOWHERE, rows(of or reads()))


def found(made: Table, *keys: bytes, column: str = "site") -> list[Any]:
    return [None if row is None else row[column] for row in made.find(pa.array(keys, pa.binary())).to_pylist()]


def site(name: str) -> bytes:
    return b'{"site": "%s", "floor": 1}' % name.encode()


def test_a_table_has_the_latest_value_of_each_key(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    keyed(logs, [(b"a", site("x")), (b"b", site("y")), (b"a", site("z")), (None, site("nobody's"))])
    keyed(logs, [(b"c", site("w"))], partition=1)
    made = table(logs)
    made.advance({0: 4, 1: 1})
    assert found(made, b"a", b"b", b"c", b"d", b"a") == ["z", "y", "w", None, "z"]
    assert made.find(pa.nulls(2, pa.binary())).to_pylist() == [None, None]
    keyed(logs, [(b"b", None), (b"a", b"no json"), (b"c", site("new")), (b"d", site("v"))])
    made.advance({0: 5, 1: 1})
    assert found(made, b"a", b"b") == ["z", None], "a tombstone, as far as the offsets say"
    made.advance({0: 8, 1: 1})
    assert found(made, b"a", b"b", b"c", b"d") == [None, None, "new", "v"]
    assert len(made) == 2
    made.advance({0: 4, 1: 1})
    assert found(made, b"a", b"b", b"c", b"d") == [None, None, "new", "v"], "it does not go back"
    (row,) = made.find(pa.array([b"d"])).to_pylist()
    assert (row["_key"], row["_offset"], row["_partition"], row["floor"]) == ("d", 7, 0, 1)


def test_a_key_of_which_compaction_has_left_only_a_newer_value_has_that(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    keyed(logs, [(b"a", site("then")), (b"b", site("later")), (b"b", site("latest")), (b"a", site("now"))])
    made = table(logs)
    made.advance({0: 1})
    assert found(made, b"a", b"b") == ["then", "later"]
    made.advance({0: 4})
    assert found(made, b"a", b"b") == ["now", "latest"]


def test_a_worker_that_reads_a_table_from_its_beginning_sees_what_is_deleted(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    keyed(logs, [(b"a", site("x")), (b"a", None), (b"b", site("y")), (b"b", b"no json"), (b"c", site("z"))])
    made = table(logs)
    made.advance({0: 4})
    assert found(made, b"a", b"b", b"c") == [None, None, "z"]


def test_many_changes_of_few_keys_take_the_memory_of_few(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data", LogConfig(segment_bytes=20_000, index_interval_bytes=1000))
    made = table(logs)
    for turn in range(1, 40):
        keyed(logs, [(b"k%d" % number, site(f"{turn}")) for number in range(10)])
        made.advance({0: 10 * turn})
        assert found(made, b"k0", b"k9") == [f"{turn}"] * 2
    assert len(made) == 10
    assert len(made._old) <= 50


def test_a_table_of_a_topic_without_a_schema_has_texts(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    keyed(logs, [(b"a", b"anything")])
    made = table(logs, reads(Values()))
    made.advance({0: 1})
    assert found(made, b"a", column="_value") == ["anything"]


def test_a_table_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(others, "MAX_TABLE_BYTES", 20_000)
    logs = Logs(tmp_path / "data")
    keyed(logs, [(b"k%d" % (number % 7), site("x" * 100)) for number in range(300)])
    made = table(logs)
    made.advance({0: 300})
    assert len(made) == 7, "what is replaced does not count"
    keyed(logs, [(b"k%d" % number, site("x" * 100)) for number in range(300)])
    with pytest.raises(RuntimeError, match=r"joined with, devices, has .* keys and .* join a smaller topic"):
        made.advance({0: 600})


def test_a_table_that_was_made_again_is_another_one(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    keyed(logs, [(b"a", site("x"))])
    made = table(logs, reads(topic_id=str(uuid.UUID(bytes=TOPIC_ID))))
    made.advance({0: 1})
    assert found(made, b"a") == ["x"]
    with pytest.raises(NewTopicError):
        table(logs, reads(topic_id=str(uuid.UUID(bytes=NEXT_TOPIC_ID)))).advance({0: 1})


# --- the source -------------------------------------------------------------------------------------------------------


def reader(logs: Logs, of: JoinedReads, tmp_path: Path) -> Any:
    inner = other_schema(value_columns(of.values))
    topics = "t" if of.is_table else "t,devices"
    options = {"path": str(logs.path), "topics": topics, "bootstrap.servers": NOWHERE, "startingOffsets": "earliest"}
    made = StreamDataSource({**options, "closeFile": str(tmp_path / "close"), "joined": Other(of, "value").encode()})
    fields = StructType.fromDDL("value binary, offset bigint")
    assert isinstance(fields, StructType)
    schema = StructType([*fields.fields, StructField(CLOSE, TimestampType()), StructField(OTHER, inner)])
    return made.streamReader(schema)


def batch(made: Any, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    batches = [each for part in made.partitions(start, end) for each in made.read(part)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_records_are_joined_with_the_table_of_their_batch_or_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_tables", {})
    logs = Logs(tmp_path / "data")
    logs.write(numbers(0, 3))
    keyed(logs, [(b"1", site("x"))])
    made = reader(logs, reads(), tmp_path)
    start = made.initialOffset()
    first = made.latestOffset(start, ALL)
    assert ends_of(first) == {("t", 0): 3}, "the table is no backlog"
    assert [row[OTHER] and row[OTHER]["site"] for row in batch(made, start, first)] == [None, "x", None]
    keyed(logs, [(b"1", site("y")), (b"3", site("z"))])
    assert made.latestOffset(first, ALL) == first, "a change of the table is no batch"
    logs.write([b"1", b"3"])
    second = made.latestOffset(first, ALL)
    assert [row[OTHER]["site"] for row in batch(made, first, second)] == ["y", "z"]
    source._tables.clear()  # a repeated batch, in another worker
    assert [row[OTHER] and row[OTHER]["site"] for row in batch(made, start, first)] == [None, "x", None]
    write_mark(str(tmp_path / "close"), NOW)
    third = made.latestOffset(second, ALL)
    (mark,) = batch(made, second, third)
    assert (mark[OTHER], mark["value"]) == (None, None)


def test_a_table_that_nobody_asks_for_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_tables", {("gone", "x"): (-source._FORGET_SECONDS, None)})
    logs = Logs(tmp_path / "data")
    logs.write([b"1"])
    keyed(logs, [(b"1", site("x"))])
    made = reader(logs, reads(), tmp_path)
    start = made.initialOffset()
    assert batch(made, start, made.latestOffset(start, ALL))[0][OTHER]["site"] == "x"
    assert [path for path, _ in source._tables] == [str(logs.path)]


def test_of_two_streams_there_are_the_rows_of_both(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    logs.write(numbers(0, 2))
    keyed(logs, [(b"1", site("x")), (b"2", b"no json")])
    made = reader(logs, reads(is_table=False), tmp_path)
    start = made.initialOffset()
    end = made.latestOffset(start, ALL)
    assert ends_of(end) == {("t", 0): 2, ("devices", 0): 2}
    own = [row["value"] for row in batch(made, start, end) if row[OTHER] is None]
    theirs = [row for row in batch(made, start, end) if row[OTHER] is not None]
    assert own == numbers(0, 2)
    assert [row["value"] for row in theirs] == [None, None]
    assert [(row[OTHER]["_key"], row[OTHER]["site"], row[OTHER]["_corrupt_record"]) for row in theirs] == [
        ("1", "x", None),
        ("2", None, "no json"),
    ]
