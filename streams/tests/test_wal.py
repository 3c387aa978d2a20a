"""The reading layer: splits, ends, torn tails, segments that go away."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import pytest

from barnabas.storage.io import Io
from barnabas.storage.layout import ADDRESS_FILE, is_locked
from barnabas.storage.recovery import kept_end, recover_partition
from barnabas.streams.tests.support import NOW, SMALL, Logs, numbers, table
from barnabas.streams.wal import (
    DataLossError,
    LogDir,
    NewTopicError,
    NotReadyError,
    Planner,
    Split,
    WalError,
    offset_at,
    plan,
    read,
    schema_of,
)
from barnabas.streams.wal.ends import BrokerEnds
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.compression import CompressionType
from compat_tests.broker_process import Barnabas


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path / "data")


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("split_bytes", [1, 200, 1 << 20])
def test_every_record_once_whatever_the_splits(logs: Logs, codec: int, split_bytes: int) -> None:
    logs.write(numbers(0, 100), codec=codec)
    assert len(logs.vnode().segments) > 2
    found = table(logs.log_dir(), split_bytes=split_bytes)
    assert found["offset"].to_pylist() == list(range(100))
    assert found["value"].to_pylist() == numbers(0, 100)
    assert found["timestamp"].cast("int64").to_pylist() == [NOW + i for i in range(100)]
    assert set(found["topic"].to_pylist()) == {"t"}
    assert set(found["partition"].to_pylist()) == {0}
    assert found["headers"].to_pylist()[:2] == [None, [{"key": "h", "value": b"1"}]]


def test_any_range_of_offsets(logs: Logs) -> None:
    logs.write(numbers(0, 40))
    log_dir = logs.log_dir()
    for lo in range(0, 40, 3):
        for hi in range(lo, 41, 4):
            splits = plan(log_dir, {("t", 0): (lo, hi)}, split_bytes=150)
            found = [offset for split in splits for part in read(split, ["offset"]) for offset in part[0].to_pylist()]
            assert found == list(range(lo, hi))


def test_ranges_one_after_the_other_are_found_without_an_index(logs: Logs) -> None:
    planner = Planner(logs.log_dir())
    seen: list[int] = []
    for end in range(0, 90, 9):
        logs.write(numbers(end, end + 9))
        for split in planner.plan({("t", 0): (end, end + 9)}):
            seen += [offset for part in read(split, ["offset"]) for offset in part[0].to_pylist()]
    assert seen == list(range(90))


def test_gaps_are_no_loss(logs: Logs) -> None:
    vnode = logs.vnode()
    logs.write(numbers(0, 6))
    active = vnode.segments[-1]
    with open(active.path(), "r+b") as file:
        file.seek(active.size)
        file.write(build_batch([Record(None, b"far", NOW)], base_offset=50))
        file.write(build_batch([], base_offset=51, last_offset_delta=9))
    found = table(logs.log_dir())
    assert found["offset"].to_pylist() == [0, 1, 2, 3, 4, 5, 50]
    assert logs.log_dir().ranges([("t", 0)]) == {("t", 0): (0, 61)}
    assert plan(logs.log_dir(), {("t", 0): (10, 40)}) == []


@pytest.mark.parametrize("over", ["zeros", "the end"])
@pytest.mark.parametrize("damage", ["cut", "zeros", "crc", "half header"])
def test_a_torn_tail_is_not_read_and_the_end_is_that_of_recovery(logs: Logs, damage: str, over: str) -> None:
    logs.write(numbers(0, 20))
    active = logs.vnode().segments[-1]
    path = active.path()
    torn = build_batch([Record(b"k", b"torn", NOW)] * 3, base_offset=20)
    with open(path, "r+b") as file:
        file.seek(active.size)
        if over != "zeros":
            file.truncate()
        if damage == "cut":
            file.write(torn[:-2])
        elif damage == "zeros":
            file.write(bytes(500))
        elif damage == "crc":
            file.write(torn[:-1] + bytes([torn[-1] ^ 1]))
        else:
            file.write(torn[:30])
    before = Path(path).read_bytes()
    assert table(logs.log_dir())["offset"].to_pylist() == list(range(20))
    directory = logs.vnode().directory
    for point in (0, 7, 20):
        assert kept_end(Io(), directory, point) == 20
    assert Path(path).read_bytes() == before
    assert recover_partition(Io(), directory, 0, SMALL) == 20


def test_damage_in_the_middle_is_a_gap_once_recovery_has_mended_it(logs: Logs) -> None:
    logs.write(numbers(0, 60))
    first = Path(logs.vnode().segments[0].path())
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    directory = logs.vnode().directory
    assert kept_end(Io(), directory, 0) == 60
    assert recover_partition(Io(), directory, 0, SMALL) == 60
    found = table(logs.log_dir())["offset"].to_pylist()
    lost = sorted(set(range(60)) - set(found))
    assert 0 < len(lost) < 10
    assert found == [offset for offset in range(60) if offset not in lost]
    assert kept_end(Io(), directory, 0) == 60


@pytest.mark.parametrize("point", [0, 20, 60])
def test_the_end_is_that_of_recovery_wherever_a_bit_has_flipped(logs: Logs, point: int, tmp_path: Path) -> None:
    logs.write(numbers(0, 60))
    source = Path(logs.vnode().directory)
    for number, segment in enumerate(logs.vnode().segments):
        for at in range(0, segment.size, 41):
            copy = tmp_path / f"copy{number}" / str(at) / "t-0"
            shutil.copytree(source, copy)
            path = copy / os.path.basename(segment.path())
            data = bytearray(path.read_bytes())
            data[at] ^= 1 << (at % 8)
            path.write_bytes(data)
            end = kept_end(Io(), str(copy), point)
            assert recover_partition(Io(), str(copy), point, SMALL) == end
            assert end >= point


def test_a_segment_that_retention_took_is_loss_or_skipped(logs: Logs) -> None:
    logs.write(numbers(0, 60))
    log_dir = logs.log_dir()
    splits = plan(log_dir, {("t", 0): (0, 60)})
    second = logs.vnode().segments[1].base_offset
    reading = read(splits[0], ["offset"])
    first = next(reading)[0].to_pylist()  # its file is open: reading may finish
    logs.vnode().truncate_prefix(second)
    assert first + [offset for part in reading for offset in part[0].to_pylist()] == list(range(second))
    with pytest.raises(DataLossError, match=r"t-0: offsets 0 to \d+ are gone.*failOnDataLoss=false"):
        list(read(splits[0], ["offset"]))
    assert list(read(splits[0], ["offset"], fail_on_data_loss=False)) == []
    with pytest.raises(DataLossError, match=rf"offsets 0 to {second - 1} are gone") as caught:
        plan(log_dir, {("t", 0): (0, 60)})
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # it may come from another process
    assert len(plan(log_dir, {("t", 0): (0, 60)}, fail_on_data_loss=False)) == len(splits) - 1
    assert log_dir.ranges([("t", 0)]) == {("t", 0): (second, 60)}


def test_a_split_is_of_its_own_topic(logs: Logs) -> None:
    logs.write(numbers(0, 9))
    split = plan(logs.log_dir(), {("t", 0): (0, 9)})[0]
    reading = read(split, ["offset"])
    logs.make_again(numbers(0, 9))
    with pytest.raises(NewTopicError, match="t-0: offsets 0 to 8 are gone; the topic was deleted meanwhile") as caught:
        next(reading)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert list(read(split, ["offset"], fail_on_data_loss=False)) == []


def test_segments_that_a_crash_has_left_half_replaced_are_not_read(logs: Logs) -> None:
    logs.write(numbers(0, 30))
    segment = Path(logs.vnode().segments[1].path())
    segment.rename(f"{segment}.swap")
    log_dir = logs.log_dir()
    with pytest.raises(NotReadyError, match="t-0 are half replaced: if no broker runs, start it"):
        log_dir.ranges([("t", 0)])
    with pytest.raises(NotReadyError, match="half replaced"):
        plan(log_dir, {("t", 0): (0, 30)})
    recover_partition(Io(), str(segment.parent), 0, SMALL)
    assert table(log_dir)["offset"].to_pylist() == list(range(30))


def test_a_damaged_batch_is_named(logs: Logs) -> None:
    logs.write(numbers(0, 9))
    split = plan(logs.log_dir(), {("t", 0): (0, 9)})[0]
    path = Path(split.place)
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    with pytest.raises(WalError, match=r"damaged between bytes 0 and .*barnabas log dump"):
        list(read(split, ["offset"]))
    path.write_bytes(data[:0])
    with pytest.raises(WalError, match=r"it ends at byte 0"):
        list(read(split, ["offset"]))


def test_large_batches_are_handed_out_in_parts(logs: Logs, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    value = bytes(60_000)
    data = build_batch([Record(None, value, NOW)] * 150, base_offset=0)
    path.write_bytes(data)
    parts = list(read(Split("t", 0, str(path), 0, len(data), 0, 150), ["value"]))
    assert sum(part.num_rows for part in parts) == 150
    assert max(part.num_rows for part in parts) * 60_000 < 5 << 20


def test_topics_and_refusals(logs: Logs, tmp_path: Path) -> None:
    logs.write(numbers(0, 1), "b-side", 1)
    logs.write(numbers(0, 1), "b-side", 0)
    logs.write(numbers(0, 1), "a")
    logs.write(numbers(0, 1), "__internal")
    assert logs.log_dir().topics() == {"a": [0], "b-side": [0, 1]}
    assert logs.log_dir().partitions("__internal") == [("__internal", 0)]
    with pytest.raises(WalError, match=r"there is no topic c in .*a, b-side"):
        logs.log_dir().partitions("c")
    with pytest.raises(WalError, match=r"is not a data directory.*set the option path"):
        LogDir(tmp_path / "elsewhere")
    with pytest.raises(WalError, match=r"there is no column colour: a record has key, value, topic"):
        schema_of(["colour"])
    with pytest.raises(WalError, match=r"name at least one"):
        schema_of([])


def test_offsets_of_times(logs: Logs) -> None:
    logs.write(numbers(0, 60))
    log_dir = logs.log_dir()
    for wanted in (0, 1, 17, 59):
        assert offset_at(log_dir, ("t", 0), NOW + wanted, 0, 60) == wanted
    assert offset_at(log_dir, ("t", 0), 0, 0, 60) == 0
    assert offset_at(log_dir, ("t", 0), NOW + 3, 20, 60) == 20
    assert offset_at(log_dir, ("t", 0), NOW + 60, 0, 60) is None
    assert offset_at(log_dir, ("t", 0), NOW + 30, 0, 30) is None


def test_indexes_that_are_absent_or_wrong_only_cost_time(logs: Logs) -> None:
    logs.write(numbers(0, 60))
    for name in os.listdir(logs.vnode().directory):
        if name.endswith((".index", ".timeindex")):
            Path(logs.vnode().directory, name).write_bytes(b"\0\0\0\1\0\0\0\7" if name.endswith(".index") else b"x")
    log_dir = logs.log_dir()
    splits = plan(log_dir, {("t", 0): (5, 58)}, split_bytes=100)
    found = [offset for split in splits for part in read(split, ["offset"]) for offset in part[0].to_pylist()]
    assert found == list(range(5, 58))


def test_beside_a_broker_the_broker_tells_the_end(tmp_path: Path) -> None:
    with Barnabas(tmp_path) as broker:
        assert is_locked(str(broker.data_dir))
        assert (broker.data_dir / ADDRESS_FILE).read_text() == f"{broker.address}\n"
        produce(broker, numbers(0, 50))
        found = table(LogDir(broker.data_dir))
        assert found["value"].to_pylist() == numbers(0, 50)
        # The file's content after the broker's end does not count yet.
        with broker.segment("t").open("ab") as file:
            file.write(build_batch([Record(None, b"not yet", NOW)], base_offset=50))
        assert LogDir(broker.data_dir).ranges([("t", 0)]) == {("t", 0): (0, 50)}
        assert table(LogDir(broker.data_dir)).num_rows == 50
        with pytest.raises(WalError, match=r"cannot ask the broker at 127\.0\.0\.1:1 "):
            LogDir(broker.data_dir, bootstrap="127.0.0.1:1").ranges([("t", 0)])
        with pytest.raises(WalError, match=r"is of cluster .*, the data directory of another"):
            BrokerEnds("another").ask(broker.address, [("t", 0)])
        asked = LogDir(broker.data_dir, bootstrap=broker.address)
        assert asked.ranges([("t", 0)]) == {("t", 0): (0, 50)}
        broker.kill()
        assert not is_locked(str(broker.data_dir))
        assert table(LogDir(broker.data_dir)).num_rows == 51  # recovery would keep the complete batch after the end
        broker.start()
        assert (broker.data_dir / ADDRESS_FILE).read_text() == f"{broker.address}\n"
        assert asked.ranges([("t", 0)]) == {("t", 0): (0, 51)}  # over new connections
        connections = asked._broker._kept
        assert asked.ranges([("t", 0)]) == {("t", 0): (0, 51)}
        assert asked._broker._kept is connections
        assert broker.stop() == 0
        assert not (broker.data_dir / ADDRESS_FILE).exists()
        assert table(LogDir(broker.data_dir)).num_rows == 51


def produce(broker: Barnabas, values: list[bytes], topic: str = "t") -> None:
    """Acknowledged, through a real client."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=broker.address, acks="all")
    for value in values:
        producer.send(topic, value, partition=0)
    producer.flush()
    producer.close()
