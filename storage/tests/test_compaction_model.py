"""Compaction against a model: whatever is written, cut and restarted, a consumer gets what Kafka guarantees it."""

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
from barnabas.storage.tests.compacting import RETENTION, clean, limits_of
from barnabas.storage.tests.support import NOW, CrashError, FaultyIo, created, recovered, vnode_at
from barnabas.wire import batch
from barnabas.wire.batch import Marker, Record
from barnabas.wire.compression import CompressionType

KEYS = [b"a", b"b", b"c" * 30, b""]
record_lists = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.binary(max_size=25)), min_size=1, max_size=5)
PRODUCERS = range(1, 4)


class CompactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.path = self.place / "t-0"
        self.now = NOW
        self.records: dict[int, Record] = {}  # appended and not aborted, by offset
        self.open: dict[int, list[int]] = {}  # offsets of open transactions, by producer
        self.sequences: dict[int, int] = {}
        self.covered: dict[int, int] = {}  # when a pass first went over an offset
        self.cleaned_to = 0
        self.start = 0
        self.vnode: LocalVnode

    def teardown(self) -> None:
        shutil.rmtree(self.place)

    @initialize(segment=st.integers(300, 900), interval=st.integers(1, 300), lag=st.sampled_from([0, 0, 500]))
    def create(self, segment: int, interval: int, lag: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment,
            index_interval_bytes=interval,
            cleanup_policy="compact",
            delete_retention_ms=RETENTION,
            min_compaction_lag_ms=lag,
        )
        self.vnode = created(self.path, self.config)

    def _append(self, given: list[tuple[bytes, bytes | None]], codec: int, producer: int, in_transaction: bool) -> int:
        base = self.vnode.log_end_offset
        made = [Record(key, value, self.now, (), base + n) for n, (key, value) in enumerate(given)]
        more = {}
        if producer:
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + len(made)
            more = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        data = batch.build_batch(
            [Record(r.key, r.value, r.timestamp) for r in made],
            compression=codec,
            is_transactional=in_transaction,
            **more,  # type: ignore[arg-type]
        )
        assert self.vnode.append(data, now_ms=self.now).base_offset == base
        self.records.update((record.offset, record) for record in made)
        return base

    @rule(given=record_lists, codec=st.sampled_from([0, 0, *CompressionType]), idempotent=st.booleans())
    def append(self, given: list[tuple[bytes, bytes | None]], codec: int, idempotent: bool) -> None:
        self._append(given, codec, 9 if idempotent else 0, False)

    @rule(given=record_lists, codec=st.sampled_from([0, 0, *CompressionType]), producer=st.sampled_from(PRODUCERS))
    def append_in_transaction(self, given: list[tuple[bytes, bytes | None]], codec: int, producer: int) -> None:
        base = self._append(given, codec, producer, True)
        self.open.setdefault(producer, []).extend(range(base, base + len(given)))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), committed=st.booleans())
    def end_transaction(self, data: st.DataObject, committed: bool) -> None:
        producer = data.draw(st.sampled_from(sorted(self.open)))
        self.vnode.end_transaction(Marker(producer, 0, committed, 0), new_epoch=False, now_ms=self.now)
        for offset in self.open.pop(producer):
            if not committed:
                del self.records[offset]

    @rule()
    def flush(self) -> None:
        self.vnode.flush()

    @rule()
    def roll(self) -> None:
        self.vnode.roll(self.now)

    @rule(milliseconds=st.integers(1, 2 * RETENTION))
    def wait(self, milliseconds: int) -> None:
        self.now += milliseconds

    @rule(keys=st.sampled_from([1, 2, 1000]), read_bytes=st.sampled_from([61, 200, 1 << 20]))
    def compact(self, keys: int, read_bytes: int) -> None:
        end = self.vnode.log_end_offset
        figures = clean(self.vnode, self.now, limits_of(keys, read_bytes=read_bytes))
        assert self.vnode.log_end_offset == end
        if figures is not None:
            assert figures.to_offset > figures.from_offset
            self._covers(figures.to_offset)

    def _covers(self, to_offset: int) -> None:
        for offset in self.records:
            if offset < to_offset:
                self.covered.setdefault(offset, self.now)
        self.cleaned_to = max(self.cleaned_to, to_offset)

    @rule(data=st.data())
    def truncate_prefix(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, max(self.start, self.vnode.high_watermark)))
        self.vnode.truncate_prefix(self.start)

    @rule()
    def restart(self) -> None:
        self.vnode.flush()
        cleaned_to = self.vnode.cleaned_to
        self.vnode.close()
        self.vnode = vnode_at(self.path, self.config, start=self.start)
        self.vnode.cleaned_to = cleaned_to

    @rule(lost_snapshots=st.booleans(), at=st.integers(1, 40), kind=st.sampled_from(["before", "after", "torn"]))
    def kill_during_a_pass(self, lost_snapshots: bool, at: int, kind: str) -> None:
        self.vnode.flush()
        cleaned_to = self.vnode.cleaned_to
        self.vnode.close()
        io = FaultyIo(-1, kind)
        vnode = vnode_at(self.path, self.config, io=io, start=self.start)
        vnode.cleaned_to = cleaned_to
        vnode.load()
        io.calls, io.at = 0, at
        try:
            figures = clean(vnode, self.now)
            if figures is not None:
                self._covers(figures.to_offset)
                cleaned_to = vnode.cleaned_to
        except CrashError:
            self._covers(vnode.last_stable_offset)
        if lost_snapshots and not self.start:  # the memory of deletions is lost with them
            for file in self.path.glob("*.snapshot"):
                file.unlink()
        self.vnode = recovered(self.path, self.config, recovery_point=self.vnode.recovery_point, start=self.start)
        self.vnode.cleaned_to = cleaned_to

    # -- what holds --------------------------------------------------------------------------------------------------

    def _read_committed(self) -> list[Record]:
        vnode = self.vnode
        offset, limit = vnode.log_start_offset, vnode.last_stable_offset
        aborted = vnode.aborted_transactions(offset, limit) if offset < limit else []
        found: list[Record] = []
        while (result := vnode.read(offset, 300, max_offset=limit)).slice is not None:
            for header, view in batch.iter_batches(result.slice.read()):
                batch.check(view)
                assert header.base_offset + header.last_offset_delta >= offset
                is_aborted = header.is_transactional and any(
                    entry.producer_id == header.producer_id
                    and entry.first_offset <= header.base_offset <= entry.last_offset
                    for entry in aborted
                )
                if not header.is_control and not is_aborted:
                    found += [record for record in batch.iter_records(view) if record.offset >= vnode.log_start_offset]
                offset = header.last_offset + 1
        return found

    @invariant()
    def a_consumer_gets_what_it_should(self) -> None:
        if not hasattr(self, "vnode"):
            return
        vnode = self.vnode
        start, limit = vnode.log_start_offset, vnode.last_stable_offset
        seen = {record.offset: record for record in self._read_committed()}
        assert list(seen) == sorted(seen)
        latest: dict[bytes | None, int] = {}
        for offset, record in self.records.items():
            if offset < limit:
                latest[record.key] = max(offset, latest.get(record.key, -1))
        for offset, record in seen.items():
            assert self.records[offset] == record
        for offset, record in self.records.items():
            if not start <= offset < limit or offset in seen:
                continue
            assert offset in self.covered, f"{offset} is gone, and was never clean"
            if latest[record.key] == offset:
                assert record.value is None, f"the last record of a key is gone: {record}"
                assert self.now >= self.covered[offset] + RETENTION, f"the tombstone {offset} went early"

    @invariant()
    def producers_go_on(self) -> None:
        if hasattr(self, "vnode"):
            for producer, sequence in self.sequences.items():
                assert self.vnode.producers.producers[producer].batches[-1].last_sequence == sequence - 1


TestCompaction = CompactionMachine.TestCase
TestCompaction.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class LongCompactionMachine(CompactionMachine):
    pass


TestCompactionForLong = pytest.mark.slow(LongCompactionMachine.TestCase)
TestCompactionForLong.settings = settings(max_examples=2000, stateful_step_count=60, deadline=None)
