"""`barnabas serve` for tests in any language: its own folder and port, and a file that says when it is ready."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from barnabas.client.cluster import Cluster
from compat_tests.tools import ROOT
from compat_tests.waiting import until

SERVE = (sys.executable, "-m", "barnabas", "serve")


def test_a_broker_for_a_test_is_there_when_its_file_is_and_leaves_nothing_behind(tmp_path: Path) -> None:
    ready, log = tmp_path / "ready", tmp_path / "log"
    with log.open("w") as said:
        words = [*SERVE, "--ephemeral", "--port", "0", "--ready-file", str(ready)]
        process = subprocess.Popen(words, cwd=ROOT, stdout=said, stderr=said)
    try:
        until(lambda: ready.exists() or process.poll() is not None, "the broker is ready", 60)
        address = ready.read_text().strip()
        assert re.fullmatch(r"127\.0\.0\.1:\d+", address)
        with Cluster(address) as cluster:
            assert cluster.metadata([]) is not None
        found = re.search(r"data in (\S+),", log.read_text())
        assert found is not None
        assert Path(found[1]).is_dir()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not ready.exists()
        assert not Path(found[1]).exists()
    finally:
        process.kill()
        process.wait()


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
