"""Reading logs with transactions, and logs whose segments are replaced between the planning and the reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.storage.io import Io
from barnabas.storage.log_reader import SegmentReader
from barnabas.storage.tests.test_replacement import cleaned
from barnabas.storage.tests.test_transactions import History, end, write
from barnabas.storage.txn_index import SUFFIX
from barnabas.streams.tests.support import Logs, numbers, table
from barnabas.streams.wal import DataLossError, NewTopicError, Planner, Split, plan, read
from barnabas.wire import batch


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path / "data")


def values_of(splits: list[Split]) -> list[bytes]:
    return [value for split in splits for part in read(split, ["value"]) for value in part[0].to_pylist()]


@pytest.mark.parametrize("split_bytes", [1, 300, 1 << 20])
@pytest.mark.parametrize("seed", range(6))
def test_only_what_is_committed_is_read_up_to_the_last_stable_offset(logs: Logs, seed: int, split_bytes: int) -> None:
    history, vnode = History(seed), logs.vnode()
    for _ in range(6):
        for _ in range(15):
            history.step(vnode)
        vnode.flush()
        found = table(logs.log_dir(), split_bytes=split_bytes, columns=["value"])
        assert found["value"].to_pylist() == history.visible()
        assert logs.log_dir().ranges([("t", 0)]) == {("t", 0): (0, vnode.last_stable_offset)}


@pytest.mark.parametrize("damage", ["cut off", "no version", "out of order"])
def test_an_index_that_is_not_credible_does_not_show_what_was_aborted(logs: Logs, damage: str) -> None:
    history, vnode = History(3), logs.vnode()
    for _ in range(60):
        history.step(vnode)
    vnode.flush()
    files = list(Path(vnode.directory).glob("*" + SUFFIX))
    assert files
    for file in files:
        data = file.read_bytes()
        broken = {"cut off": data[:-1], "no version": b"\x01" + data[1:], "out of order": data + data[:34]}
        file.write_bytes(broken[damage])
    assert table(logs.log_dir(), columns=["value"])["value"].to_pylist() == history.visible()


def test_each_split_has_the_aborted_transactions_of_its_own_offsets(logs: Logs) -> None:
    vnode = logs.vnode()
    for number in range(30):
        write(vnode, 1, b"aborted", epoch=number)
        end(vnode, 1, committed=False, epoch=number + 1, new_epoch=True)
    vnode.flush()
    log_dir = logs.log_dir()
    splits = plan(log_dir, log_dir.ranges([("t", 0)]), split_bytes=1)
    assert len(splits) == 60
    assert [len(split.aborted) for split in splits] == [1] * 60
    assert values_of(splits) == []


def replace_segments(logs: Logs, first: int, last: int, *, keep_every: int) -> None:
    """Merge segments `first` up to `last` into one, with the batches of every `keep_every`th offset."""
    vnode = logs.vnode()
    old = vnode.segments[first:last]
    following = vnode.segments[last].base_offset
    kept = set(range(old[0].base_offset, following, keep_every))
    batches = {
        header.base_offset for header in _headers(logs) if kept & set(range(header.base_offset, header.last_offset + 1))
    }
    vnode.replace(old, [cleaned(Io(), old, following, lambda offset: offset in batches)])


def _headers(logs: Logs) -> list[batch.BatchHeader]:
    found, offset = [], 0
    while (piece := logs.vnode().read(offset, 1 << 20)).slice is not None:
        found += [header for header, _ in batch.iter_batches(piece.slice.read())]
        offset = piece.end_offset
    return found


@pytest.mark.parametrize("split_bytes", [1, 150, 1 << 20])
def test_splits_whose_segments_were_replaced_find_their_records_again(logs: Logs, split_bytes: int) -> None:
    logs.write(numbers(0, 150))
    log_dir = logs.log_dir()
    splits = plan(log_dir, log_dir.ranges([("t", 0)]), split_bytes=split_bytes)
    assert values_of(splits) == numbers(0, 150)
    replace_segments(logs, 1, 4, keep_every=7)
    now = table(logs.log_dir(), columns=["value"])["value"].to_pylist()
    assert 30 < len(now) < 150
    assert values_of(splits) == now
    replace_segments(logs, 0, 3, keep_every=9)
    later = table(logs.log_dir(), columns=["value"])["value"].to_pylist()
    assert len(later) < len(now)
    assert values_of(splits) == later
    half = [split for split in splits if split.lo >= 30]
    assert values_of(half) == [value for value in later if int(value) >= half[0].lo]


def test_splits_whose_records_are_gone_say_so(logs: Logs) -> None:
    logs.write(numbers(0, 150))
    log_dir = logs.log_dir()
    splits = plan(log_dir, log_dir.ranges([("t", 0)]))
    logs.vnode().truncate_prefix(50)
    with pytest.raises(DataLossError, match="offsets 0 to"):
        values_of(splits)
    left = [
        value
        for split in splits
        for part in read(split, ["value"], fail_on_data_loss=False)
        for value in part[0].to_pylist()
    ]
    assert left[-1] == b"149"
    logs.make_again(numbers(0, 150))
    with pytest.raises(NewTopicError):
        values_of(splits[-1:])


def test_a_place_remembered_of_a_segment_is_not_looked_for_in_the_one_that_took_its_place(logs: Logs) -> None:
    logs.write(numbers(0, 20))
    planner = Planner(logs.log_dir())
    planner.plan({("t", 0): (0, 10)})  # it remembers where 10 is
    logs.write(numbers(20, 150))
    replace_segments(logs, 0, 2, keep_every=9)
    now = table(logs.log_dir(), columns=["value"])["value"].to_pylist()
    splits = planner.plan({("t", 0): (10, 150)})
    assert values_of(splits) == [value for value in now if int(value) >= 10]


@pytest.mark.parametrize("moment", range(8))
def test_segments_that_are_replaced_while_splits_are_planned_are_not_left_out(
    logs: Logs, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments are replaced before call number `moment` that looks at a segment."""
    logs.write(numbers(0, 150))
    calls = 0

    def look(self: SegmentReader, name: str, *arguments: Any) -> Any:
        nonlocal calls
        if calls == moment:
            calls += 1
            replace_segments(logs, 0, 4, keep_every=7)
        calls += 1
        return originals[name](self, *arguments)

    originals = {name: getattr(SegmentReader, name) for name in ("open", "find", "close")}
    for name in originals:
        monkeypatch.setattr(SegmentReader, name, lambda self, *arguments, name=name: look(self, name, *arguments))
    found = Planner(logs.log_dir(), fail_on_data_loss=False).plan({("t", 0): (0, 150)})
    monkeypatch.undo()
    assert calls > moment
    now = table(logs.log_dir(), columns=["value"])["value"].to_pylist()
    assert set(now) <= set(values_of(found))
