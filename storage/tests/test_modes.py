"""Which users may read the stored data: the broker's, and a group only if the operator says so."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.storage.config import LogConfig
from barnabas.storage.data_dir import DataDir
from barnabas.storage.io import Io
from barnabas.storage.layout import RECOVERY_POINTS_FILE
from barnabas.storage.tests.support import NOW, TOPIC_ID, one, produced

CONFIG = LogConfig(segment_bytes=400)


@pytest.fixture
def umask() -> Iterator[None]:
    """An empty umask, so that files get exactly the mode that the code asks for."""
    before = os.umask(0)
    yield
    os.umask(before)


async def used(path: Path) -> None:
    """Make all the files of storage in a data directory: normal use, a crash with a damaged segment, a clean stop."""
    data_dir = DataDir.open(path, node_id=1)
    await data_dir.load(config_of=lambda topic: CONFIG)
    vnode = data_dir.create_vnode("t", 0, TOPIC_ID, CONFIG)
    for i in range(20):
        vnode.append(produced(i), now_ms=NOW)
    vnode.flush()
    vnode.truncate_prefix(3)
    data_dir.claim.announce("127.0.0.1:9092")
    await data_dir.checkpoint()
    data_dir.claim.release()  # as happens when the process ends
    (path / RECOVERY_POINTS_FILE).unlink()
    damaged = sorted((path / "t-0").glob("*.log"))[2]
    content = bytearray(damaged.read_bytes())
    content[70] ^= 1
    damaged.write_bytes(content)
    async with DataDir.open(path, node_id=1) as again:
        await again.load(config_of=lambda topic: CONFIG)
        await again.upkeep.mend_damaged()
        again.vnodes["t", 0].append(one(b"x"), now_ms=NOW)
        again.claim.announce("127.0.0.1:9092")


def modes(path: Path) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {"dir": set(), "file": set()}
    for folder, _, names in os.walk(path):
        if folder != str(path):
            found["dir"].add(stat.S_IMODE(os.stat(folder).st_mode) & 0o777)
        found["file"].update(stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) for name in names)
    return found


@pytest.mark.usefixtures("umask")
async def test_what_is_made_is_its_owners_alone(tmp_path: Path) -> None:
    await used(tmp_path / "made" / "data")
    assert stat.S_IMODE((tmp_path / "made" / "data").stat().st_mode) == 0o700
    assert list((tmp_path / "made" / "data").rglob("*.log.damaged-*"))
    assert modes(tmp_path / "made" / "data") == {"dir": {0o700}, "file": {0o600}}


@pytest.mark.usefixtures("umask")
async def test_a_directory_that_is_there_keeps_its_mode_and_what_is_made_in_it_is_the_owners(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(0o755)
    await used(tmp_path / "data")
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o755
    assert modes(tmp_path / "data") == {"dir": {0o700}, "file": {0o600}}


@pytest.mark.usefixtures("umask")
async def test_a_set_group_id_bit_lets_the_group_read_along(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o2750)
    await used(tmp_path / "data")
    assert modes(tmp_path / "data") == {"dir": {0o750}, "file": {0o640}}
    group = (tmp_path / "data").stat().st_gid
    assert {p.stat().st_gid for p in (tmp_path / "data").rglob("*")} == {group}


def test_a_stricter_umask_holds(tmp_path: Path) -> None:
    before = os.umask(0o277)
    try:
        io = Io()
        io.mkdir(str(tmp_path / "d"))
        io.close(io.open(str(tmp_path / "f"), os.O_WRONLY | os.O_CREAT))
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "df"] == [0o500, 0o400]


def test_one_directory_that_is_shared_does_not_share_others() -> None:
    shared = Io()
    shared.share_with_group()
    assert (Io().dir_mode, Io().file_mode) == (0o700, 0o600)
