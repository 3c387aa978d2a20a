"""The command line as a user types it: exit status, standard output, one line of error with a remedy."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.wire import KAFKA_VERSION
from compat_tests.broker_process import Barnabas, Server
from compat_tests.tools import ROOT

COMMAND = [sys.executable, "-m", "barnabas"]


def run(*words: str, stdin: bytes = b"", status: int = 0) -> str:
    """Run a sub-command; returns its standard output, and standard error too if the command must fail."""
    done = subprocess.run(
        [*COMMAND, *words],
        input=stdin,
        capture_output=True,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    shown = done.stdout.decode() + (done.stderr.decode() if status else "")
    assert done.returncode == status, done.stdout.decode() + done.stderr.decode()
    return shown


def test_a_topic_from_creation_to_deletion(server: Server) -> None:
    at = ("-b", server.address)
    created = run("topics", "create", "life", "--partitions", "3", "--config", "retention.ms=100000", *at)
    assert created == "Created topic life with 3 partition(s).\n"
    assert "life" in run("topics", "list", *at).split()
    described = run("topics", "describe", "life", *at)
    assert "Configs: retention.ms=100000" in described
    change = ("--partitions", "4", "--config", "segment.bytes=4096", "--delete-config", "retention.ms")
    run("topics", "alter", "life", *change, *at)
    described = run("topics", "describe", "life", *at)
    assert "Partitions: 4" in described
    assert "Configs: segment.bytes=4096" in described
    assert run("topics", "delete", "life", *at) == "Deleted topic life.\n"
    assert "life" not in run("topics", "list", *at).split()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_come_back_as_records(server: Server, codec: str) -> None:
    at, topic = ("-b", server.address), f"lines-{codec}"
    lines = b"".join(b"k%d:v%d\n" % (i, i) for i in range(3000))
    run("produce", topic, "--key-separator", ":", "--compression", codec, "--header", "h=x", *at, stdin=lines)
    got = run("consume", topic, "--from-beginning", "--exit", "--format", "%k:%s\\n", *at)
    assert sorted(got.encode().splitlines(keepends=True)) == sorted(lines.splitlines(keepends=True))
    first = run("consume", topic, "--offset", "0", "-n", "1", "--format", "%t %p %o %k %s %h\\n", *at)
    assert first == f"{topic} 0 0 k0 v0 h=x\n"
    assert run("consume", topic, "--offset", "-1", "--exit", *at) == "v2999\n"


def test_lines_of_an_open_pipe_are_sent_as_they_come(server: Server) -> None:
    at = ("-b", server.address)
    run("topics", "create", "piped", *at)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*COMMAND, "produce", "piped", *at], stdin=subprocess.PIPE, cwd=ROOT, env=environment
    ) as child:
        assert child.stdin is not None
        for text in ("one", "two"):
            child.stdin.write(f"{text}\n".encode())
            child.stdin.flush()
            # The command waits for a record, and the pipe stays open: it ends only after the record.
            assert run("consume", "piped", "--offset", str(0 if text == "one" else 1), "-n", "1", *at) == f"{text}\n"
        child.stdin.close()
        assert child.wait(30) == 0


def test_a_group_resumes_where_it_stopped(server: Server) -> None:
    at = ("-b", server.address)
    run("topics", "create", "resumed", "--partitions", "2", *at)
    run("produce", "resumed", *at, stdin=b"a\nb\nc\n")
    first = run("consume", "resumed", "--group", "cli", "--from-beginning", "-n", "2", *at)
    rest = run("consume", "resumed", "--group", "cli", "--from-beginning", "--exit", *at)
    assert sorted(first.split() + rest.split()) == ["a", "b", "c"]
    assert run("consume", "resumed", "--group", "cli", "--exit", *at) == ""
    assert "cli" in run("groups", "list", *at)
    lags = [line.split()[4] for line in run("groups", "describe", "cli", *at).splitlines()[2:]]
    assert lags == ["0", "0"]


def test_null_values_and_chosen_partitions(server: Server) -> None:
    at = ("-b", server.address)
    run("topics", "create", "nulls", "--partitions", "2", *at)
    run("produce", "nulls", "--partition", "1", "--null-value", "-", *at, stdin=b"-\n")
    assert run("consume", "nulls", "--from-beginning", "--exit", "--format", "%p %k %s\\n", *at) == "1 NULL NULL\n"


def test_log_dump_shows_and_checks_a_segment(server: Server, tmp_path: Path) -> None:
    run("topics", "create", "dumped", *("-b", server.address))
    run("produce", "dumped", "-b", server.address, stdin=b"one\ntwo\n")
    segment = server.segment("dumped")
    shown = run("log", "dump", str(segment))
    assert "batch 0..1" in shown
    assert "crc ok" in shown
    assert "value 'two'" in shown
    content = bytearray(segment.read_bytes().rstrip(b"\0") + b"\0")  # the last byte counts headers
    reserved = tmp_path / segment.name
    reserved.write_bytes(content + bytes(500))
    assert f"room for more  position {len(content)}  bytes 500" in run("log", "dump", str(reserved))
    damaged = tmp_path / "1" / segment.name
    damaged.parent.mkdir()
    content[-2] ^= 1
    damaged.write_bytes(content)
    assert "damaged at position 0" in run("log", "dump", str(damaged), status=1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("topics", "describe", "absent"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("topics", "create", "bad/name"), "INVALID_TOPIC_EXCEPTION"),
        (("topics", "create", "t", "--config", "no.such.key=1"), "INVALID_CONFIG (Unknown topic config name"),
        (("topics", "create", "t", "--replication-factor", "3"), "INVALID_REPLICATION_FACTOR"),
        (("topics", "alter", "t"), "Nothing to change"),
        (("produce", "t", "--partition", "99"), "has no partition 99"),
        (("groups", "describe", "absent"), "Group absent does not exist"),
        (("log", "dump", "no-such-file"), "no such file or folder"),
    ],
)
def test_errors_are_one_line(server: Server, words: tuple[str, ...], said: str) -> None:
    at = () if words[0] == "log" else ("-b", server.address)
    shown = run(*words, *at, status=1)
    assert said in shown
    assert shown.count("\n") == 1


def test_a_schema_that_is_none_is_refused(server: Server) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: make setup-all")
    at = ("--server", server.address)
    run("sql", "CREATE TOPIC typed (a BIGINT)", *at)
    key = "barnabas.value.schema"
    for statement in (
        "CREATE TOPIC wrong (a STRANGE)",
        f"CREATE TOPIC wrong WITH ('{key}' = 'a STRANGE')",
        f"ALTER TOPIC typed SET ('{key}' = 'a STRANGE')",
    ):
        shown = run("sql", statement, *at, status=1)
        assert "STRANGE" in shown
        assert shown.count("\n") == 1
    assert "wrong" not in run("topics", "list", *at).split()
    assert "json a BIGINT" in run("sql", "DESCRIBE TOPIC typed", *at)


@contextmanager
def consuming(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A consumer that is ended at the end."""
    consumer = subprocess.Popen(
        [*COMMAND, "consume", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with consumer:
        try:
            yield consumer
        finally:
            consumer.kill()


@pytest.mark.parametrize("group", [(), ("--group", "g")], ids=["alone", "as a member"])
def test_a_consumer_reads_on_when_the_broker_is_back(tmp_path: Path, group: tuple[str, ...]) -> None:
    broker = Barnabas(tmp_path)
    broker.start()
    at = ("-b", broker.address)
    run("produce", "t", *at, stdin=b"before\n")
    with consuming("t", "--from-beginning", *group, *at) as consumer:
        assert consumer.stdout
        assert consumer.stdout.readline() == b"before\n"
        broker.kill()
        broker.start()
        run("produce", "t", *at, stdin=b"after\n")
        assert consumer.stdout.readline() == b"after\n"
        consumer.send_signal(signal.SIGINT)
        assert consumer.wait(60) == 130
    if group:
        assert run("consume", "t", *group, "--exit", *at) == "", "what was printed is committed"
    assert broker.stop() == 0


def test_an_interrupt_ends_a_consumer_whose_broker_is_away(tmp_path: Path) -> None:
    broker = Barnabas(tmp_path)
    broker.start()
    at = ("-b", broker.address)
    run("produce", "t", *at, stdin=b"before\n")
    with consuming("t", "--from-beginning", *at) as consumer:
        assert consumer.stdout
        assert consumer.stdout.readline() == b"before\n"
        broker.kill()
        consumer.send_signal(signal.SIGINT)
        assert consumer.wait(60) == 130
        assert consumer.stderr
        assert consumer.stderr.read() == b""


def test_no_broker_is_said_in_one_line() -> None:
    assert "is a broker running there?" in run("topics", "list", "-b", "127.0.0.1:1", status=1)


@pytest.mark.parametrize(
    "words",
    [(), ("serve",), ("topics",), ("topics", "create"), ("topics", "list"), ("topics", "describe"),
     ("topics", "delete"), ("topics", "alter"), ("produce",), ("consume",), ("groups",), ("groups", "list"),
     ("groups", "describe"), ("log",), ("log", "dump"), ("version",)],
    ids=" ".join,
)  # fmt: skip
def test_every_command_has_help(words: tuple[str, ...]) -> None:
    assert "usage: barnabas" in run(*words, "--help")


def test_version() -> None:
    assert re.fullmatch(r"barnabas \S+ \(Kafka protocol (\S+)\)\n", run("version"))[1] == KAFKA_VERSION  # type: ignore[index]
    for page in ("README.md", "docs/left-out.md"):
        assert set(re.findall(r"Kafka (\d+\.\d+)\b", (ROOT / page).read_text())) == {KAFKA_VERSION}, page
    assert f"<kafka.version>{KAFKA_VERSION}." in (ROOT / "compat_tests/java/pom.xml").read_text()


# --- serve ------------------------------------------------------------------------------------------------------------


def refused(*words: str) -> str:
    """The one line of error with which serve refuses to start."""
    shown = run("serve", *words, status=1)
    (line,) = [text for text in shown.splitlines() if text.startswith("barnabas:")]
    return line


def test_serve_refuses_what_it_cannot_use(server: Server, tmp_path: Path) -> None:
    fresh = ("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    assert "in use by another process" in refused("--listen", "127.0.0.1:0", "--data-dir", str(server.data_dir))
    assert "is in use" in refused("--listen", server.address, "--data-dir", str(tmp_path / "other"))
    assert "expected int" in refused(*fresh, "--override", "num.partitions=many")
    assert "must be at least" in refused(*fresh, "--override", "num.partitions=0")
    assert "expected key=value" in refused(*fresh, "--override", "num.partitions")
    assert "Cannot read config file" in refused(*fresh, "--config", str(tmp_path / "absent"))
    assert "not supported" in refused(*fresh, "--override", "sasl.enabled.mechanisms=PLAIN,GSSAPI")
    assert "is not known" in refused("--listen", "no-such-host.invalid:0", "--data-dir", str(tmp_path / "data"))


def test_serve_refuses_a_data_directory_of_another_cluster_or_node(tmp_path: Path) -> None:
    broker = Barnabas(tmp_path)
    broker.start()
    assert broker.stop() == 0
    data = ("--listen", "127.0.0.1:0", "--data-dir", str(broker.data_dir))
    assert "belongs to cluster" in refused(*data, "--override", "cluster.id=another-cluster-of-mine")
    assert "belongs to node 1, not 7" in refused(*data, "--override", "node.id=7")


def test_serve_reads_a_properties_file_and_stops_cleanly(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "# Kafka's own keys\nnum.partitions = 5\nno.such.key=1\nlog.dirs=" + str(tmp_path / "logs") + "\n"
    )
    with subprocess.Popen(
        [*COMMAND, "serve", "--config", str(config), "--listen", "localhost:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout
        assert process.stderr
        ready = process.stdout.readline()
        address = ready.split()[4].rstrip(",")
        assert run("produce", "five", "-b", address, stdin=b"x\n") == ""
        assert "Partitions: 5" in run("topics", "describe", "five", "-b", address)
        process.send_signal(signal.SIGTERM)
        log = process.stderr.read()
        assert process.wait(120) == 0
    assert "config.unknown keys=no.such.key" in log
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()
