"""Reader and writer of a query's tasks, without Spark: the final content of a broker's log, after any failures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.client.produce import Batch
from barnabas.streams.query import direct as direct_tasks
from barnabas.streams.query import sink
from barnabas.streams.query.direct import Direct
from barnabas.streams.query.errors import MalformedRecordError
from barnabas.streams.query.parts import END, UNREADABLE
from barnabas.streams.query.scan import Scan
from barnabas.streams.query.simple import Simple
from barnabas.streams.query.sink import MALFORMED, MARK, REASON_HEADER, ROW, Output, Sink
from barnabas.streams.query.tick import Part, Tick, piece_of
from barnabas.streams.schema import parse_ddl
from barnabas.streams.source.where import Condition
from barnabas.streams.tests.support import Logs
from barnabas.streams.wal import COLUMNS, LogDir
from barnabas.streams.wal import plan as plan_splits
from barnabas.wire.batch import check, iter_records
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_topics import CreatableTopicResult
from barnabas.wire.messages.produce import PartitionProduceResponse
from barnabas.wire.queries.plan import Values

PRODUCER = 5
Answers = dict[tuple[str, int], PartitionProduceResponse]
HEADERS = COLUMNS["headers"]
WERE = pa.struct(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("headers", HEADERS),
        pa.field("reason", pa.string()),
    ]
)
ROWS = pa.schema(
    [
        pa.field("query", pa.int32()),
        pa.field("kind", pa.int32()),
        pa.field("_partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("headers", HEADERS),
        pa.field("reason", pa.string()),
    ]
)


class Broken(Exception):
    """The task dies here."""


class FakeBroker:
    """Logs that accept a batch only at their end, like the broker's. It can die before or after any request.

    The caller learns of that with the answer, and must have received it before it sends anything else.
    """

    def __init__(self) -> None:
        self.ends: dict[str, int] = {}
        self.records: dict[str, list[tuple[int, bytes | None, Any]]] = {}
        self.requests = 0
        self.dies_at: tuple[int, bool] | None = None  # the number of the request, and whether it is still carried out
        self.owes_answer = False

    def post(self, _: object, batches: list[Batch], **__: object) -> Answers | None:
        """The answer for later; None is an answer that will not come."""
        assert not self.owes_answer
        self.owes_answer = True
        self.requests += 1
        dies = self.dies_at is not None and self.requests == self.dies_at[0]
        if dies and self.dies_at is not None and not self.dies_at[1]:
            return None
        answers = {}
        for topic, partition, data in batches:
            header = check(data)
            assert header.producer_id == PRODUCER
            code = ErrorCode.NONE
            if header.base_offset != self.ends[topic]:
                code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            else:
                self.ends[topic] = header.last_offset + 1
                self.records.setdefault(topic, []).extend(
                    (r.offset, r.value, dict(r.headers)) for r in iter_records(data)
                )
            answers[topic, partition] = PartitionProduceResponse(index=partition, error_code=code)
        return None if dies else answers

    def answers(self, posted: Answers | None) -> Answers:
        assert self.owes_answer
        self.owes_answer = False
        if posted is None:
            raise Broken
        return posted


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    made = FakeBroker()
    connect(monkeypatch, made)
    return made


def connect(monkeypatch: pytest.MonkeyPatch, broker: FakeBroker) -> None:
    def create(_: object, name: str, configs: dict[str, str]) -> CreatableTopicResult:
        assert not broker.owes_answer
        query = configs["barnabas.query.dead.letter.of"]
        if name in broker.ends:
            return CreatableTopicResult(name=name, error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
        broker.ends[name] = broker.ends[query]
        return CreatableTopicResult(name=name)

    def offsets(_: object, keys: list[tuple[str, int]], __: object) -> dict[tuple[str, int], int]:
        assert not broker.owes_answer
        return {key: broker.ends[key[0]] for key in keys}

    monkeypatch.setattr(sink, "_take_cluster", lambda _: broker)
    monkeypatch.setattr(sink, "post", broker.post)
    monkeypatch.setattr(sink, "answers", broker.answers)
    monkeypatch.setattr(sink, "_clusters", {})
    monkeypatch.setattr(sink, "create_topic", create)
    monkeypatch.setattr(sink, "list_offsets", offsets)


def row(query: int, kind: int, offset: int, value: bytes | None = None, reason: str | None = None) -> dict[str, Any]:
    return {
        "query": query,
        "kind": kind,
        "_partition": 0,
        "offset": offset,
        "key": b"k",
        "value": value,
        "timestamp": None,
        "headers": None,
        "reason": reason,
    }


def batches(rows: list[dict[str, Any]], size: int = 7) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(rows[at : at + size], schema=ROWS)


def run(
    monkeypatch: pytest.MonkeyPatch, made: Sink, tick: Tick, rows: list[dict[str, Any]], again: bool = False
) -> list[Any]:
    monkeypatch.setattr(sink, "current", lambda: (tick, 0, again))
    return [one for batch in made(batches(rows)) for one in batch.to_pylist()]


def test_every_query_is_brought_to_the_end_of_the_tick(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.ends = {"some": 10, "none": 12}
    rows = [row(0, ROW, 11, b"a"), row(0, ROW, 15, b"b"), row(-1, MARK, 40)]
    tick = Tick(PRODUCER, [Part("s", 0, 10, 40, [], [10, 12])])
    outputs = [Output("some", True, "skip"), Output("none", True, "skip")]
    report = run(monkeypatch, Sink("", outputs), tick, rows)
    assert broker.ends == {"some": 40, "none": 40}
    assert broker.records == {"some": [(11, b"a", {}), (15, b"b", {})], "none": []}
    assert broker.requests == 1, "both queries' batches go in one request, the gap after them in the same batch"
    assert [(r["query"], r["written"], r["next"]) for r in report] == [(0, 2, 40), (1, 0, 40)]


def test_results_that_come_a_few_at_a_time_share_a_batch(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.ends = {"q": 0}
    rows = [*(row(0, ROW, n, b"%d" % n) for n in range(0, 700, 7)), row(-1, MARK, 700)]
    report = run(
        monkeypatch, Sink("", [Output("q", True, "skip")]), Tick(PRODUCER, [Part("s", 0, 0, 700, [], [0])]), rows
    )
    assert [offset for offset, _, _ in broker.records["q"]] == list(range(0, 700, 7))
    assert broker.requests == 1
    assert [(r["written"], r["next"]) for r in report] == [(100, 700)]


def test_rows_without_their_mark_are_no_end(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.ends = {"q": 0}
    tick = Tick(PRODUCER, [Part("s", 0, 0, 40, [], [0])])
    with pytest.raises(RuntimeError):
        run(monkeypatch, Sink("", [Output("q", True, "skip")]), tick, [row(0, ROW, 11, b"a")])
    assert broker.ends == {"q": 0}


def test_a_query_that_is_to_stop_says_where(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.ends = {"q": 0}
    tick = Tick(PRODUCER, [Part("s", 0, 0, 40, [], [0])])
    with pytest.raises(MalformedRecordError, match="s-0: the record at offset 12 does not fit: no object"):
        run(monkeypatch, Sink("", [Output("q", True, "fail")]), tick, [row(-1, MALFORMED, 12, b"x", "no object")])


TROUBLE = {
    "kinds": st.lists(st.sampled_from(["both", "first", "neither", "bad"]), min_size=1, max_size=60),
    "deaths": st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=4),
    "cuts": st.sets(st.integers(0, 60), max_size=3),
    "flush": st.sampled_from([1, 200, 1 << 22]),
}
OUTPUTS = [Output("a", True, "dead-letter"), Output("b", False, "dead-letter")]


def in_ticks(
    broker: FakeBroker,
    count: int,
    deaths: list[tuple[int, bool]],
    cuts: set[int],
    task: Callable[[int, int, bool], Any],
) -> None:
    """Let a task bring both queries to the end of `count` records, tick by tick, with a retry whenever it dies."""
    broker.ends = {"a": 0, "b": 0}
    lo = 0
    for hi in sorted({cut for cut in cuts if 0 < cut < count} | {count}):
        again = False
        while True:
            broker.requests, broker.dies_at = 0, deaths.pop() if deaths else None
            broker.owes_answer = False  # a new attempt has a new connection
            try:
                task(lo, hi, again)
                break
            except Broken:
                again = True
        lo = hi


def check_offsets(broker: FakeBroker, kinds: list[str]) -> None:
    """Each record is there exactly once, in order, in the right place."""
    assert broker.ends["a"] == broker.ends["b"] == len(kinds)
    offsets = {name: [offset for offset, _, _ in found] for name, found in broker.records.items()}
    assert offsets.get("a", []) == [n for n, kind in enumerate(kinds) if kind in ("both", "first")]
    assert offsets.get("b", []) == [n for n, kind in enumerate(kinds) if kind == "both"]
    assert offsets.get("a.dead-letter", []) == [n for n, kind in enumerate(kinds) if kind == "bad"]
    assert all(found[REASON_HEADER] for _, _, found in broker.records.get("a.dead-letter", []))


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(**TROUBLE)
def test_whatever_fails_each_record_is_there_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, kinds: list[str], deaths: list[tuple[int, bool]], cuts: set[int], flush: int
) -> None:
    broker = FakeBroker()
    connect(monkeypatch, broker)
    monkeypatch.setattr(sink, "_FLUSH_BYTES", flush)

    def task(lo: int, hi: int, again: bool) -> None:
        rows: list[dict[str, Any]] = []
        for offset in range(lo, hi):
            value = b"%d" % offset
            rows += [row(0, ROW, offset, value)] * (kinds[offset] in ("both", "first"))
            rows += [row(1, ROW, offset, value)] * (kinds[offset] == "both")
            rows += [row(-1, MALFORMED, offset, value, "why")] * (kinds[offset] == "bad")
        tick = Tick(PRODUCER, [Part("s", 0, lo, hi, [], [lo, lo])])
        run(monkeypatch, Sink("", OUTPUTS), tick, [*rows, row(-1, MARK, hi)], again)

    in_ticks(broker, len(kinds), deaths, cuts, task)
    check_offsets(broker, kinds)
    assert all(value == b"%d" % offset for found in broker.records.values() for offset, value, _ in found)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(**TROUBLE)
def test_so_it_is_without_the_jvm(
    monkeypatch: pytest.MonkeyPatch, kinds: list[str], deaths: list[tuple[int, bool]], cuts: set[int], flush: int
) -> None:
    broker = FakeBroker()
    connect(monkeypatch, broker)
    monkeypatch.setattr(sink, "_FLUSH_BYTES", flush)
    texts = {"both": '{"b": 1, "a": %d}', "first": '{"a": %d}', "neither": '{"c": %d}', "bad": '{"a": "%d"}'}
    values = [(texts[kind] % number).encode() for number, kind in enumerate(kinds)]
    queries = [
        Simple((Condition("IsNotNull", "a"),), "_key", "_timestamp", "", (("n", "a"),)),
        Simple((Condition("StringStartsWith", "_value", '{"b"'),), "_key", "_timestamp", "_value", ()),
    ]
    with TemporaryDirectory() as folder:
        logs = Logs(Path(folder))
        logs.write(values, "s")
        columns = target("a", "_value", "_key", "_timestamp", "_headers")
        direct = Direct(Scan(columns, parse_ddl("a BIGINT")), queries, Sink("", OUTPUTS))

        def task(lo: int, hi: int, again: bool) -> None:
            part = part_of(logs, lo, hi, [lo, lo])
            monkeypatch.setattr(direct_tasks, "current", lambda: (Tick(PRODUCER, [part]), 0, again))
            (report,) = direct(iter([pa.RecordBatch.from_pydict({"id": [0]})]))
            assert report.column("next").to_pylist() == [hi, hi]

        in_ticks(broker, len(kinds), deaths, cuts, task)
    check_offsets(broker, kinds)
    assert all(value == b'{"n":%d}' % offset for offset, value, _ in broker.records.get("a", []))
    for name in ("b", "a.dead-letter"):
        assert all(value == values[offset] for offset, value, _ in broker.records.get(name, []))


def target(*names: str) -> pa.Schema:
    kinds = {
        "a": pa.int64(),
        "_key": pa.string(),
        "_value": pa.string(),
        "_timestamp": WERE.field("timestamp").type,
        "_headers": HEADERS,
        "_offset": pa.int64(),
        "_partition": pa.int32(),
        UNREADABLE: WERE,
        END: pa.bool_(),
    }
    return pa.schema([pa.field(name, kinds[name]) for name in (*names, "_offset", "_partition", UNREADABLE, END)])


def part_of(logs: Logs, lo: int, hi: int, ends: list[int]) -> Part:
    splits = plan_splits(LogDir(logs.path), {("s", 0): (lo, hi)})
    return Part("s", 0, lo, hi, [piece_of(split) for split in splits], ends)


def scanned(scan: Scan, logs: Logs, hi: int) -> list[dict[str, Any]]:
    tick = Tick(PRODUCER, [part_of(logs, 0, hi, [0])])
    return [one for batch in scan.rows(tick, 0) for one in batch.to_pylist()]


def test_values_are_parsed_and_what_does_not_fit_is_said(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    values = [b'{"a": 1}', b'{"a": "x"}', None, b"[1]", b'{"b": 2}', json.dumps({"a": 7}, indent=1).encode()]
    logs.write(values, "s")
    *rows, mark = scanned(Scan(target("a", "_value"), parse_ddl("a BIGINT")), logs, len(values))
    assert [r["a"] for r in rows] == [1, None, None, None, None, 7]
    unreadable = [r[UNREADABLE] and r[UNREADABLE]["value"] for r in rows]
    assert unreadable == [None, values[1], None, values[3], None, None]
    assert "JSON" in rows[1][UNREADABLE]["reason"]
    assert rows[3][UNREADABLE]["reason"] == "the value is not one JSON object"
    assert [r["_value"] for r in rows] == [None if v is None else v.decode() for v in values]
    assert [r["_offset"] for r in rows] == list(range(6))
    assert not any(r[END] for r in rows)
    assert (mark[END], mark["_offset"], mark["_partition"]) == (True, 6, 0)


def test_a_partition_with_nothing_new_gives_nothing_not_even_the_mark(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    logs.write([b"x"], "s")
    assert scanned(Scan(target(), pa.schema([])), logs, 0) == []


def test_avro_values_are_read_with_the_schema_that_wrote_them(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    logs.write([b"\0\0\0\0\1\x0e", b"\0\0\0\0\1"], "s")
    written = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    avro = Values(format="avro", avro_schema=json.dumps(written), avro_framing="confluent")
    *rows, _ = scanned(Scan(target("a"), parse_ddl("a BIGINT"), avro), logs, 2)
    assert [r["a"] for r in rows] == [7, None]
    assert rows[1][UNREADABLE]["reason"] == "the value does not fit the schema as avro"


def test_rows_that_no_query_wants_are_left_out_but_never_unreadable_ones(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    logs.write([b'{"a": %d}' % n for n in range(8)] + [b"bad", b"{}"], "s")
    kept: list[tuple[Condition, ...]] = [
        (Condition("LessThan", "a", 2),),
        (Condition("GreaterThan", "a", 4), Condition("LessThan", "a", 7)),
    ]
    *rows, mark = scanned(Scan(target("a"), parse_ddl("a BIGINT"), Values(format="json"), kept), logs, 10)
    assert [(r["_offset"], r["a"]) for r in rows] == [(0, 0), (1, 1), (5, 5), (6, 6), (8, None)]
    assert rows[-1][UNREADABLE]["value"] == b"bad"
    assert mark[END]
