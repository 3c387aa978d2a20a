"""What the commands offer to people: figures, JSON, a preview of a reset, the last records, a choice of broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest
from confluent_kafka import Consumer, Producer

from barnabas.wire import lines
from compat_tests.broker_process import Server
from compat_tests.cli.test_cli import COMMAND, run
from compat_tests.cli.test_newcomer import on_terminal
from compat_tests.tools import ROOT


def rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_topics_with_figures_for_people_and_programs(server: Server) -> None:
    at = ("-b", server.address)
    run("topics", "create", "figures", "--partitions", "3", "--config", "retention.ms=3600000", *at)
    run("topics", "create", "kept", "--config", "cleanup.policy=compact", *at)
    run("produce", "figures", *at, stdin=b"a\nb\nc\n")
    found = {row["topic"]: row for row in rows(run("topics", "list", "--json", *at))}
    assert found["figures"]["partitions"] == 3
    assert found["figures"]["records"] == 3
    assert isinstance(found["figures"]["bytes"], int)
    assert found["figures"]["bytes"] > 0
    assert found["figures"]["retention"] == "1 h"
    assert found["kept"]["retention"] == "compact"
    shown = on_terminal("topics", "ls", *at).decode()
    assert "PARTITIONS" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("figures")]
    assert line.split()[:3] == ["figures", "3", "3"]
    assert "figures" in run("topics", "ls", *at).splitlines()
    assert run("topics", "list", "-l", *at).startswith("TOPIC ")


@pytest.mark.one_node("it names the leader")
def test_a_topic_as_json(server: Server) -> None:
    at = ("-b", server.address)
    run("topics", "create", "one", "--config", "retention.ms=5", *at)
    (found,) = rows(run("topics", "describe", "one", "--json", *at))
    assert found["configs"] == {"retention.ms": "5"}
    expected = {"partition": 0, "epoch": 0, "start": 0, "end": 0}
    assert found["partitions"] in [[{**expected, "leader": node}] for node in (1, 2, 3)]


def committed(server: Server, group: str) -> object:
    (row,) = rows(run("groups", "describe", group, "--json", "-b", server.address))
    return row["committed"]


def test_a_group_is_reset_after_a_look_and_deleted(server: Server) -> None:
    at = ("-b", server.address)
    run("produce", "resets", *at, stdin=b"".join(b"%d\n" % number for number in range(10)))
    run("consume", "resets", "--group", "billing", "--from-beginning", "--exit", *at)
    assert committed(server, "billing") == 10
    told = run("groups", "reset", "billing", "--to", "beginning", "--dry-run", *at)
    assert "Nothing was changed" in told
    assert told.splitlines()[1].split() == ["resets", "0", "10", "0"]
    assert committed(server, "billing") == 10
    for where, offset in (("beginning", 0), ("4", 4), ("-3", 7), ("end", 10), ("99", 10), ("@-1h", 0)):
        run("groups", "reset", "billing", "--topic", "resets", "--to", where, *at)
        assert committed(server, "billing") == offset, where
    assert "Would delete group billing" in run("groups", "rm", "billing", "--dry-run", *at)
    run("groups", "delete", "billing", *at)
    assert "did you mean" not in run("groups", "describe", "billing", *at, status=1)


def test_a_group_with_members_is_not_touched(server: Server) -> None:
    at = ("-b", server.address)
    run("produce", "busy", *at, stdin=b"x\n")
    consumer = Consumer({"bootstrap.servers": server.address, "group.id": "busy", "auto.offset.reset": "earliest"})
    consumer.subscribe(["busy"])
    assert consumer.consume(1, 60)
    for words in (["reset", "busy", "--to", "beginning"], ["delete", "busy"]):
        assert "Group busy has 1 member(s)" in run("groups", *words, *at, status=1)
    consumer.close()


def test_a_group_that_is_not_there_is_told_with_the_nearest(server: Server) -> None:
    at = ("-b", server.address)
    run("produce", "near", *at, stdin=b"x\n")
    run("consume", "near", "--group", "nearby", "--from-beginning", "--exit", *at)
    for words in (["describe", "neerby"], ["delete", "neerby"], ["reset", "neerby", "--to", "end"]):
        assert "Group neerby does not exist; did you mean nearby?" in run("groups", *words, *at, status=1)


@pytest.mark.parametrize(("where", "found"), [("beginning", "0123456789"), ("-3", "789"), ("7", "789"), ("end", "")])
def test_reading_begins_where_it_is_said(server: Server, where: str, found: str) -> None:
    at = ("-b", server.address)
    if "places" not in run("topics", "list", *at).split():
        run("produce", "places", *at, stdin=b"".join(b"%d\n" % number for number in range(10)))
    assert run("consume", "places", "--offset", where, "--exit", *at).replace("\n", "") == found


def test_reading_begins_at_a_time(server: Server) -> None:
    at = ("-b", server.address)
    stamped = b"".join(b'{"value": "%d", "timestamp": %d}\n' % (number, 1000 * number) for number in range(5))
    run("produce", "times", "--json", *at, stdin=stamped)
    assert run("consume", "times", "--offset", "@2500", "--exit", *at) == "3\n4\n"
    assert run("consume", "times", "--offset", "@9000000000000", "--exit", *at) == ""


@pytest.mark.parametrize("native", [True, False], ids=["many", "one by one"])
def test_what_is_not_committed_is_left_out_if_asked(server: Server, native: bool) -> None:
    topic, at = f"isolated-{native}", ("-b", server.address)
    run("topics", "create", topic, *at)
    for name, ends in (("kept", "commit"), ("gone", "abort"), ("open", "")):
        producer = Producer({"bootstrap.servers": server.address, "transactional.id": f"{topic}-{name}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, name)
        assert producer.flush(60) == 0
        if ends:
            (producer.commit_transaction if ends == "commit" else producer.abort_transaction)(60)
    form = () if native else ("--json",)
    words = ("consume", topic, "--from-beginning", "--exit", *form, *at)
    everything = run(*words).splitlines()
    committed = run(*words, "--isolation-level", "read_committed").splitlines()
    shown = [line if native else json.loads(line)["value"] for line in everything]
    assert shown == ["kept", "gone", "open"]
    assert committed == everything[:1]


def test_records_go_out_and_in_as_json(server: Server) -> None:
    at = ("-b", server.address)
    run("topics", "create", "from", "--partitions", "2", *at)
    run("topics", "create", "to", "--partitions", "2", *at)
    run("produce", "from", "--key-separator", ":", "--header", "h=1", *at, stdin=b"k1:v1\nk2:\xff\n")
    out = run("consume", "from", "--from-beginning", "--exit", "--json", *at)
    run("produce", "to", "--json", *at, stdin=out.encode())
    again = run("consume", "to", "--from-beginning", "--exit", "--json", *at)
    assert sorted(again.replace('"to"', '"from"').splitlines()) == sorted(out.splitlines())
    assert {row["headers"] == [["h", "1"]] for row in rows(again)} == {True}
    told = run("produce", "to", "--json", *at, stdin=b'{"value": "x", "partition": 7}\n', status=1)
    assert "Line 1 is for partition 7, and to has 2 partition(s)" in told


@pytest.mark.parametrize("native", [True, False])
def test_many_lines_go_in_and_out_as_they_are(server: Server, native: bool) -> None:
    """Both ways are tested: the module in C, and one record at a time."""
    at = ("-b", server.address)
    topic = f"many-{native}"
    text = b"".join(b"line %d of many\n" % number for number in range(30_000)) + b"\n\nlast one without an end"
    code = f"import barnabas.wire.lines as l; l.NATIVE = {native}; import sys; from barnabas.scripts.cli import main; "
    command = [COMMAND[0], "-c", code + "sys.exit(main())"]
    assert lines.NATIVE
    sent = subprocess.run([*command, "produce", topic, *at], input=text, capture_output=True, cwd=ROOT, timeout=120)
    assert b"30003 record(s) sent" in sent.stderr, sent.stderr
    read = [*command, "consume", topic, "--from-beginning", "--exit", *at]
    got = subprocess.run(read, capture_output=True, cwd=ROOT, timeout=120)
    assert got.stdout == text + b"\n"
    some = subprocess.run([*read, "-n", "12345"], capture_output=True, cwd=ROOT, timeout=120)
    assert some.stdout == b"".join(text.splitlines(keepends=True)[:12345])


def test_the_first_bad_line_ends_it_when_those_before_are_sent(server: Server) -> None:
    at = ("-b", server.address)
    told = run("produce", "bad", "--key-separator", ":", *at, stdin=b"a:1\nb:2\nnone\nc:3\n", status=1)
    assert "Line 3 has no key separator: none; 2 record(s) before it were sent" in told
    assert run("consume", "bad", "--from-beginning", "--exit", "--format", "%k=%s\\n", *at) == "a=1\nb=2\n"


def test_a_line_that_is_refused_is_named(server: Server) -> None:
    at = ("-b", server.address)
    run("topics", "create", "small", "--config", "max.message.bytes=1000", *at)
    told = run("produce", "small", *at, stdin=b"x" * 5000 + b"\n", status=1)
    assert "Line 1 to small-0: MESSAGE_TOO_LARGE" in told


def test_the_environment_says_whom_to_ask(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVERS", server.address)
    run("produce", "by-environment", stdin=b"x\n")
    assert "by-environment" in run("topics", "list").split()


def test_topics_are_completed_from_the_broker(server: Server) -> None:
    run("produce", "complete-me", "-b", server.address, stdin=b"x\n")
    assert run("__complete", "-b", server.address, "consume", "compl") == "complete-me\n"


def test_watching_goes_on_until_it_is_interrupted(server: Server) -> None:
    process = subprocess.Popen(
        [*COMMAND, "groups", "list", "--watch", "-b", server.address], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    heads = 0
    while heads < 2:
        heads += process.stdout.readline().startswith("GROUP")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    process.stdout.close()


def test_a_file_shows_how_far_it_is(server: Server, tmp_path: object) -> None:
    path = f"{tmp_path}/large"
    with open(path, "wb") as file:
        file.write(b"a line of some length\n" * 300_000)
    master, slave = os.openpty()
    with open(path, "rb") as given:
        process = subprocess.Popen(
            [*COMMAND, "produce", "large-file", "-b", server.address], stdin=given, stderr=slave, cwd=ROOT
        )
        os.close(slave)
        shown = b""
        try:
            while part := os.read(master, 65536):
                shown += part
        except OSError:
            pass
        assert process.wait(60) == 0
    os.close(master)
    assert b"100 %" in shown
    assert b"300000 record(s) sent" in shown
