"""Records that meet a condition, without a broker: which texts are one, the windows, and the process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barnabas.storage.config import LogConfig
from barnabas.streams.query.errors import QueryError
from barnabas.streams.select import where
from barnabas.streams.select.errors import NeedsSpark
from barnabas.streams.select.where import Request, Row, Search, planned, taken
from barnabas.streams.tests.support import NEXT_TOPIC_ID, TOPIC_ID, Logs
from barnabas.streams.wal import WalError
from barnabas.wire.queries.plan import Values
from barnabas.wire.uuids import encode_uuid

VALUES = Values(format="json", schema="device STRING, n INT, `my-col` STRING")


def request(path: Path, condition: str, **given: Any) -> Request:
    return Request(
        **{
            "data_dir": str(path),
            "topic": "t",
            "topic_id": encode_uuid(TOPIC_ID),
            "values": VALUES,
            "condition": condition,
            "at": {0: 0},
            "until": {0: 0},
            "back": True,
            "limit": 100,
            "memory": 2 << 30,
            "cpu_seconds": 600,
            **given,
        }
    )


@pytest.mark.parametrize(
    "condition",
    [
        "n = 1; DROP TABLE t",
        "n = 1 OR n IN (SELECT n FROM secret)",
        "EXISTS (SELECT 1 FROM secret)",
        "(SELECT max(n) FROM secret) > 1",
        "n = 1) UNION SELECT _partition, _offset FROM secret WHERE (1 = 1",
        "n = 1 UNION SELECT 1, 1 FROM secret",
        "secret.n = 1",
        "n = 1 ORDER BY n",
        "n = 1 LIMIT 1",
        "n = 1 AS x",
        "parquet.`/etc/passwd`.n = 1",
        "`/etc/passwd` = 1",
        "${env:HOME} = 1",
        ":name = 1",
        "@n = 1",
        "n = ?",
        "current_user() = 'x'",
        "current_user = 'x'",
        "java_method('java.lang.System', 'exit', 1) = 1",
        "count(*) > 1",
        "row_number() OVER (ORDER BY n) = 1",
        "n",
        "n +",
        "",
        "n = 1 -- and more\n) OR (1",
        "/* hint */ n = 1",
        "device = 'open",
        "(" * 200 + "n" + ")" * 200 + " = 1",
        "NOT " * 200 + "n = 1",
        "device RLIKE '(a+)+$'",
    ],
)
def test_only_one_condition_over_one_topic_is_planned(tmp_path: Path, condition: str) -> None:
    with pytest.raises((NeedsSpark, QueryError)):
        planned(request(tmp_path, condition))


@pytest.mark.parametrize(
    "condition", ["n = 1", "t.n = 1 -- the end", "(`my-col` = 'a;b') OR device LIKE '%''%'", "TRUE"]
)
def test_a_plan_reads_the_topic_of_the_request(tmp_path: Path, condition: str) -> None:
    plan = planned(request(tmp_path, condition))
    assert plan.source == "t"
    assert [each.name for each in plan.outputs] == ["_timestamp", "_offset"]


def filled(path: Path, count: int = 30, partitions: int = 3) -> None:
    """Partition p has the numbers n with n % partitions == p, in the order of their times."""
    logs = Logs(path, LogConfig(segment_bytes=2000, index_interval_bytes=200))
    for partition in range(partitions):
        for n in range(partition, count, partitions):
            logs.write([json.dumps({"n": n}).encode()], partition=partition, timestamp=1_700_000_000_000 + n)


def numbers(rows: list[Row], partitions: int = 3) -> list[int]:
    return [row.offset * partitions + row.partition for row in rows]


@pytest.mark.parametrize("first", [1, 7, 4000])
@pytest.mark.parametrize("limit", [1, 4, 100])
@pytest.mark.parametrize("back", [True, False])
def test_pages_have_every_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, limit: int, back: bool
) -> None:
    filled(tmp_path)
    monkeypatch.setattr(where, "FIRST_WINDOW", first)
    at, until, found = {0: 0, 1: 0, 2: 0}, {0: 10, 1: 10, 2: 10}, []
    while True:
        search = Search(request(tmp_path, "n % 2 = 0", at=at, until=until, back=back, limit=limit))
        page = []
        for window in search.windows():
            page += window.rows
            (until if back else at).update(window.places)
        assert len(page) <= limit
        found += numbers(page)
        if search.is_done:
            break
    assert sorted(found) == [*range(0, 30, 2)]
    if first == 4000:  # one window has everything, so all are in the order of time
        assert found == sorted(found, reverse=back)


def test_what_is_left_of_a_partition_lies_on_one_side_of_its_place() -> None:
    rows = {0: [Row(5, 0, 10), Row(1, 0, 11), Row(9, 0, 12)], 1: [Row(7, 1, 3), Row(8, 1, 4)], 2: []}
    window = {0: (10, 13), 1: (0, 5), 2: (0, 5)}
    assert taken(rows, window, 2, back=True) == ([Row(9, 0, 12), Row(8, 1, 4)], {0: 12, 1: 4, 2: 0})
    assert taken(rows, window, 2, back=False) == ([Row(5, 0, 10), Row(1, 0, 11)], {0: 12, 1: 0, 2: 5})
    assert taken(rows, window, 9, back=True).places == {0: 10, 1: 0, 2: 0}


def test_partitions_offsets_and_times_are_narrowed_before_reading(tmp_path: Path) -> None:
    filled(tmp_path)
    spans: dict[str, Any] = {"at": {0: 0, 1: 0, 2: 0}, "until": {0: 10, 1: 10, 2: 10}}
    for condition, read in (("_partition = 1", 10), ("_offset >= 8", 6), ("_offset = 3 AND _partition = 2", 1)):
        search = Search(request(tmp_path, condition, **spans))
        assert sum(len(window.rows) for window in search.windows()) == search.read == read


def test_another_topic_of_the_same_name_is_not_read(tmp_path: Path) -> None:
    filled(tmp_path)
    search = Search(request(tmp_path, "n = 1", until={0: 10}, topic_id=encode_uuid(NEXT_TOPIC_ID)))
    with pytest.raises(WalError, match="belongs to another topic"):
        list(search.windows())


def test_records_that_are_gone_are_an_error(tmp_path: Path) -> None:
    filled(tmp_path)
    search = Search(request(tmp_path, "n = 1", at={7: 0}, until={7: 10}))
    with pytest.raises(WalError):
        list(search.windows())


def started(given: Request, output: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "barnabas.streams.select", "where"], stdin=subprocess.PIPE, stdout=out
        )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(given) + b"\n")
    process.stdin.flush()
    return process


def test_the_process_answers_while_its_input_is_open(tmp_path: Path) -> None:
    filled(tmp_path / "logs")
    process = started(request(tmp_path / "logs", "n = 3", until={0: 10}), tmp_path / "out")
    assert process.wait(60) == 0
    line, done = [json.loads(line) for line in (tmp_path / "out").read_bytes().splitlines()]
    assert line == {"found": [[0, 1]], "places": {"0": 0}, "read": 10}
    assert done == {"done": True}
    assert process.stdin is not None
    process.stdin.close()


def test_the_process_ends_when_its_input_is_closed(tmp_path: Path) -> None:
    """However the broker ends, also by SIGKILL, the system closes the pipe."""
    logs = Logs(tmp_path / "logs", LogConfig(segment_bytes=100 << 20))
    logs.write([b'{"n": 1}'] * 300_000, each=20_000)
    slow = " AND ".join(f"n + {number} <> 0" for number in range(40))
    process = started(request(tmp_path / "logs", slow, until={0: 300_000}, limit=10_000_000), tmp_path / "out")
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 1
    assert b"done" not in (tmp_path / "out").read_bytes()


def test_a_request_that_is_none(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "barnabas.streams.select", "where"], input=b"{}\n", capture_output=True, check=False
    )
    assert ran.returncode == 1
    assert b"not a JSON object as it should be" in ran.stdout
