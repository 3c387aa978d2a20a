"""Folders for temporary files: none is left of a process that has ended, and no other folder is touched."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.client import temporary
from barnabas.client.temporary import LOCK_FILE, TemporaryFolder
from compat_tests.tools import ROOT

PREFIX = "barnabas-tried-"
# Takes a folder, writes a file into it, reports it, and ends when standard input is closed.
PROGRAM = f"""
import os, sys
from barnabas.client.temporary import TemporaryFolder
made = TemporaryFolder({PREFIX!r})
(made.path / "library.so").write_bytes(b"code")
if not os.fork():
    sys.exit()
os.wait()
print(made.path, flush=True)
sys.stdin.read()
"""


@contextmanager
def process(parent: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that has such a folder."""
    pipe = subprocess.PIPE
    environment = {**os.environ, "TMPDIR": str(parent), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe, text=True, env=environment) as it:
        assert it.stdout is not None
        try:
            yield it, Path(it.stdout.readline().strip())
        finally:
            it.kill()


def test_a_process_removes_its_folder_when_it_ends(tmp_path: Path) -> None:
    with process(tmp_path) as (started, folder):
        assert list(tmp_path.iterdir()) == [folder]
        assert (folder / "library.so").exists(), "the end of a forked process removes nothing"
        assert folder.stat().st_mode & 0o777 == 0o700
        started.communicate()
        assert started.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one_and_no_other_folder_is(tmp_path: Path) -> None:
    with process(tmp_path) as (_, alive):
        with process(tmp_path) as (killed, left):
            killed.send_signal(signal.SIGKILL)
        assert left.exists()
        target = tmp_path / "target"
        users, file, link, other = (tmp_path / name for name in (f"{PREFIX}data", f"{PREFIX}f", f"{PREFIX}l", "other"))
        for folder in (target, users, other):
            folder.mkdir()
        for folder in (target, other):
            (folder / LOCK_FILE).touch()
        file.touch()
        link.symlink_to(target)
        with process(tmp_path) as (_, new):
            assert sorted(tmp_path.iterdir()) == sorted([alive, new, target, users, file, link, other])
            assert (alive / "library.so").exists()


def test_the_folders_of_other_users_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / f"{PREFIX}other"
    other.mkdir()
    (other / LOCK_FILE).touch()
    mine = os.geteuid()
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: mine + 1)
        temporary._remove_abandoned(tmp_path, PREFIX)
    assert other.exists()
    temporary._remove_abandoned(tmp_path, PREFIX)
    assert not other.exists()


@pytest.mark.parametrize("when", ["before it is opened", "after it is opened", "while another process looks at it"])
def test_a_folder_that_is_taken_for_an_abandoned_one_is_replaced(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    lock = temporary._lock
    seen: list[Path] = []
    others: list[int | None] = []

    def disturbed(folder: Path, flags: int) -> int | None:
        seen.append(folder)
        if len(seen) > 1:
            return lock(folder, flags)
        if when == "while another process looks at it":
            others.append(lock(folder, flags))
            return lock(folder, flags)
        if when == "after it is opened":
            found = lock(folder, flags)
            shutil.rmtree(folder)
            return found
        folder.rmdir()
        return lock(folder, flags)

    monkeypatch.setattr(temporary, "_lock", disturbed)
    with TemporaryFolder(PREFIX) as made:
        assert made.path == seen[1] != seen[0]
        assert made.path.exists()
    assert not made.path.exists()
    for each in others:
        assert each is not None
        os.close(each)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE, errno.ENOLCK])
def test_nothing_is_left_if_it_cannot_be_locked(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fails(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    monkeypatch.setattr(*((fcntl, "flock") if code == errno.ENOLCK else (temporary, "_lock")), fails)
    with pytest.raises(OSError, match=os.strerror(code)):
        TemporaryFolder(PREFIX)
    assert list(tmp_path.iterdir()) == []
    if before:
        assert len(os.listdir("/proc/self/fd")) == before
