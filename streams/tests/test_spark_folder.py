"""The folders for the temporary files of Spark: one for each process, and none for processes that have ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.streams import spark_folder
from barnabas.streams.spark_folder import PREFIX
from compat_tests.tools import ROOT

# Takes a folder, writes a file into it, reports it, and ends when standard input is closed.
PROGRAM = """
import sys
from barnabas.streams import spark_folder
made = spark_folder.folder()
assert spark_folder.folder() == made
(made / "librocksdb.so").write_bytes(b"code")
print(made, flush=True)
sys.stdin.read()
"""


@contextmanager
def process(temporary: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that has such a folder."""
    pipe = subprocess.PIPE
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe, text=True, env=environment
    ) as started:
        assert started.stdout is not None
        try:
            yield started, Path(started.stdout.readline().strip())
        finally:
            started.kill()


def test_a_process_removes_its_folder_when_it_ends(tmp_path: Path) -> None:
    with process(tmp_path) as (started, folder):
        assert list(tmp_path.iterdir()) == [folder]
        assert folder.stat().st_mode & 0o777 == 0o700
        started.communicate()
        assert started.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one_and_no_other_folder_is(tmp_path: Path) -> None:
    with process(tmp_path) as (_, alive):
        with process(tmp_path) as (killed, left):
            killed.send_signal(signal.SIGKILL)
        assert left.exists()
        (tmp_path / "target").mkdir()
        foreign = [tmp_path / "target", tmp_path / f"{PREFIX}file", tmp_path / f"{PREFIX}link", tmp_path / "spark-1"]
        foreign[1].touch()
        foreign[2].symlink_to(tmp_path / "target")
        foreign[3].mkdir()
        with process(tmp_path) as (_, new):
            assert sorted(tmp_path.iterdir()) == sorted([alive, new, *foreign])
            assert (alive / "librocksdb.so").exists()


def test_the_folders_of_other_users_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / f"{PREFIX}other"
    other.mkdir()
    mine = os.geteuid()
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: mine + 1)
        spark_folder._remove_abandoned(tmp_path)
    assert other.exists()
    spark_folder._remove_abandoned(tmp_path)
    assert not other.exists()


def test_a_folder_that_is_removed_before_it_is_locked_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    lock = spark_folder._lock
    taken: list[Path] = []

    def slow(folder: Path) -> int | None:
        found = None
        if not taken:  # another process is quicker: before the folder is opened, then while it is being locked
            folder.rmdir()
        elif len(taken) == 1:
            found = lock(folder)
            folder.rmdir()
        taken.append(folder)
        return lock(folder) if found is None else found

    monkeypatch.setattr(spark_folder, "_lock", slow)
    made = spark_folder._create()
    assert made == taken[2]
    assert list(tmp_path.iterdir()) == [made]
