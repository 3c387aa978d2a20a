"""`barnabas connect influx` as Telegraf uses it, over HTTP, and as a shell uses it, from standard input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from compat_tests.broker_process import Server
from compat_tests.cli.test_cli import COMMAND, run
from compat_tests.cli.test_rows_in import read
from compat_tests.tools import ROOT

pytest.importorskip("h11")


@contextmanager
def gateway(server: Server, *words: str, token: str = "") -> Iterator[str]:
    """Start a gateway in a process of its own; returns its address."""
    process = subprocess.Popen(
        [*COMMAND, "connect", "influx", "-b", server.address, "--listen", "127.0.0.1:0", *words],
        cwd=ROOT,
        env={**os.environ, "BARNABAS_INFLUX_TOKEN": token},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[-1].removesuffix("/write")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
        process.stdout.close()


def post(address: str, body: bytes, **headers: str) -> tuple[int, str]:
    """Write; returns the status and the error."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=120) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["error"]


def test_points_become_records_of_their_measurements(server: Server) -> None:
    with gateway(server) as address:
        body = b"cpu,host=a use=0.5,cores=8i 1704067200000\nmem,host=a free=1u 1704067200001\ncpu,host=b use=1\n"
        assert post(f"{address}/write?db=telegraf&precision=ms", body) == (204, "")
        status, error = post(f"{address}/write?db=telegraf", b"cpu,host=a use=2 5\nnonsense\ncpu,host=a use=3 6")
        assert (status, error) == (400, "partial write: line 2: there are no fields; 2 points are written")
    found = read(server, "telegraf.cpu", 4)
    assert found[0] == (
        b"cpu,host=a",
        b'{"time":"2024-01-01T00:00:00.000000Z","host":"a","use":0.5,"cores":8}',
        1_704_067_200_000,
    )
    assert [json.loads(value or b"")["use"] for _, value, _ in found] == [0.5, 1, 2, 3]
    read(server, "telegraf.mem", 1)


def test_a_writer_needs_the_token_and_measurements_are_bounded(server: Server) -> None:
    with gateway(server, "--max-topics", "2", token="s3cret") as address:
        assert post(f"{address}/api/v2/write?bucket=b", b"m f=1")[0] == 401
        allowed = {"Authorization": "Token s3cret"}
        body = b"".join(b"m%d f=1\n" % number for number in range(100))
        status, error = post(f"{address}/api/v2/write?bucket=b", body, **allowed)
        assert status == 400
        assert "there are 2 topics already" in error
        assert error.endswith("2 points are written")
    assert [name for name in run("topics", "list", "-b", server.address).split() if name.startswith("b.")] == [
        *("b.m0", "b.m1")
    ]


def test_a_broker_that_is_away_is_told_and_found_again(server: Server) -> None:
    with gateway(server, "--topic", "all.points") as address:
        assert post(f"{address}/write", b"a f=1 1") == (204, "")
        server.stop()
        try:
            assert post(f"{address}/write", b"a f=2 2")[0] == 503
        finally:
            server.start()
        assert post(f"{address}/write", b"b,t=x f=3 3") == (204, "")
    values = [json.loads(value or b"") for _, value, _ in read(server, "all.points", 2)]
    assert [(value["measurement"], value["f"]) for value in values] == [("a", 1), ("b", 3)]


def test_lines_of_standard_input(server: Server) -> None:
    words = ("connect", "influx", "--stdin", "--prefix", "in", "--precision", "s", "-b", server.address)
    told = run(*words, stdin=b'm f="two\nlines" 1\nbad\nm f="x" 2', status=1)
    assert "line 3 left out: there are no fields" in told
    assert "2 point(s) written; 1 line(s) left out." in told
    assert [json.loads(v or b"")["f"] for _, v, _ in read(server, "in.m", 2)] == ["two\nlines", "x"]
    assert "precision 'days'" in run(*words[:-2], "-b", server.address, "--precision", "days", stdin=b"m f=1", status=1)
