"""The load client in C and its equivalent in Python, against a broker whose answers the test chooses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import cycle, islice

import pytest

from bench import frames
from bench.tests.fake_broker import API_VERSIONS, PRODUCE, Answer, fake_broker, produce_answer
from compat_tests.tools import ROOT


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """load.c, compiled."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if not compiler:
        pytest.skip("no C compiler")
    program = tmp_path_factory.mktemp("load") / "load"
    source = ROOT / "bench" / "load.c"
    subprocess.run([compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True)
    return str(program)


@pytest.fixture(params=["C", "Python"])
def client(request: pytest.FixtureRequest) -> list[str]:
    """The command of a client."""
    if request.param == "C":
        return [request.getfixturevalue("compiled")]
    return [sys.executable, "-m", "bench.load"]


def run(client: list[str], address: str, requests: Sequence[bytes], *words: str) -> subprocess.CompletedProcess[bytes]:
    host, port = address.split(":")
    return subprocess.run(
        [*client, host, port, *words], input=b"".join(requests), capture_output=True, cwd=ROOT, timeout=60
    )


def answers(code: int = 0) -> Answer:
    return lambda key, _: produce_answer(code) if key == PRODUCE else b"\0\0"


def produces(count: int) -> list[bytes]:
    return [frames.opening(), *(frames.produce("t", p, frames.batch()) for p in range(count))]


ERRORS = f"errors-at={frames.produce_errors('t')[0]}"


def test_counts_the_answers_and_tells_when_it_measures(client: list[str]) -> None:
    with fake_broker(answers()) as broker:
        done = run(client, broker.address, produces(1), "requests=100", ERRORS)
    assert done.returncode == 0, done.stderr
    begun, ended, last = done.stdout.decode().splitlines()
    found = json.loads(last)
    assert (begun, ended) == ("measuring", "measured")
    assert found["requests"] >= 100
    assert 0 < found["p50"] <= found["p99"] <= found["p99.9"]


def test_an_error_code_is_no_success(client: list[str]) -> None:
    with fake_broker(answers(code=7)) as broker:
        done = run(client, broker.address, produces(1), "requests=100", ERRORS)
    assert done.returncode == 1
    assert b"the broker answered with error 7" in done.stderr


def test_another_correlation_id_is_no_success(client: list[str]) -> None:
    def requests() -> list[bytes]:
        opening, produce = produces(1)
        other = produce[:8] + (99).to_bytes(4, "big") + produce[12:]
        return [opening, produce, other]  # the client expects the correlation id of the load's first request

    with fake_broker(answers()) as broker:
        done = run(client, broker.address, requests(), "requests=100", ERRORS)
    assert done.returncode == 1
    assert b"an answer to nothing that was asked" in done.stderr


def test_a_closed_connection_is_no_success(client: list[str]) -> None:
    def answer(key: int, request: bytes) -> bytes:
        if key == API_VERSIONS:
            return b"\0\0"
        raise ConnectionError

    with fake_broker(answer) as broker:
        done = run(client, broker.address, produces(1), "requests=100", ERRORS)
    assert done.returncode == 1
    assert b"the broker closed a connection" in done.stderr


def test_connections_share_the_requests(client: list[str]) -> None:
    with fake_broker(answers()) as broker:
        requests = produces(6)
        run(client, broker.address, requests, "requests=100", "connections=2", ERRORS)
        first, second = ([request for request in asked if request[:2] == b"\0\0"] for asked in broker.requests)
    bodies = [request[4:] for request in requests[1:]]
    # Which connection is quicker, and so sends more, depends on the machine.
    assert len(first) + len(second) >= 100
    for asked, mine in ((first, bodies[0::2]), (second, bodies[1::2])):
        assert asked
        assert asked == list(islice(cycle(mine), len(asked)))


def test_with_a_window_connections_take_turns(client: list[str]) -> None:
    with fake_broker(answers()) as broker:
        run(client, broker.address, produces(1), "requests=30", "connections=3", "window=1", ERRORS)
        counts = [len(asked) for asked in broker.requests]
    assert max(counts) - min(counts) <= 1


def test_warming_sends_every_request_once(client: list[str]) -> None:
    with fake_broker(answers()) as broker:
        requests = produces(20)
        done = run(client, broker.address, requests, "requests=1", "settle=0.01", ERRORS)
        (asked,) = broker.requests
    assert set(asked) == {request[4:] for request in requests}
    assert len(json.loads(done.stdout.splitlines()[-1])["warm req/s"]) >= 1


def test_warming_goes_on_until_so_many_answers_came(client: list[str]) -> None:
    with fake_broker(answers()) as broker:
        run(client, broker.address, produces(1), "requests=1", "settle=0.01", "warm=1000000", ERRORS)
        run(client, broker.address, produces(1), "requests=1", "settle=30", "warm=30000", "connections=2", ERRORS)
        counts = [len(asked) for asked in broker.requests]
    assert counts[0] < 1_000_000  # the time limit ended it
    assert counts[1] + counts[2] > 30_000


def test_connections_without_requests_are_held(client: list[str]) -> None:
    with fake_broker(answers()) as broker:
        done = run(client, broker.address, [frames.opening()], "connections=3", "seconds=0.01", "settle=30")
        assert [len(asked) for asked in broker.requests] == [1, 1, 1]
    assert json.loads(done.stdout.splitlines()[-1])["requests"] == 0


def test_half_a_request_is_refused(client: list[str]) -> None:
    done = run(client, "127.0.0.1:1", [frames.opening()[:-1]], "requests=1")
    assert done.returncode == 1
    assert b"ends inside a request" in done.stderr
