"""The file system of checkpoints: like Hadoop's own, without processes and checksum files."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.windows.local_files import use_local_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN = "org.apache.hadoop.fs.BarnabasLocalFiles"


class Hadoop:
    """One of Hadoop's file systems, on this machine."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._hadoop: Any = jvm.org.apache.hadoop
        conf = self._hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
        conf.set("fs.file.impl", name)
        self.files = self._hadoop.fs.FileSystem.newInstance(jvm.java.net.URI("file:///"), conf)
        assert self.files.getClass().getName() == name

    def path(self, path: Path) -> Any:
        return self._hadoop.fs.Path(str(path))

    def write(self, path: Path, data: bytes) -> None:
        out = self.files.create(self.path(path), True)
        out.write(data)
        out.close()

    def read(self, path: Path) -> bytes:
        found = self.files.open(self.path(path))
        try:
            return bytes(found.readAllBytes())
        finally:
            found.close()

    def permission(self, text: str) -> Any:
        return self._hadoop.fs.permission.FsPermission(text)


@pytest.fixture
def own(spark: SparkSession) -> Hadoop:
    assert use_local_files(spark)
    assert use_local_files(spark), "once more"
    return Hadoop(spark, OWN)


def test_there_are_the_files_and_nothing_beside_them(own: Hadoop, tmp_path: Path) -> None:
    own.write(tmp_path / "a" / "b", b"one")
    own.write(tmp_path / "a" / "b", b"two")
    assert own.files.rename(own.path(tmp_path / "a" / "b"), own.path(tmp_path / "a" / "c"))
    assert (tmp_path / "a" / "c").read_bytes() == own.read(tmp_path / "a" / "c") == b"two"
    assert os.listdir(tmp_path / "a") == ["c"]
    (found,) = own.files.listStatus(own.path(tmp_path / "a"))
    assert (found.getLen(), found.isDirectory(), found.getPath().getName()) == (3, False, "c")
    assert found.getModificationTime() == os.stat(tmp_path / "a" / "c").st_mtime_ns // 1_000_000
    assert not own.files.exists(own.path(tmp_path / "a" / "b"))
    assert own.files.delete(own.path(tmp_path / "a"), True)
    assert os.listdir(tmp_path) == []


def test_no_process_is_asked_for_owners_and_rights(own: Hadoop, tmp_path: Path) -> None:
    own.write(tmp_path / "a", b"x")
    own.files.setPermission(own.path(tmp_path / "a"), own.permission("640"))
    assert stat.S_IMODE(os.stat(tmp_path / "a").st_mode) == 0o640
    found = own.files.getFileStatus(own.path(tmp_path / "a"))
    assert (found.getOwner(), found.getGroup()) == ("", ""), "Hadoop's own would have started stat"


def test_hadoops_own_reads_what_it_has_written_and_the_other_way_round(
    spark: SparkSession, own: Hadoop, tmp_path: Path
) -> None:
    other = Hadoop(spark, "org.apache.hadoop.fs.LocalFileSystem")
    other.write(tmp_path / "a", b"before")
    assert (tmp_path / ".a.crc").exists()
    assert own.read(tmp_path / "a") == b"before"
    own.write(tmp_path / "a", b"after")
    assert not (tmp_path / ".a.crc").exists(), "it would not fit"
    assert other.read(tmp_path / "a") == b"after"
