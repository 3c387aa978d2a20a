"""A stamp changes with each write to a log."""

from __future__ import annotations

import shutil
from pathlib import Path

from barnabas.storage.config import LogConfig
from barnabas.streams.tests.support import Logs, numbers
from barnabas.streams.wal import Stamps

KEY = ("t", 0)


def test_a_stamp_changes_with_what_is_written(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data", LogConfig(segment_bytes=500))
    logs.write(numbers(0, 3))
    stamps = Stamps(logs.log_dir())
    found = [stamps.of([KEY])]
    for number in range(20):  # across several segments
        before = found[-1]
        logs.write(numbers(number, number + 3))
        while stamps.of([KEY]) == before:  # within a tick of the file system's clock
            logs.write(numbers(number, number + 3))
        found.append(stamps.of([KEY]))
        assert stamps.of([KEY]) == found[-1]


def test_a_topic_that_is_gone_has_one_too(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    logs.write(numbers(0, 3))
    stamps = Stamps(logs.log_dir())
    before = stamps.of([KEY, ("other", 0)])
    assert before["other", 0] == (0, 0)
    shutil.rmtree(logs.path / "t-0")
    assert stamps.of([KEY]) == {KEY: (0, 0)}
