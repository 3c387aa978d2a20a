"""`barnabas serve` for tests in any language: its own folder and port, and a file that says when it is ready."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.temporary import LOCK_FILE
from compat_tests.tools import ROOT
from compat_tests.waiting import until

SERVE = (sys.executable, "-m", "barnabas", "serve")


@contextmanager
def ephemeral(folder: Path, *more: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A broker that is ready, with its temporary files in `folder` / "temporary"; and its data directory."""
    (temporary := folder / "temporary").mkdir(exist_ok=True)
    ready, log = folder / "ready", folder / "log"
    with log.open("w") as said:
        words = [*SERVE, "--ephemeral", "--port", "0", "--ready-file", str(ready), *more]
        environment = {**os.environ, "TMPDIR": str(temporary)}
        process = subprocess.Popen(words, cwd=ROOT, stdout=said, stderr=said, env=environment, start_new_session=True)
    try:
        until(lambda: ready.exists() or process.poll() is not None, "the broker is ready", 60)
        found = re.search(r"data in (\S+),", log.read_text())
        assert found is not None, log.read_text()
        yield process, Path(found[1])
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def is_let_go(folder: Path) -> bool:
    """Whether no process holds a temporary folder any more."""
    with (folder / LOCK_FILE).open() as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def test_a_broker_for_a_test_is_there_when_its_file_is_and_leaves_nothing_behind(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    with ephemeral(tmp_path) as (process, data):
        address = ready.read_text().strip()
        assert re.fullmatch(r"127\.0\.0\.1:\d+", address)
        with Cluster(address) as cluster:
            assert cluster.metadata([]) is not None
        assert data.is_dir()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not ready.exists()
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_files_of_a_killed_one_are_removed_by_the_next_one(processes: str, tmp_path: Path) -> None:
    with ephemeral(tmp_path, "--processes", processes) as (process, killed):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    until(lambda: is_let_go(killed.parent), "all of its processes have ended")
    assert killed.is_dir()
    (tmp_path / "ready").unlink()
    with ephemeral(tmp_path, "--processes", processes) as (process, data):
        assert data.is_dir()
        assert list((tmp_path / "temporary").iterdir()) == [data.parent]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_ready_file_that_cannot_be_is_told_in_one_line(tmp_path: Path) -> None:
    words = [*SERVE, "--ephemeral", "--port", "0", "--ready-file", str(tmp_path / "none" / "ready")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"barnabas: --ready-file {tmp_path}/none/ready: No such file")


def test_an_ephemeral_broker_has_its_own_folder(tmp_path: Path) -> None:
    words = [*SERVE, "--ephemeral", "--data-dir", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "not allowed with" in done.stderr
