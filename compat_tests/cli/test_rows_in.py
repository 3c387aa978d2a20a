"""INSERT and `barnabas load` as a user types them: the records that other clients then read, and bad input."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.broker_process import Server
from compat_tests.cli.test_cli import COMMAND, run
from compat_tests.tools import ROOT

pytest.importorskip("pyarrow")


def read(server: Server, topic: str, count: int) -> list[tuple[bytes | None, bytes | None, int]]:
    """Key, value and timestamp of the `count` committed records, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": "reads",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found, ended = [], 0
        while ended < len(partitions):
            message = consumer.poll(20)
            assert message is not None, "no answer"
            if message.error():
                ended += 1
            else:
                found.append((message.key(), message.value(), message.timestamp()[1]))
        assert len(found) == count
        return found
    finally:
        consumer.close()


def test_rows_that_are_inserted_are_read_by_others(server: Server) -> None:
    run(
        *("sql", "-b", server.address),
        "CREATE TOPIC ins (device STRING, temp DOUBLE, at TIMESTAMP); "
        "INSERT INTO ins VALUES ('a''b', 1, TIMESTAMP '2024-01-01 00:00:00'), (NULL, -2.5e3, NULL); "
        "INSERT INTO ins (_key, device, _timestamp) VALUES ('k', 'say \"x\"', 17)",
    )
    found = read(server, "ins", 3)
    assert [json.loads(value or b"") for _, value, _ in found] == [
        {"device": "a'b", "temp": 1.0, "at": "2024-01-01T00:00:00.000000Z"},
        {"device": None, "temp": -2500.0, "at": None},
        {"device": 'say "x"', "temp": None, "at": None},
    ]
    assert found[2][::2] == (b"k", 17)


def test_a_raw_topic_takes_keys_and_values(server: Server) -> None:
    run(
        *("sql", "-b", server.address),
        "CREATE TOPIC `ins.raw-1`; INSERT INTO ins.raw-1 VALUES ('v'); "
        "INSERT INTO `ins.raw-1` (_value, _key) VALUES (X'00fF', 7), (NULL, 'gone')",
    )
    assert [record[:2] for record in read(server, "ins.raw-1", 3)] == [(None, b"v"), (b"7", b"\0\xff"), (b"gone", None)]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("(device, temp) VALUES ('x', 1), ('y', 'hot')", "row 2: "),
        ("(device, tem) VALUES ('x', 1)", "has no column tem"),
        ("VALUES ('x')", "a row has 1 values"),
        ("VALUES ('x', 1), ('y')", "the row has 1 values, not 2"),
        ("VALUES ('x', 1 + 1)", "expected a literal"),
        ("VALUES ('x', rand())", "expected a literal"),
        ("VALUES ('x', 01)", "this is not a number"),
        ("VALUES ('x', 1", "the parenthesis is not closed"),
        ("VALUES ('x', 'y' 'z')", "expected a comma"),
        ("(device, device) VALUES ('x', 'y')", "named twice"),
        ("(device, temp) SELECT 'x', 1", "expected VALUES"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_nothing_is_written(server: Server, rows: str, why: str) -> None:
    at = ("-b", server.address)
    run("sql", *at, "CREATE TOPIC IF NOT EXISTS strict (device STRING, temp DOUBLE)")
    assert why in run("sql", *at, f"INSERT INTO strict {rows}", status=1)
    read(server, "strict", 0)


def test_a_csv_file_makes_its_topic_and_each_row_is_a_record(server: Server, tmp_path: Path) -> None:
    at, file = ("-b", server.address), tmp_path / "sensors.csv"
    lines = [f'"d{i % 50}",{i}.5,2024-01-01T00:00:{i % 60:02}Z,"two\nlines, {i}"' for i in range(5000)]
    file.write_text("device,temp,at,note\r\n" + "\r\n".join(lines))
    told = run(
        *(
            "load",
            "sensors",
            str(file),
            "--key",
            "device",
            "--time",
            "at",
            "--partitions",
            "3",
            "--compression",
            "zstd",
        ),
        *at,
    )
    assert told.startswith("5,000 rows to sensors")
    found = read(server, "sensors", 5000)
    assert {json.loads(value or b"")["note"] for _, value, _ in found} == {f"two\nlines, {i}" for i in range(5000)}
    for key, value, timestamp in found:
        row = json.loads(value or b"")
        assert key == row["device"].encode()
        assert timestamp == 1_704_067_200_000 + int(row["at"][17:19]) * 1000
    # The records are in the partitions that Kafka's clients would choose for their keys.
    produced = "".join(f"d{i}:x\n" for i in range(50)).encode()
    run("topics", "create", "beside", "--partitions", "3", *at)
    run("produce", "beside", "--key-separator", ":", *at, stdin=produced)
    where = {
        topic: set(run("consume", topic, "--from-beginning", "--exit", "--format", "%p %k\\n", *at).splitlines())
        for topic in ("sensors", "beside")
    }
    assert where["sensors"] == where["beside"]


def test_the_first_line_that_is_no_row_ends_a_load_and_is_told(server: Server) -> None:
    at = ("-b", server.address)
    run("sql", *at, "CREATE TOPIC stops (a BIGINT)")
    told = run("load", "stops", "--format", "csv", *at, stdin=b"a\n1\n2\nx\n4\n", status=1)
    assert "line 4: 'x' is not a valid BIGINT (column a); the rows before line 4 are in stops" in told
    assert [value for _, value, _ in read(server, "stops", 2)] == [b'{"a":1}', b'{"a":2}']
    told = run("load", "stops", "--skip-bad", *at, stdin=b'{"a": 5}\nno\n{"a": 6}\n', status=1)
    assert "line 2 left out" in told
    assert "1 lines left out" in told
    read(server, "stops", 4)


@pytest.mark.parametrize(
    ("words", "stdin", "why"),
    [
        (("plain", "--format", "csv"), b"a,b\n1,x\n", "--schema 'a BIGINT, b STRING'"),
        (("plain", "--format", "csv"), b"", "the first line names the columns"),
        (("columns", "--format", "csv"), b"a,z\n1,x\n", "the file has a column z, and the topic has not"),
        (("columns", "--schema", "a INT"), b"{}", "leave --schema out"),
        (("new", "--schema", "a NUMBERS"), b"{}", "NUMBERS is not a type"),
        (("columns", "--resume", "n"), b"{}", "--resume needs a file"),
        (("columns", "no/such/file"), b"", "No such file"),
    ],
)
def test_a_load_that_cannot_be_is_refused(server: Server, words: tuple[str, ...], stdin: bytes, why: str) -> None:
    at = ("-b", server.address)
    run("sql", *at, "CREATE TOPIC IF NOT EXISTS plain; CREATE TOPIC IF NOT EXISTS columns (a BIGINT)")
    assert why in run("load", *words, *at, stdin=stdin, status=1)
    assert "new" not in run("topics", "list", *at).split()


@pytest.mark.long
def test_a_load_that_is_killed_goes_on_at_the_next_row(server: Server, tmp_path: Path) -> None:
    at, file, rows = ("-b", server.address), tmp_path / "long.csv", 1_200_000
    file.write_text("n,text\n" + "".join(f"{n},some text of row {n}\n" for n in range(rows)))
    words = ("load", "long", str(file), "--partitions", "2", "--resume", "once", *at)
    seen = 0
    for _ in range(3):
        process = subprocess.Popen([*COMMAND, *words], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        for line in process.stderr:
            if " rows, " in line and (now := int(line.split()[0].replace(",", ""))) > seen:
                seen = now
                break
        process.kill()
        process.wait()
        process.stderr.close()
    assert 0 < seen < rows
    assert run(*words).startswith(f"{rows:,} rows to long (")
    assert run(*words).startswith(f"{rows:,} rows to long ({rows:,} of them before)")
    numbers = [json.loads(value or b"")["n"] for _, value, _ in read(server, "long", rows)]
    assert sorted(numbers) == list(range(rows))


def test_who_consumes_is_shown(server: Server) -> None:
    at = ("-b", server.address)
    run("topics", "create", "shown", *at)
    run("produce", "shown", *at, stdin=b"a\nb\n")
    run("consume", "shown", "--group", "watchers", "--from-beginning", "-n", "1", *at)
    rows = [line.split() for line in run("sql", *at, "SHOW SUBSCRIPTIONS").splitlines()]
    assert ["watchers", "shown", "0", "1", "0", "2", "1", "-"] in rows
    consumer = Consumer({"bootstrap.servers": server.address, "group.id": "watchers", "client.id": "me"})
    try:
        consumer.subscribe(["shown"])
        assert consumer.poll(20) is not None
        shown = run("sql", *at, "SHOW CONSUMERS")
        (line,) = [line.split() for line in shown.splitlines() if line.startswith("watchers")]
        assert (line[2], line[-1]) == ("me", "1")
    finally:
        consumer.close()
    run("topics", "delete", "shown", *at)
    assert "GROUP" in run("sql", *at, "SHOW SUBSCRIPTIONS")
