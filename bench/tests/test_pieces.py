"""Percentiles, warmth, prepared requests, rows by name, the page cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.wire.codegen import message_codec
from barnabas.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from bench import frames, machine, page_cache
from bench.limits import Skip, need_disk, need_files
from bench.percentiles import percentiles
from bench.rows import SETS, find
from bench.run import brokers, names, plan
from bench.servers import Meter
from bench.warm import settled


def test_percentiles_are_values_that_occurred() -> None:
    seconds = [number / 1000 for number in range(1000, 0, -1)]
    assert percentiles(seconds) == {"p50": 501.0, "p99": 991.0, "p99.9": 1000.0}
    assert percentiles([0.002]) == {"p50": 2.0, "p99": 2.0, "p99.9": 2.0}


@pytest.mark.parametrize(
    ("rates", "warm"),
    [
        ([], False),
        ([100, 100], False),
        ([100, 100, 100], True),
        ([100, 104, 105], True),
        ([100, 106, 100], False),
        ([100, 200, 300, 400], False),
        ([100, 200, 300, 310, 305], True),
        ([300, 100, 100], True),
    ],
)
def test_a_broker_is_warm_when_the_rate_no_longer_rises(rates: list[float], warm: bool) -> None:
    assert settled(rates) is warm


def test_what_others_take_is_a_part_of_what_has_passed_since(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([(100, 1000), (130, 1200)])
    monkeypatch.setattr(machine, "_times", lambda: next(ticks))
    stolen = machine.Stolen()
    assert stolen.percent() == 15
    monkeypatch.undo()
    assert 0 <= machine.Stolen().percent() <= 100


@pytest.mark.parametrize("topic", ["t", "a-topic", "x" * 200])
def test_error_codes_of_produce_are_found(topic: str) -> None:
    part = PartitionProduceResponse(3, 7, 123)
    answer = ProduceResponse(responses=[TopicProduceResponse(topic, partition_responses=[part])])
    behind_size = bytes(4) + b"\0" + message_codec(ProduceResponse, frames.PRODUCE).build(answer)
    (place,) = frames.produce_errors(topic)
    assert behind_size[place : place + 2] == b"\0\x07"


def test_error_codes_of_fetch_are_found() -> None:
    part = PartitionData(0, 3, aborted_transactions=None, records=b"")
    answer = FetchResponse(error_code=70, responses=[FetchableTopicResponse("t", partitions=[part])])
    behind_size = bytes(4) + b"\0" + message_codec(FetchResponse, frames.FETCH).build(answer)
    assert [behind_size[at + 1] for at in frames.fetch_errors("t")] == [70, 3]


def test_a_frame_begins_with_its_length() -> None:
    for frame in (frames.opening(), frames.produce("t", 0, frames.batch()), frames.fetch("t", 0, 0, 100)):
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        assert int.from_bytes(frame[8:12], "big") == frames.CORRELATION_ID


def test_every_row_of_every_set_is_known() -> None:
    for rows in SETS.values():
        for row in rows:
            assert find(row).seconds >= 0


@pytest.mark.parametrize("name", ["nothing", "producers", "producers-0", "nothing-5", "producers-x"])
def test_unknown_rows_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no row"):
        names([name])


def test_sets_and_names_can_be_mixed() -> None:
    assert names(["single", "main", "cold-1"]) == ["single", *(r for r in SETS["main"] if r != "single"), "cold-1"]


def test_light_rows_share_a_broker_and_heavy_ones_have_their_own() -> None:
    assert brokers(["start", "cold-1", "single", "groups-5"]) == [["start", "single"], ["cold-1"], ["groups-5"]]


def test_brokers_run_in_turn() -> None:
    order = [(policy, name) for policy, name, _ in plan(2, ["fsync"], ["barnabas", "kafka"], ["single"])]
    assert order == [("fsync", "barnabas"), ("fsync", "kafka")] * 2


def test_limits_are_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(Skip, match="GB of disk"):
        need_disk(tmp_path, 10**18)
    with pytest.raises(Skip, match="open files"):
        need_files(2**62)


def test_what_was_just_written_is_in_the_page_cache(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(100_000))
    fd = os.open(file, os.O_RDONLY)
    try:
        assert all(page_cache.resident(fd))
    finally:
        os.close(fd)


def test_cpu_time_only_grows() -> None:
    meter = Meter(os.getpid())
    before = meter.cpu()
    sum(range(100_000))
    assert meter.cpu() > before
    assert meter.rss() > 1
