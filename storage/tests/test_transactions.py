"""Transactions in a vnode: what a read_committed consumer sees, also after changes to the files."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.config import LogConfig
from barnabas.storage.errors import StorageError
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.recovery import recover_partition
from barnabas.storage.tests.memory import MemoryVnode
from barnabas.storage.tests.support import (
    NOW,
    PAGE_CACHE,
    SMALL,
    TOPIC_ID,
    CrashError,
    FaultyIo,
    RecordedEvents,
    created,
    one,
    recovered,
    vnode_at,
)
from barnabas.storage.txn_index import SUFFIX, AbortedTransaction, TransactionIndex
from barnabas.storage.validation import validate
from barnabas.storage.vnode import Origin, Vnode
from barnabas.wire import batch
from barnabas.wire.batch import Marker, Record
from barnabas.wire.errors import ErrorCode, KafkaError

Make = Callable[[LogConfig], Vnode]
BIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=100)


@pytest.fixture(params=["local", "memory"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    if request.param == "local":
        return lambda config: created(tmp_path / "t-0", config)
    return lambda config: MemoryVnode("t", 0, TOPIC_ID, config)


def batch_of(producer_id: int, value: bytes, *, sequence: int = 0, epoch: int = 0, plain: bool = False) -> bytes:
    return batch.build_batch(
        [Record(b"k", value, NOW)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=not plain,
    )


def write(vnode: Vnode, producer_id: int, value: bytes, *, sequence: int = 0, epoch: int = 0) -> int:
    data = batch_of(producer_id, value, sequence=sequence, epoch=epoch)
    return vnode.append(data, now_ms=NOW).base_offset


def end(vnode: Vnode, producer_id: int, *, committed: bool, epoch: int = 0, new_epoch: bool = False) -> int:
    marker = Marker(producer_id, epoch, committed, 0)
    return vnode.end_transaction(marker, new_epoch=new_epoch, now_ms=NOW).base_offset


def committed_values(vnode: Vnode, start: int = 0, max_bytes: int = 200) -> list[bytes | None]:
    """Read like a read_committed client: fetch by fetch, skipping the aborted transactions that the answer lists."""
    seen: list[bytes | None] = []
    offset = start
    while True:
        found = vnode.read(offset, max_bytes, max_offset=vnode.last_stable_offset)
        if found.slice is None:
            return seen
        aborted = sorted(vnode.aborted_transactions(offset, found.end_offset), key=lambda entry: entry.first_offset)
        skipped: set[int] = set()
        for header, view in batch.iter_batches(found.slice.read()):
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipped.add(aborted.pop(0).producer_id)
            if header.is_control:
                marker = batch.marker_of(view)
                assert marker is not None
                if not marker.committed:
                    skipped.discard(marker.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                seen += [record.value for record in batch.iter_records(view) if record.offset >= offset]
            offset = header.last_offset + 1
        assert offset == found.end_offset


def refused(act: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        act()
    return caught.value.code


class CountingIo(Io):
    """Counts the files that are opened or read."""

    opened: int = 0

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        self.opened += 1
        return super().open(path, flags, mode)


def test_segments_without_aborted_transactions_are_not_looked_at(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", SMALL)
    for producer_id in count(1):
        write(vnode, producer_id, b"x" * 50)
        end(vnode, producer_id, committed=producer_id != 40)
        if len(vnode.segments) == 60:
            break
    vnode.flush()
    vnode.close()
    io = CountingIo()
    again = vnode_at(tmp_path / "t-0", SMALL, io=io)
    ends = again.log_end_offset
    (aborted,) = again.aborted_transactions(0, ends)
    before = io.opened
    for start in range(0, ends, 7):
        found = again.aborted_transactions(start, start + 7)
        assert bool(found) == (aborted.first_offset < start + 7 and aborted.last_offset >= start)
    assert io.opened == before


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=80),
    st.integers(0, 3),
    st.sampled_from([1, 2, 256]),
)
def test_the_index_finds_what_a_walk_over_all_entries_finds(steps: list[int], most: int, block: int) -> None:
    """Transactions may overlap: each step begins one, or ends an open one."""
    open_ones: list[int] = []
    entries: list[AbortedTransaction] = []
    for offset, step in enumerate(steps):
        if step and open_ones:
            first = open_ones.pop(step % len(open_ones))
            entries.append(AbortedTransaction(first, first, offset, min([*open_ones, offset + 1])))
        else:
            open_ones.append(offset)
    with patch("barnabas.storage.txn_index._BLOCK", block):
        made = TransactionIndex(entries)
        read = TransactionIndex.decode(made.encode(), 0, len(steps))
        for index in (made, read):
            for start in range(len(steps)):
                there, behind = index.marker_after(start, most)
                markers = [entry.last_offset for entry in entries if entry.last_offset >= start]
                assert (there, behind) == (len(markers), markers[most] if len(markers) > most else -1)
                for stop in range(start + 1, len(steps) + 1):
                    found: list[AbortedTransaction] = []
                    index.collect(start, stop, found)
                    assert found == [e for e in entries if e.last_offset >= start and e.first_offset < stop]


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(make: Make) -> None:
    vnode = make(PAGE_CACHE)
    write(vnode, 1, b"a")
    write(vnode, 2, b"b")
    vnode.append(one(b"plain"), now_ms=NOW)
    assert (vnode.high_watermark, vnode.last_stable_offset) == (3, 0)
    assert committed_values(vnode) == []
    assert end(vnode, 1, committed=True) == 3
    assert vnode.last_stable_offset == 1
    assert committed_values(vnode) == [b"a"]
    assert (vnode.open_transaction(1), vnode.open_transaction(2)) == (None, 1)
    end(vnode, 2, committed=False)
    assert vnode.last_stable_offset == vnode.high_watermark == 5
    assert committed_values(vnode) == [b"a", b"plain"]
    assert vnode.aborted_transactions(0, 5) == [AbortedTransaction(2, 1, 4, 5)]
    assert vnode.aborted_transactions(2, 3) == [AbortedTransaction(2, 1, 4, 5)]
    assert vnode.aborted_transactions(0, 1) == []


def test_the_last_stable_offset_waits_until_the_marker_is_durable(make: Make) -> None:
    vnode = make(SMALL)
    write(vnode, 1, b"a")
    vnode.flush()
    end(vnode, 1, committed=False)
    assert (vnode.high_watermark, vnode.last_stable_offset) == (1, 0)
    vnode.flush()
    assert (vnode.high_watermark, vnode.last_stable_offset) == (2, 2)
    assert committed_values(vnode) == []


def test_a_plain_batch_is_refused_while_its_producer_has_a_transaction_open(make: Make) -> None:
    vnode = make(PAGE_CACHE)
    write(vnode, 1, b"a")
    plain = batch_of(1, b"b", sequence=1, plain=True)
    assert refused(lambda: vnode.append(plain, now_ms=NOW)) is ErrorCode.INVALID_TXN_STATE
    again = vnode.append(batch_of(1, b"a"), now_ms=NOW)
    assert (again.duplicate, again.base_offset) == (True, 0), "a batch that is repeated gets its first offset"
    end(vnode, 1, committed=True)
    assert vnode.append(plain, now_ms=NOW).base_offset == 2


def test_markers_of_the_past_end_nothing(make: Make) -> None:
    vnode = make(PAGE_CACHE)
    write(vnode, 1, b"a", epoch=3)
    assert refused(lambda: end(vnode, 1, committed=True, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    end(vnode, 1, committed=True, epoch=4, new_epoch=True)
    write(vnode, 1, b"b", epoch=4)
    late = refused(lambda: end(vnode, 1, committed=False, epoch=4, new_epoch=True))
    assert late is ErrorCode.INVALID_PRODUCER_EPOCH, "it is the marker of the transaction before"
    assert vnode.open_transaction(1) == 2
    end(vnode, 1, committed=True, epoch=5, new_epoch=True)
    end(vnode, 1, committed=True, epoch=5, new_epoch=True)  # repeated: it ends nothing
    assert committed_values(vnode) == [b"a", b"b"]
    assert refused(lambda: write(vnode, 1, b"zombie", epoch=4, sequence=1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    fenced = Marker(1, 5, True, -1)
    code = refused(lambda: vnode.end_transaction(fenced, new_epoch=True, now_ms=NOW))
    assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_the_marker_of_an_unknown_producer_is_written_and_ends_nothing(make: Make) -> None:
    vnode = make(PAGE_CACHE)
    end(vnode, 9, committed=False)
    vnode.append(one(b"a"), now_ms=NOW)
    assert committed_values(vnode) == [b"a"]
    assert vnode.aborted_transactions(0, 10) == []


def test_a_coordinators_batch_has_no_sequence(make: Make) -> None:
    vnode = make(PAGE_CACHE)
    data = batch_of(1, b"offsets", sequence=-1)
    for _ in range(2):
        assert not vnode.append(data, now_ms=NOW, origin=Origin.COORDINATOR).duplicate
    assert refused(lambda: vnode.append(data, now_ms=NOW)) is ErrorCode.INVALID_RECORD
    assert vnode.open_transaction(1) == 0
    end(vnode, 1, committed=True)
    assert committed_values(vnode) == [b"offsets"] * 2


def test_deleted_records_do_not_hold_the_last_stable_offset_below_the_start(make: Make) -> None:
    vnode = make(PAGE_CACHE)
    write(vnode, 1, b"a")
    vnode.append(one(b"b"), now_ms=NOW)
    vnode.append(one(b"c"), now_ms=NOW)
    vnode.truncate_prefix(2)
    assert vnode.last_stable_offset == 2
    assert vnode.read(2, 100, max_offset=vnode.last_stable_offset).slice is None
    end(vnode, 1, committed=False)
    assert committed_values(vnode, 2) == [b"c"]


def test_producers_are_shown(make: Make) -> None:
    vnode = make(PAGE_CACHE)
    write(vnode, 1, b"a", epoch=2)
    (found,) = vnode.active_producers()
    producer_id, producer = found
    assert (producer_id, producer.epoch, producer.first_open_offset, producer.timestamp) == (1, 2, 0, NOW)
    assert producer.batches[-1].last_sequence == 0


# -- random histories ------------------------------------------------------------------------------------------------


class History:
    """Producers that write and end transactions at random, and what a read_committed consumer must see."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.outcomes: dict[tuple[int, int], bool] = {}
        self.written: list[tuple[tuple[int, int] | None, bytes]] = []
        self.open: dict[int, int] = {}  # producer: sequence
        self.epochs: dict[int, int] = {}

    def step(self, vnode: Vnode) -> None:
        """Make one append; a failed one changes nothing here."""
        rng = self.random
        producer = rng.randrange(4)
        value = b"%d" % len(self.written)
        epoch = self.epochs.setdefault(producer, 0)
        if producer == 0:
            vnode.append(one(value), now_ms=NOW)
            self.written.append((None, value))
        elif producer in self.open and rng.random() < 0.4:
            committed = rng.random() < 0.5
            end(vnode, producer, committed=committed, epoch=epoch + 1, new_epoch=True)
            self.outcomes[producer, epoch] = committed
            self.epochs[producer] += 1
            del self.open[producer]
        else:
            sequence = self.open.get(producer, 0)
            write(vnode, producer, value, sequence=sequence, epoch=epoch)
            self.open[producer] = sequence + 1
            self.written.append(((producer, epoch), value))

    def visible(self) -> list[bytes]:
        """The committed values before the first open transaction."""
        seen = []
        for transaction, value in self.written:
            if transaction is None:
                seen.append(value)
            elif transaction not in self.outcomes:
                break
            elif self.outcomes[transaction]:
                seen.append(value)
        return seen


@pytest.mark.parametrize("seed", range(20))
def test_a_consumer_sees_exactly_what_is_committed(make: Make, seed: int) -> None:
    vnode, history = make(PAGE_CACHE), History(seed)
    for _ in range(80):
        history.step(vnode)
        if history.random.random() < 0.2:
            assert committed_values(vnode) == history.visible()
    assert committed_values(vnode, max_bytes=1 << 20) == history.visible()


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize("seed", range(10))
def test_after_a_restart_the_same_is_seen(tmp_path: Path, seed: int, clean: bool) -> None:
    path, history = tmp_path / "t-0", History(seed)
    vnode = created(path)
    for _ in range(60):
        history.step(vnode)
        if history.random.random() < 0.1:
            vnode.flush()
            assert committed_values(vnode) == history.visible()
            point = vnode.recovery_point
            if clean:
                vnode.close()
                vnode = vnode_at(path)
            else:
                point = history.random.choice([0, point])
                if point == 0 and history.random.random() < 0.5:
                    for index in path.glob("*" + SUFFIX):  # a loss of power: the index is not synced with each flush
                        index.unlink()
                vnode = recovered(path, recovery_point=point)
            assert committed_values(vnode) == history.visible()


@pytest.mark.parametrize("kind", ["before", "after", "torn"])
def test_a_kill_at_any_step_of_an_abort_leaves_it_open_or_aborted(tmp_path: Path, kind: str) -> None:
    for at in range(1, 40):
        path = tmp_path / str(at) / "t-0"
        path.parent.mkdir()
        io = FaultyIo(-1, kind)
        vnode = created(path, BIG, io=io)
        write(vnode, 1, b"a")
        vnode.flush()
        io.at, io.calls = at, 0
        with contextlib.suppress(CrashError):
            end(vnode, 1, committed=False)
            vnode.flush()
        again = recovered(path, BIG, recovery_point=1)
        assert committed_values(again) == []
        if again.open_transaction(1) is not None:
            assert again.last_stable_offset == 0
            end(again, 1, committed=False)
            again.flush()
        assert again.last_stable_offset == again.high_watermark
        assert [entry.first_offset for entry in again.aborted_transactions(0, 10)] == [0]
        if io.calls < at:
            return
    raise AssertionError("there are more steps than were met")


@pytest.mark.parametrize("kind", ["enospc", "eio"])
def test_an_error_at_any_step_of_an_abort_can_be_answered_by_another_try(tmp_path: Path, kind: str) -> None:
    for at in range(1, 40):
        path = tmp_path / str(at) / "t-0"
        path.parent.mkdir()
        io = FaultyIo(-1, kind)
        vnode = created(path, BIG, io=io)
        write(vnode, 1, b"a")
        vnode.flush()
        io.at, io.calls = at, 0
        with contextlib.suppress(StorageError):
            end(vnode, 1, committed=False)
        met, io.at = io.calls >= at, -1
        if vnode.error is not None:
            vnode = recovered(path, BIG, recovery_point=1)
        if vnode.open_transaction(1) is not None:
            vnode.append(one(b"b"), now_ms=NOW)
            end(vnode, 1, committed=False)
        vnode.flush()
        assert committed_values(vnode) in ([], [b"b"])
        vnode.close()
        assert committed_values(vnode_at(path, BIG)) in ([], [b"b"])
        if not met:
            return
    raise AssertionError("there are more steps than were met")


# -- the index -------------------------------------------------------------------------------------------------------


def aborted_log(path: Path, batches: int = 3) -> LocalVnode:
    """Ten transactions, every second one aborted, in many segments."""
    vnode = created(path)
    for number in range(10):
        for sequence in range(batches):
            write(vnode, 1 + number % 3, b"%d" % number, epoch=number, sequence=sequence)
        end(vnode, 1 + number % 3, committed=number % 2 == 0, epoch=number + 1, new_epoch=True)
    vnode.flush()
    return vnode


SEEN = [b"%d" % number for number in range(0, 10, 2) for _ in range(3)]


def test_the_file_is_kafkas_format(tmp_path: Path) -> None:
    vnode = created(tmp_path / "t-0", BIG)
    write(vnode, 7, b"a")
    end(vnode, 7, committed=False)
    data = (tmp_path / "t-0" / f"{0:020d}{SUFFIX}").read_bytes()
    assert data == bytes.fromhex("0000" + f"{7:016x}{0:016x}{1:016x}{2:016x}")
    index_of = TransactionIndex.decode(data, 0, 2)
    assert (len(index_of), index_of[0]) == (1, AbortedTransaction(7, 0, 1, 2))


def test_a_damaged_index_is_made_anew_and_told(tmp_path: Path) -> None:
    template = tmp_path / "t-0"
    aborted_log(template, batches=1).close()  # with more, another one of them might be the first
    seen = SEEN[::3]
    files = sorted(template.glob("*" + SUFFIX))
    assert files
    for file in files:
        original = file.read_bytes()
        for at in range(len(original)):
            if at % 34 < 26:  # the last stable offset of an entry cannot be proved
                file.write_bytes(original[:at] + bytes([original[at] ^ 1]) + original[at + 1 :])
                tell = RecordedEvents()
                vnode = vnode_at(template, tell=tell)
                assert committed_values(vnode) == seen, f"byte {at} of {file.name}"
                assert [name for name, _ in tell.events] == ["index.rebuilt"], f"byte {at} of {file.name}"
                assert file.read_bytes() == original
        file.write_bytes(original[:-1])
        vnode = vnode_at(template, tell=RecordedEvents())
        assert committed_values(vnode) == seen
        assert file.read_bytes() == original


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_damaged_snapshot_of_producers_is_made_anew_and_told(tmp_path: Path, clean: bool) -> None:
    path = tmp_path / "t-0"
    vnode = aborted_log(path)
    write(vnode, 9, b"open")
    vnode.close()
    newest = max(path.glob("*.snapshot"))
    data = newest.read_bytes()
    newest.write_bytes(data[:20] + b"?" + data[21:])
    tell = RecordedEvents()
    if not clean:
        recover_partition(Io(), str(path), 41, SMALL, tell)
    vnode = vnode_at(path, tell=tell)
    assert (vnode.open_transaction(9), vnode.last_stable_offset) == (40, 40)
    assert [(name, fields["file"]) for name, fields in tell.events] == [("index.rebuilt", newest.name)]
    again = vnode.append(batch_of(9, b"open"), now_ms=NOW)
    assert (again.duplicate, again.base_offset) == (True, 40)


def test_segments_that_go_take_their_index_along(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    vnode = aborted_log(path)
    assert list(path.glob("*" + SUFFIX))
    vnode.truncate_prefix(vnode.high_watermark)
    assert [file.name for file in path.glob("*" + SUFFIX)] in ([], [f"{vnode.segments[-1].base_offset:020d}{SUFFIX}"])


def test_the_index_survives_the_repair_of_its_segment(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    vnode = created(path, BIG)
    write(vnode, 1, b"aborted")
    vnode.append(one(b"damaged" * 20), now_ms=NOW)
    end(vnode, 1, committed=False)
    vnode.append(one(b"plain"), now_ms=NOW)
    vnode.close()
    log_file = path / f"{0:020d}.log"
    data = log_file.read_bytes()
    at = data.index(b"damaged")
    log_file.write_bytes(data[:at] + b"D" + data[at + 1 :])
    tell = RecordedEvents()
    vnode = vnode_at(path, BIG, tell=tell)
    vnode.found_damage(1, ValueError("the CRC does not match"))
    assert committed_values(vnode) == [b"plain"]
    recover_partition(Io(), str(path), 0, BIG, RecordedEvents())
    assert committed_values(vnode_at(path, BIG)) == [b"plain"]


def test_batches_of_a_leader_carry_transactions_along(tmp_path: Path) -> None:
    source = aborted_log(tmp_path / "t-0")
    target = created(tmp_path / "t-1", PAGE_CACHE)
    offset = 0
    while (found := source.read(offset, 300)).slice is not None:
        target.append(found.slice.read(), now_ms=NOW, origin=Origin.REPLICATION)
        offset = found.end_offset
    assert committed_values(target) == SEEN
    whole = source.aborted_transactions(0, 100)
    assert target.aborted_transactions(0, 100) == whole
    assert len(whole) == 5


def test_a_validated_batch_may_be_transactional(make: Make) -> None:
    vnode = make(PAGE_CACHE)
    assert vnode.append_valid(validate(batch_of(1, b"a"), vnode.rules, NOW), now_ms=NOW).base_offset == 0
    assert vnode.open_transaction(1) == 0
