"""A checkpoint after a loss of power: each batch in it has its state, and half-written files do no harm."""

from __future__ import annotations

import json
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.storage.config import LogConfig
from barnabas.streams.tests.support import Logs
from barnabas.streams.tests.test_windows_copies import TEXT, VALUES, put
from barnabas.streams.tests.windows_support import Run, in_order
from barnabas.streams.windows.durable import Syncer, mend
from barnabas.streams.windows.session import streams_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Disk:
    """What was synced in some folders, and what a power loss leaves of the rest."""

    def __init__(self) -> None:
        self.synced: dict[str, bytes] = {}

    def fsync(self, path: str) -> None:
        """Replaces os.fsync."""
        if os.path.isfile(path):
            self.synced[path] = Path(path).read_bytes()

    def lose_power(self, folder: Path, target: Path, moments: random.Random) -> None:
        """A copy of the folder after a power loss: what is not synced may be there completely, partly or not at all."""
        for path in folder.rglob("*"):
            copy = target / path.relative_to(folder)
            if path.is_dir():
                copy.mkdir(parents=True, exist_ok=True)
                continue
            data = path.read_bytes()
            if self.synced.get(str(path)) != data:
                if moments.random() < 0.3:
                    continue
                data = data[: moments.choice((0, len(data) // 2, len(data)))]
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data)


class Synced(Run):
    """Syncs like the sink, and looks at each batch afterwards and again once it is committed."""

    def __init__(self, *args: Any, disk: Disk, each: Callable[[int, str], None]) -> None:
        super().__init__(*args)
        self._syncer, self._each = Syncer(self.folder.checkpoint, disk.fsync), each

    def _take(self, frame: Any, batch: int) -> None:
        super()._take(frame, batch)
        self._each(batch, "before")
        self._syncer.sync()
        self._each(batch, "in")


@pytest.mark.slow
def test_power_is_lost_before_and_after_a_batch_is_in(spark: SparkSession, tmp_path: Path) -> None:
    session = streams_session(spark)
    logs, disk = Logs(tmp_path / "data", LogConfig(index_interval_bytes=100)), Disk()
    put(logs, 4, range(100))

    def each(batch: int, when: str) -> None:
        if batch in (2, 3):
            for seed in range(2):
                lost = tmp_path / f"{when} {batch} {seed}"
                disk.lose_power(Path(first.folder.path), lost / "streams" / "query", random.Random(seed))

    first = Synced(session, logs.path, tmp_path / "first", TEXT, VALUES, disk=disk, each=each)
    first.start(batch_bytes=3500)
    first.results()
    assert max(first.batches) > 3
    for when, batch, seed in (("before", 2, 0), ("in", 2, 1), ("before", 3, 1), ("in", 3, 0)):
        is_in = batch - (when == "before")
        after = Run(session, logs.path, tmp_path / f"{when} {batch} {seed}", TEXT, VALUES)
        after.folder.mend()
        assert is_in <= after.folder.last_batch() <= batch
        after.start(batch_bytes=3500)
        after.results()
        mine = {number: rows for number, rows in after.batches.items() if number > is_in}
        both = {number: rows for number, rows in first.batches.items() if number <= is_in} | mine
        expected = in_order(value for rows in first.batches.values() for _, value, _ in rows)
        assert in_order(value for rows in both.values() for _, value, _ in rows) == expected, (when, batch)


def state(checkpoint: Path) -> set[str]:
    return {path.name for path in (checkpoint / "state/0/0").iterdir()}


def test_what_is_half_written_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for folder in ("offsets", "commits", "state/0/0/SSTs"):
        (tmp_path / folder).mkdir(parents=True)
    for number in range(4):
        (tmp_path / "offsets" / str(number)).write_text('v1\n{"batchWatermarkMs":0}\n{"t":{"0":5}}')
        (tmp_path / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        (tmp_path / "offsets" / f".{number}.crc").write_bytes(b"crc")
        (tmp_path / "state/0/0" / f"{number}.changelog").write_bytes(b"changes")
    (tmp_path / "state/0/0/SSTs/a.sst").write_bytes(b"rows")
    sizes = {"2": 4, "3": 5}  # one of them has lost its end
    for version, size in sizes.items():
        with zipfile.ZipFile(tmp_path / "state/0/0" / f"{version}.zip", "w") as archive:
            told = {"sstFiles": [{"localFileName": "1", "dfsSstFileName": "a.sst", "sizeBytes": size}], "numKeys": 3}
            archive.writestr("metadata", f"v1\n{json.dumps(told)}")
    before = {str(path) for path in tmp_path.rglob("*")}
    mend(str(tmp_path))
    gone = {str(tmp_path / "state/0/0/3.zip")}
    assert before - {str(path) for path in tmp_path.rglob("*")} == gone
    damaged = {
        "offsets/3": b'v1\n{"batchWatermarkMs":0}\n{"t":',
        "commits/3": b"",
        "commits/2": b"\0" * 20,
        "state/0/0/3.changelog": b"",
        "state/0/0/2.zip": b"PK",
        "state/0/0/.2.changelog.crc": b"",
        "state/0/0/.4.changelog.x.TID1.tmp": b"changes",
    }
    for name, data in damaged.items():
        (tmp_path / name).write_bytes(data)
    mend(str(tmp_path))
    assert {path.name for path in (tmp_path / "offsets").iterdir()} == {
        *("0", "1", "2"),
        *(f".{n}.crc" for n in range(3)),
    }
    assert {path.name for path in (tmp_path / "commits").iterdir()} == {"0", "1"}
    assert state(tmp_path) == {"0.changelog", "1.changelog", "2.changelog", "SSTs"}


def test_each_file_is_synced_once_and_its_folder_after_it(tmp_path: Path) -> None:
    checkpoint = tmp_path / "streams/query/checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    synced: list[str] = []
    syncer = Syncer(str(checkpoint), lambda path: synced.append(os.path.relpath(path, tmp_path)))

    def after(name: str) -> list[str]:
        synced.clear()
        new = checkpoint / f"{name}.new"
        new.write_text("x")
        new.replace(checkpoint / name)
        syncer.sync()
        return synced

    found = after("offsets/0")
    assert {"streams", "streams/query", "streams/query/checkpoint"} <= set(found)
    assert found.index("streams/query/checkpoint/offsets/0") < found.index("streams/query/checkpoint/offsets")
    assert [name for name in after("offsets/1") if name[-1] in "01"] == ["streams/query/checkpoint/offsets/1"]
    assert "streams/query/checkpoint/offsets/1" in after("offsets/1"), "it was replaced"
    (checkpoint / "offsets/0").unlink()
    assert not [name for name in after("metadata") if name.endswith(("0", "1"))]
