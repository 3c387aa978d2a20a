"""A vnode against a list: appends, reads, rolls, restarts, and crashes that tear the file at a random byte."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.storage.config import LogConfig
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.tests.support import NOW, created, flush_alone, read_all, recovered, vnode_at
from barnabas.wire import batch
from barnabas.wire.batch import Record
from barnabas.wire.compression import CompressionType
from barnabas.wire.errors import ErrorCode, KafkaError


class VnodeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.path = self.place / "t-0"
        self.records: list[Record] = []  # all appended records, by offset
        self.flushed = 0
        self.start = 0
        self.checkpoint = 0
        self.vnode: LocalVnode

    def teardown(self) -> None:
        shutil.rmtree(self.place)

    @initialize(segment=st.integers(200, 900), interval=st.integers(1, 300), files=st.integers(1, 3))
    def create(self, segment: int, interval: int, files: int) -> None:
        self.config = LogConfig(segment_bytes=segment, index_interval_bytes=interval)
        self.vnode = created(self.path, self.config, limit=files)

    @rule(
        values=st.lists(st.binary(max_size=20), min_size=1, max_size=4),
        step=st.integers(-50, 50),
        codec=st.sampled_from(CompressionType),
        epoch=st.integers(0, 3),
    )
    def append(self, values: list[bytes], step: int, codec: CompressionType, epoch: int) -> None:
        base = len(self.records)
        new = [Record(b"k", v, NOW + 10 * (base + i) + step, (), base + i) for i, v in enumerate(values)]
        data = batch.build_batch([Record(r.key, r.value, r.timestamp) for r in new], compression=codec)
        self.vnode.leader_epoch = epoch
        result = self.vnode.append(data, now_ms=NOW)
        assert (result.base_offset, result.last_offset) == (base, base + len(values) - 1)
        self.records += new

    @rule()
    def flush(self) -> None:
        self.vnode.flush()
        self.flushed = len(self.records)

    @rule()
    def flush_and_reserve(self) -> None:
        flush_alone(self.vnode)
        self.flushed = len(self.records)

    @rule()
    def roll(self) -> None:
        self.vnode.roll(NOW)

    @rule()
    def note_a_checkpoint(self) -> None:
        self.vnode.write_indexes()
        self.checkpoint = self.vnode.recovery_point

    @rule(data=st.data())
    def truncate_prefix(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, max(self.start, self.flushed)))
        self.vnode.truncate_prefix(self.start)

    @rule()
    def restart(self) -> None:
        self.flush()
        self.vnode.close()
        self.vnode = vnode_at(self.path, self.config, start=self.start)
        self.checkpoint = self.flushed

    @precondition(lambda self: self.records)
    @rule(data=st.data(), junk=st.binary(max_size=80), indexes=st.sampled_from(["keep", "drop", "damage"]))
    def crash(self, data: st.DataObject, junk: bytes, indexes: str) -> None:
        """The machine loses any part of the unflushed bytes, and any part of the last segment's index files."""
        active = self.vnode.segments[-1]
        flushed_size = 0
        for header, _ in batch.iter_batches(Path(active.path()).read_bytes()[: active.size]):
            if header.last_offset < self.flushed:
                flushed_size += header.size_in_bytes
        size = Path(active.path()).stat().st_size
        assert size == max(active.size, active.reserved)
        if any(s.base_offset > self.flushed for s in self.vnode.segments):
            return  # more than one segment unflushed: the tear would have to be in the first of them
        with open(active.path(), "r+b") as log:
            log.truncate(data.draw(st.integers(flushed_size, active.size)))
            log.seek(0, 2)
            log.write(junk)
            if active.reserved > active.size:
                log.truncate(max(log.tell(), active.reserved))
        if indexes != "keep":
            self.checkpoint = min(self.checkpoint, active.base_offset)
            for suffix in (".index", ".timeindex"):
                if indexes == "drop":
                    Path(active.path(suffix)).unlink()
                else:
                    Path(active.path(suffix)).write_bytes(b"\x01" * 24)
        self.vnode = recovered(self.path, self.config, recovery_point=self.checkpoint, start=self.start)
        end = self.vnode.log_end_offset
        assert self.flushed <= end <= len(self.records)
        del self.records[end:]
        self.flushed = self.checkpoint = end

    @invariant()
    def everything_flushed_is_readable(self) -> None:
        if not hasattr(self, "vnode"):
            return
        vnode = self.vnode
        assert (vnode.log_start_offset, vnode.high_watermark, vnode.log_end_offset) == (
            self.start,
            self.flushed,
            len(self.records),
        )
        assert read_all(vnode) == self.records[self.start : self.flushed]

    @rule(data=st.data(), max_bytes=st.integers(0, 400))
    def read_from_anywhere(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(0, len(self.records) + 1))
        if self.start <= offset <= len(self.records):
            assert read_all(self.vnode, offset, max_bytes) == self.records[offset : self.flushed]
        else:
            with pytest.raises(KafkaError) as caught:
                self.vnode.read(offset, max_bytes)
            assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    @rule(data=st.data())
    def look_up_a_time(self, data: st.DataObject) -> None:
        ask = NOW + data.draw(st.integers(-60, 10 * len(self.records) + 60))
        readable = self.records[self.start : self.flushed]
        expected = next(((r.offset, r.timestamp) for r in readable if r.timestamp >= ask), None)
        assert self.vnode.offset_for_timestamp(ask) == expected


TestVnode = VnodeMachine.TestCase
TestVnode.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
