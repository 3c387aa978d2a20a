"""The end-to-end client in C and its equivalent in Python, against a real broker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.client import ClientFailed, librdkafka, relay
from bench.create import create
from compat_tests.broker_process import Barnabas
from compat_tests.tools import ROOT

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Barnabas]:
    with Barnabas(tmp_path) as made:
        yield made


def compile_client(name: str, folder: Path) -> str:
    """Compile a program of bench/."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if not compiler:
        pytest.skip("no C compiler")
    program, source = folder / name, ROOT / "bench" / f"{name}.c"
    options = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(source), "-pthread", "-ldl"]
    subprocess.run([compiler, *options], check=True)
    return str(program)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The compiled end_to_end.c, and its library."""
    library = librdkafka()
    if library is None:
        pytest.skip("this confluent-kafka has no librdkafka of its own")
    return [compile_client("end_to_end", tmp_path_factory.mktemp("end-to-end")), str(library)]


@pytest.fixture(params=["C", "Python"])
def client(request: pytest.FixtureRequest) -> list[str]:
    """The command of a client."""
    if request.param == "C":
        found: list[str] = request.getfixturevalue("compiled")
        return found
    return [sys.executable, "-m", "bench.end_to_end"]


def run(client: list[str], broker: Barnabas, topic: str) -> subprocess.CompletedProcess[str]:
    command = [*client, broker.address, topic, "0.3", "0.1"]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)


def test_every_record_has_a_time(client: list[str], broker: Barnabas) -> None:
    create(broker.address, "t")
    done = run(client, broker, "t")
    assert done.returncode == 0, done.stderr
    *told, found = done.stdout.splitlines()
    assert told == ["measuring", "measured"]
    figures = json.loads(found)
    assert figures["requests"] == 300
    assert 0 < figures["p50"] <= figures["p99"] <= figures["p99.9"]


def test_the_relay_has_a_time_for_every_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.client.COMPILED_RELAY", tmp_path / "relay")
    assert relay(0.1) is None
    compile_client("relay", tmp_path)
    found = relay(0.1)
    assert found is not None
    assert found["requests"] == 100
    assert 0 < found["p50"] <= found["p99"] <= found["p99.9"]
    with pytest.raises(ClientFailed, match="relay SECONDS"):
        relay(0)


def test_records_of_others_are_no_success(compiled: list[str], broker: Barnabas) -> None:
    create(broker.address, "t")
    assert run(compiled, broker, "t").returncode == 0
    again = run(compiled, broker, "t")
    assert again.returncode == 1
    assert "not new" in again.stderr


def test_a_record_that_is_refused_is_no_success(compiled: list[str], broker: Barnabas) -> None:
    create(broker.address, "t")
    broker.stop()
    broker.overrides["message.max.bytes"] = "64"
    broker.start()
    done = run(compiled, broker, "t")
    assert done.returncode == 1
    assert "a record was not acknowledged" in done.stderr
