"""A topic created again under an old name inherits nothing: a topic's data on disk belongs to its id."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.storage.checkpoints import read_checkpoints, read_offsets
from barnabas.storage.config import LogConfig
from barnabas.storage.data_dir import DataDir
from barnabas.storage.errors import StorageError
from barnabas.storage.io import Io
from barnabas.storage.layout import (
    CLEAN_FILE,
    LOG_STARTS_FILE,
    META_FILE,
    METADATA_FILE,
    RECOVERY_POINTS_FILE,
    TOPIC_IDS_FILE,
)
from barnabas.storage.tests.support import NOW, TOPIC_ID, RecordedEvents, one, read_all, values_of

OTHER_ID = bytes(range(16, 32))
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200)


async def opened(path: Path, told: RecordedEvents | None = None, io: Io | None = None) -> DataDir:
    data_dir = DataDir.open(path, node_id=1, tell=told or RecordedEvents(), io=io)
    await data_dir.load(config_of=lambda topic: CONFIG)
    return data_dir


def killed(data_dir: DataDir) -> None:
    """Leave the directory as a killed process does."""
    data_dir.claim.release()


async def with_a_checkpointed_start(path: Path) -> DataDir:
    """Topic t had 600 records, 500 of them are deleted, and both checkpoints say so."""
    data_dir = await opened(path)
    old = data_dir.create_vnode("t", 0, TOPIC_ID, CONFIG)
    for number in range(600):
        old.append(one(b"old %d" % number), now_ms=NOW)
    old.flush()
    old.truncate_prefix(500)
    await data_dir.checkpoint()
    assert read_offsets(Io(), str(path / LOG_STARTS_FILE)) == {("t", 0): 500}
    return data_dir


async def test_the_log_start_of_a_deleted_topic_does_not_hide_its_successors_records(tmp_path: Path) -> None:
    data_dir = await with_a_checkpointed_start(tmp_path)
    data_dir.delete_vnode("t", 0)
    new = data_dir.create_vnode("t", 0, OTHER_ID, CONFIG)
    for number in range(550):
        new.append(one(b"new %d" % number), now_ms=NOW)
    new.flush()
    killed(data_dir)
    async with await opened(tmp_path) as again:
        vnode = again.vnodes["t", 0]
        assert vnode.log_start_offset == 0
        assert values_of(vnode) == [b"new %d" % number for number in range(550)]


async def test_the_recovery_point_of_a_deleted_topic_does_not_spare_its_successor_the_check(tmp_path: Path) -> None:
    data_dir = await with_a_checkpointed_start(tmp_path)
    data_dir.delete_vnode("t", 0)
    new = data_dir.create_vnode("t", 0, OTHER_ID, CONFIG)
    for number in range(100):
        new.append(one(b"new %d" % number), now_ms=NOW)
    new.flush()
    first = Path(new.segments[0].path())
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)
    killed(data_dir)
    async with await opened(tmp_path) as again:
        assert len(read_all(again.vnodes["t", 0])) < 100, "recovery has looked at the first segment"


async def test_a_successor_at_the_same_offset_gets_checkpoints_of_its_own(tmp_path: Path) -> None:
    data_dir = await with_a_checkpointed_start(tmp_path)
    data_dir.delete_vnode("t", 0)
    new = data_dir.create_vnode("t", 0, OTHER_ID, CONFIG)
    for number in range(600):
        new.append(one(b"new %d" % number), now_ms=NOW)
    new.flush()
    new.truncate_prefix(500)
    await data_dir.checkpoint()
    stated = read_checkpoints(Io(), str(tmp_path))
    assert stated.of(("t", 0), "EBESExQVFhcYGRobHB0eHw") == (500, 600)
    killed(data_dir)
    async with await opened(tmp_path) as again:
        assert again.vnodes["t", 0].log_start_offset == 500


async def test_a_topic_takes_nothing_over_from_a_folder_in_its_place(tmp_path: Path) -> None:
    """The folder is of a deleted topic and could not be renamed: the broker has forgotten it, the disk has not."""

    class Busy(Io):
        busy = False

        def replace(self, source: str, target: str) -> None:
            if self.busy and target.endswith("-delete"):
                raise OSError(16, "Device or resource busy")
            super().replace(source, target)

    io = Busy()
    data_dir = await opened(tmp_path, io=io)
    old = data_dir.create_vnode("t", 0, TOPIC_ID, CONFIG)
    old.leader_epoch = 7
    old.append(one(b"old"), now_ms=NOW)
    old.flush()
    io.busy = True
    with pytest.raises(StorageError):
        data_dir.delete_vnode("t", 0)
    del data_dir.vnodes["t", 0]
    with pytest.raises(StorageError, match="cannot make room"):
        data_dir.create_vnode("t", 0, OTHER_ID, CONFIG)
    io.busy = False
    new = data_dir.create_vnode("t", 0, OTHER_ID, CONFIG)
    assert (new.log_end_offset, new.latest_epoch, new.topic_id) == (0, -1, OTHER_ID)
    await data_dir.close()


async def test_checkpoints_without_ids_are_kafkas_and_hold_for_the_topics_that_are_there(tmp_path: Path) -> None:
    killed(await with_a_checkpointed_start(tmp_path))
    (tmp_path / TOPIC_IDS_FILE).unlink()
    data_dir = await opened(tmp_path)
    assert data_dir.vnodes["t", 0].log_start_offset == 500
    data_dir.delete_vnode("t", 0)
    data_dir.create_vnode("t", 0, OTHER_ID, CONFIG).append(one(b"new"), now_ms=NOW)
    data_dir.vnodes["t", 0].flush()
    killed(data_dir)
    async with await opened(tmp_path) as again:
        assert values_of(again.vnodes["t", 0]) == [b"new"]


@pytest.mark.parametrize(
    "text", [b"", b"\xff\xfe\x00", b"0\n1\n", b"0\n1\nt 0\n", b"0\n1\nt 0 x\n", b"0\n1\nt 0 -5\n", b"9\n0\n", b"0\nx\n"]
)
@pytest.mark.parametrize("name", [RECOVERY_POINTS_FILE, LOG_STARTS_FILE, TOPIC_IDS_FILE])
async def test_a_damaged_checkpoint_is_one_line_and_costs_a_longer_scan(tmp_path: Path, name: str, text: bytes) -> None:
    killed(await with_a_checkpointed_start(tmp_path))
    (tmp_path / name).write_bytes(text)
    told = RecordedEvents()
    async with await opened(tmp_path, told) as again:
        vnode = again.vnodes["t", 0]
        assert values_of(vnode)[-100:] == [b"old %d" % number for number in range(500, 600)]
    if not (name == TOPIC_IDS_FILE and text.startswith(b"0\n1\nt 0 ")):  # any third field may be an id
        assert [(event, fields["file"]) for event, fields in told.events] == [("checkpoint.damaged", name)]
    assert read_offsets(Io(), str(tmp_path / RECOVERY_POINTS_FILE)) == {("t", 0): 600}


@pytest.mark.parametrize("text", [b"", b"\xff\xfe\x00\x01", b"version=1\n", b"node.id=1\n", bytes(64)])
async def test_a_damaged_identity_is_refused_with_the_remedy(tmp_path: Path, text: bytes) -> None:
    async with await opened(tmp_path):
        pass
    (tmp_path / META_FILE).write_bytes(text)
    with pytest.raises(StorageError, match=r"meta.properties is damaged: restore it .* node\.id=1") as caught:
        DataDir.open(tmp_path, node_id=1)
    assert "\n" not in str(caught.value)
    assert (tmp_path / CLEAN_FILE).exists(), "nothing was touched"


async def test_a_topic_id_that_cannot_be_read_is_told_and_costs_that_partition_only(tmp_path: Path) -> None:
    class Bad(Io):
        def open(self, path: str, flags: int, mode: int = 0o644) -> int:
            if path.endswith(f"bad-0/{METADATA_FILE}"):
                raise OSError(5, "Input/output error")
            return super().open(path, flags, mode)

    async with await opened(tmp_path) as data_dir:
        for name in ("bad", "good"):
            data_dir.create_vnode(name, 0, TOPIC_ID, CONFIG).append(one(b"v"), now_ms=NOW)
    told = RecordedEvents()
    async with await opened(tmp_path, told, Bad()) as again:
        with pytest.raises(StorageError, match="offline"):
            assert again.vnodes["bad", 0].topic_id
        assert again.vnodes["good", 0].topic_id == TOPIC_ID
        await again.checkpoint()
    assert [event for event, _ in told.events] == ["partition.offline"]
