"""The segments of a log and what its flush must sync, without a vnode."""

from __future__ import annotations

from pathlib import Path

from barnabas.storage.appender import Appender
from barnabas.storage.config import LogConfig
from barnabas.storage.files import FileCache
from barnabas.storage.io import Io
from barnabas.storage.log import Log
from barnabas.storage.reader import Reader
from barnabas.storage.retention import expired
from barnabas.storage.tests.support import NOW, one
from barnabas.storage.validation import Rules
from barnabas.storage.vnode import Origin
from barnabas.storage.watermarks import Watermarks

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=50, retention_ms=1000)


def opened(path: Path, config: LogConfig = CONFIG, *, start: int = 0) -> Log:
    path.mkdir(exist_ok=True)
    io = Io()
    return Log(str(path), config, io=io, cache=FileCache(io), start_offset=start)


def written(path: Path, config: LogConfig = CONFIG) -> Log:
    log = opened(path, config)
    appender = Appender(log, Rules.of(config))
    for number in range(20):
        data = one(b"%02d" % number, timestamp=NOW + 100 * number)
        appender.append(data, NOW, Origin.CLIENT, number // 8)
    return log


def test_an_empty_folder_is_an_empty_log_that_begins_where_it_should(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0", start=50)
    assert (log.start_offset, log.end_offset, log.bases, log.size_bytes) == (50, 50, [50], 0)
    assert opened(tmp_path / "t-0").start_offset == 50


def test_a_log_is_found_again_as_it_was(tmp_path: Path) -> None:
    log = written(tmp_path / "t-0")
    assert log.bases == [0, 4, 8, 12, 16]
    log.close()
    again = opened(tmp_path / "t-0")
    assert (again.bases, again.end_offset, again.size_bytes) == (log.bases, 20, log.size_bytes)
    assert again.epochs.entries == [(0, 0), (1, 8), (2, 16)]
    assert [again.segment_of(offset).base_offset for offset in (3, 4, 20)] == [0, log.bases[1], log.bases[-1]]
    assert again.following(again.segments[0]) == log.bases[1]


def test_a_flush_takes_over_what_is_owed_once(tmp_path: Path) -> None:
    log = written(tmp_path / "t-0")
    job = log.unflushed.begin(log)
    assert job is not None
    assert job.end_offset == 20
    assert len(job.files) == len(log.segments)
    assert job.lone_fd is None
    assert len(log.unflushed.rolled_indexes) == 2 * (len(log.segments) - 1)
    assert log.unflushed.begin(log) is None
    log.unflushed.put_back(job)
    again = log.unflushed.begin(log)
    assert again is not None
    assert (again.files, again.paths, again.size) == (job.files, job.paths, job.size)
    again.run()
    log.unflushed.end(again)
    assert log.unflushed.rolled_indexes == []
    Appender(log, Rules.of(CONFIG)).append(one(b"x"), NOW, Origin.CLIENT, 2)
    small = log.unflushed.begin(log)
    assert small is not None
    assert small.size == len(one(b"x"))


def test_a_reader_sees_what_is_below_the_high_watermark(tmp_path: Path) -> None:
    log = written(tmp_path / "t-0")
    second = log.segments[1]
    reader = Reader(log, Watermarks(second.base_offset, second, 0, log.producers.undecided))
    found, left, check, end = reader.find_slice(0, 1 << 20, True, second.base_offset, False)
    assert found is not None
    assert check is None
    assert (len(found), left > 0, end) == (log.segments[0].size, True, second.base_offset)
    reader.forget()
    assert reader.find_slice(second.base_offset, 1 << 20, True, second.base_offset, False)[0] is None


def test_what_has_expired_is_whole_segments_from_the_oldest_on(tmp_path: Path) -> None:
    log = written(tmp_path / "t-0")
    newest = [segment.newest(log.io)[0] for segment in log.segments]
    assert expired(log, 20, newest[2] + 1000) == 2
    assert expired(log, log.bases[1], newest[2] + 1000) == 1
    assert expired(log, log.bases[1] - 1, newest[2] + 1000) == 0
    count = len(log.segments)
    assert expired(log, 20, newest[-1] + 1001) == count
    assert log.bases[count:] == [20]  # a new segment for the next append
    log.config = LogConfig(retention_ms=-1, retention_bytes=log.size_bytes - log.segments[0].size)
    assert expired(log, 20, NOW) == 1
