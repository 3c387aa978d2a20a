"""The driver's log: two files of a bounded size, whatever the driver writes and however often it starts."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from barnabas.broker.jobs import driver_log
from barnabas.broker.jobs.driver_log import DriverLog
from barnabas.storage.io import Io
from barnabas.wire.aliases import BytesLike

MOST = 10_000


class FullDisk(Io):
    """Writes fail."""

    def pwritev(self, fd: int, parts: Sequence[BytesLike], position: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_log, "MOST_BYTES", MOST)


async def watched(log: DriverLog, seconds: float) -> None:
    """The log is looked at for that long."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.keep_small)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_a_large_file_becomes_the_older_one_while_the_driver_goes_on(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    log = DriverLog(Io(), str(tmp_path))
    driver = log.begin()
    os.write(driver, b"a" * MOST)
    await watched(log, 25)
    assert contents(tmp_path) == {"streams-driver.log": b"a" * MOST}, "it is not too large"
    os.write(driver, b"b" * MOST)
    await watched(log, 25)
    os.write(driver, b"on it goes")
    assert contents(tmp_path) == {"streams-driver.log": b"on it goes", "streams-driver.log.1": b"b" * MOST}
    for _ in range(5):
        os.write(driver, b"c" * MOST * 2)
        await watched(log, 25)
    assert contents(tmp_path) == {"streams-driver.log": b"", "streams-driver.log.1": b"c" * MOST}
    os.close(driver)


async def test_a_full_disk_costs_the_older_file_only(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    log = DriverLog(FullDisk(), str(tmp_path))
    driver = log.begin()
    os.write(driver, b"a" * 2 * MOST)
    await watched(log, 25)
    os.write(driver, b"more")
    assert contents(tmp_path) == {"streams-driver.log": b"more", "streams-driver.log.1": b""}
    os.close(driver)


async def test_a_log_that_was_removed_is_missed_by_nobody(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    log = DriverLog(Io(), str(tmp_path))
    os.close(log.begin())
    Path(log.path).unlink()
    await watched(log, 25)
    assert log.last_line() == "it said nothing"


def test_a_new_driver_keeps_the_log_of_the_one_before(tmp_path: Path) -> None:
    log = DriverLog(Io(), str(tmp_path))
    for words in (b"first\n", b"second\n", b"third\nlast words\n\n"):
        driver = log.begin()
        os.write(driver, words)
        os.close(driver)
    assert log.last_line() == "last words"
    assert contents(tmp_path)["streams-driver.log.1"] == b"second\n"
