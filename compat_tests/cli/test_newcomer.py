"""Mistakes of newcomers are errors, and strangers' records and names do not harm a newcomer's terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from barnabas.client.cluster import Cluster
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from compat_tests.broker_process import Server
from compat_tests.cli.test_cli import COMMAND, run
from compat_tests.tools import ROOT

EVIL = "a\x1b[2J\x1b]0;owned\x07\r\u202eb"
SHOWN = "a\\x1b[2J\\x1b]0;owned\\x07\\r\\u202eb"


def on_terminal(*words: str) -> bytes:
    """The output of a command that runs on a terminal."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *words],
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        os.close(slave)
        shown = b""
        try:
            while part := os.read(master, 65536):
                shown += part
        except OSError:  # the last process on the terminal has ended
            pass
        os.close(master)
        assert process.wait(60) == 0, shown
    return shown.replace(b"\r\n", b"\n")  # the terminal turns each \n into \r\n


# --- reading never creates, and mistakes are errors -------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--group", "g"), ("--partition", "0"), ("--from-beginning", "--exit")])
def test_reading_a_topic_that_is_not_there_creates_nothing_and_suggests_the_nearest(
    server: Server, options: tuple[str, ...]
) -> None:
    at = ("-b", server.address)
    run("produce", "measurements", *at, stdin=b"x\n")
    shown = run("consume", "mesurements", *options, *at, status=1)
    assert shown == (
        "barnabas: Topic mesurements: UNKNOWN_TOPIC_OR_PARTITION (it does not exist; did you mean measurements?)\n"
    )
    shown = run("consume", "wholly-other-0815", *options, *at, status=1)
    assert "'barnabas topics list' shows all" in shown
    assert {"mesurements", "wholly-other-0815"}.isdisjoint(run("topics", "list", *at).split())


@pytest.mark.parametrize("offset", ["4", "1000000"])
def test_an_offset_outside_the_log_is_an_error(server: Server, offset: str) -> None:
    at = ("-b", server.address)
    if "three" not in run("topics", "list", *at).split():
        run("produce", "three", *at, stdin=b"a\nb\nc\n")
    shown = run("consume", "three", "--offset", offset, *at, status=1)
    assert shown == f"barnabas: Offset {offset} is outside three-0, which begins at 0 and ends at 3\n"
    assert run("consume", "three", "--offset", "2", "--exit", *at) == "c\n"
    assert run("consume", "three", "--offset", "3", "--exit", *at) == ""


def test_an_offset_before_the_log_is_an_error(server: Server) -> None:
    at = ("-b", server.address)
    run("topics", "create", "cut", "--partitions", "2", *at)
    run("produce", "cut", "--partition", "1", *at, stdin=b"a\nb\nc\n")
    shown = run("consume", "cut", "--offset", "1", "--exit", *at, status=1)
    assert "outside cut-0, which begins at 0 and ends at 0; choose one with --partition" in shown
    assert run("consume", "cut", "--offset", "1", "--partition", "1", "--exit", *at) == "b\nc\n"


@pytest.mark.parametrize(
    ("form", "said"), [("%x", "unknown %x"), ("%s %", "unknown %:"), ("\\q", "unknown escape \\q"), ("\\x1", "escape")]
)
def test_an_unknown_letter_of_a_format_is_an_error(server: Server, form: str, said: str) -> None:
    shown = run("consume", "any", "--format", form, "-b", server.address, status=1)
    assert said in shown
    assert "known are" in shown
    assert shown.count("\n") == 1


def test_a_format_has_escapes_and_a_percent_sign(server: Server) -> None:
    at = ("-b", server.address)
    run("produce", "formed", "--key-separator", "\\t", "--header", "h=ü", *at, stdin="k\tü\n".encode())
    shown = run("consume", "formed", "--from-beginning", "--exit", "--format", "%%%k\\x3a%s ä\\u00e4 %h\\n", *at)
    assert shown == "%k:ü ää h=ü\n"


def test_a_bad_line_is_named_and_what_came_before_it_is_sent(server: Server) -> None:
    at = ("-b", server.address)
    lines = b"".join(b"k:%d\n" % i for i in range(1234)) + b"no separator\nk:after\n"
    shown = run("produce", "badly", "--key-separator", ":", *at, stdin=lines, status=1)
    assert shown == ("barnabas: Line 1235 has no key separator: no separator; 1234 record(s) before it were sent\n")
    assert run("consume", "badly", "--from-beginning", "--exit", *at).split() == [str(i) for i in range(1234)]


def test_lines_that_the_broker_refuses_are_named(server: Server) -> None:
    at = ("-b", server.address)
    run("topics", "create", "small", "--config", "max.message.bytes=200", *at)
    shown = run("produce", "small", *at, stdin=b"x" * 300 + b"\n", status=1)
    assert "Line 1 to small-0: MESSAGE_TOO_LARGE" in shown
    run("topics", "create", "keyed", "--config", "cleanup.policy=compact", *at)
    shown = run("produce", "keyed", *at, stdin=b"no key\n", status=1)
    assert "Line 1 to keyed-0: INVALID_RECORD" in shown


def test_a_bad_option_of_produce_creates_no_topic(server: Server) -> None:
    at = ("-b", server.address)
    assert "expected NAME=VALUE" in run("produce", "unmade", "--header", "x", *at, stdin=b"a\n", status=1)
    assert "unmade" not in run("topics", "list", *at).split()


# --- strangers' records and names -------------------------------------------------------------------------------------


def test_records_steer_no_terminal_and_a_pipe_gets_them_as_they_are(server: Server) -> None:
    at, topic = ("-b", server.address), "steering"
    run("produce", topic, "--key-separator", "|", "--header", f"h={EVIL}", *at, stdin=f"{EVIL}|{EVIL}\n".encode())
    words = ("consume", topic, "--from-beginning", "--exit", "--format", "%k %s %h\\tend\\n", *at)
    assert on_terminal(*words).decode() == f"{SHOWN} {SHOWN} h={SHOWN}\tend\n"
    as_it_is = f"{EVIL} {EVIL} h={EVIL}\tend\n".encode()
    assert on_terminal(*words, "--raw") == as_it_is
    piped = subprocess.run([*COMMAND, *words], capture_output=True, cwd=ROOT, timeout=120, check=True)
    assert piped.stdout == as_it_is


def test_values_keep_their_lines_and_letters_on_a_terminal(server: Server) -> None:
    at = ("-b", server.address)
    run("produce", "letters", "--header", "h=x", *at, stdin="straße\t東京 שלום\n".encode())
    shown = on_terminal("consume", "letters", "--from-beginning", "--exit", *at)
    assert shown.decode() == "straße\t東京 שלום\n"


def test_names_steer_no_terminal(server: Server) -> None:
    at = ("-b", server.address)
    run("topics", "create", "named", *at)
    with Cluster(server.address) as cluster:
        commit = OffsetCommitRequest(
            group_id=EVIL, topics=[OffsetCommitRequestTopic("named", partitions=[OffsetCommitRequestPartition(0, 0)])]
        )
        answer = cluster.coordinator(EVIL).ask(commit, OffsetCommitResponse, version=8)
        assert answer.topics[0].partitions[0].error_code == 0
    assert SHOWN.encode() in (listed := on_terminal("groups", "list", *at))
    assert SHOWN.encode() in (described := on_terminal("groups", "describe", EVIL, *at))
    refused = run("topics", "create", EVIL, *at, status=1)
    assert b"\x1b" not in listed + described + refused.encode()
    assert SHOWN in refused


# --- log dump ---------------------------------------------------------------------------------------------------------


def test_log_dump_reads_log_files_only(server: Server, tmp_path: Path) -> None:
    run("produce", "lookable", "-b", server.address, stdin=b"one\n")
    segment = tmp_path / "lookable-0" / server.segment("lookable").name
    segment.parent.mkdir()
    segment.write_bytes(server.segment("lookable").read_bytes())
    (tmp_path / "streams-driver.log").write_text("26/01/01 WARN Utils: Your hostname resolves to a loopback address\n")
    shown = run("log", "dump", str(tmp_path))
    assert shown.count("Segment:") == 1
    assert "streams-driver" not in shown
    shown = run("log", "dump", str(tmp_path / "streams-driver.log"), status=1)
    assert "no log segment, by its name: they are called 20 digits and .log" in shown
    aside = segment.with_name(segment.name + ".damaged-0")
    segment.rename(aside)
    assert "value 'one'" in run("log", "dump", str(aside))
    assert "no segment (20 digits and .log) in this folder" in run("log", "dump", str(tmp_path), status=1)


def test_log_dump_escapes_once(tmp_path: Path) -> None:
    values = (b"\xff\x1b[2J", "ü\u2028".encode(), b"back\\slash 'quoted'\n")
    segment = tmp_path / f"{0:020}.log"
    records = [Record(None, value, 0, (("h\x1b", b"\x9b"),)) for value in values]
    segment.write_bytes(build_batch(records))
    lines = run("log", "dump", str(segment)).splitlines()[2:]
    shown = [line.partition("  value ")[2].partition("  headers ") for line in lines]
    assert [value for value, _, _ in shown] == [
        "'\\xff\\x1b[2J'",
        "'ü\\u2028'",
        "'back\\\\slash \\'quoted\\'\\n'",
    ]
    assert {headers for _, _, headers in shown} == {"h\\x1b='\\x9b'"}
