"""The two decoders: equal to each other and to `wire.batch`, on good batches and on damaged ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.streams.decode import SCHEMA, Aborted, AbortedSet, Records, arrow, open_batch
from barnabas.streams.decode.arrow import Backend
from barnabas.streams.decode.batches import _MAX_OFFSET
from barnabas.streams.decode.python import decode_python
from barnabas.wire import batch
from barnabas.wire.batch import Record
from barnabas.wire.compression import CompressionType
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.tests.strategies import examples

try:
    from barnabas.streams.decode.native import decode_native
except ImportError:
    BACKENDS: list[Backend] = [decode_python]
else:
    BACKENDS = [decode_python, decode_native]

each = pytest.mark.parametrize("backend", BACKENDS)
codecs = st.sampled_from(list(CompressionType))
blobs = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple)
record_lists = st.lists(st.builds(Record, blobs, blobs, st.integers(0, 2**47), headers), min_size=1, max_size=8)
ALL = SCHEMA.names


def rows(backend: Backend, records: Sequence[Records | None]) -> list[Record]:
    """A backend's result for batches, as records again."""
    count, found = backend([one for one in records if one is not None], ALL)
    assert {name: found[name].type for name in ALL} == {field.name: field.type for field in SCHEMA}
    for array in found.values():
        assert len(array) == count
        array.validate(full=True)
    times = found["timestamp"].cast("int64")
    return [
        Record(
            found["key"][i].as_py(),
            found["value"][i].as_py(),
            times[i].as_py(),
            tuple((pair["key"], pair["value"]) for pair in found["headers"][i].as_py() or ()),
            found["offset"][i].as_py(),
        )
        for i in range(count)
    ]


def opened(data: bytes, lo: int = 0, hi: int = _MAX_OFFSET, aborted: Sequence[Aborted] = ()) -> Records | None:
    found, end = open_batch(data, 0, lo=lo, hi=hi, aborted=AbortedSet(aborted))
    assert end == len(data)
    return found


@each
@given(record_lists, record_lists, codecs, st.integers(0, 2**40), st.integers(0, 20), st.integers(0, 20))
@examples(15, 60)
def test_round_trip(
    backend: Backend, first: list[Record], second: list[Record], codec: int, base: int, lo: int, hi: int
) -> None:
    one = batch.build_batch(first, base_offset=base, compression=codec)
    two = batch.build_batch(second, base_offset=base + len(first))
    wanted = [opened(data, base + lo, base + hi) for data in (one, two)]
    expected = [r for data in (one, two) for r in batch.iter_records(data) if base + lo <= r.offset < base + hi]
    assert rows(backend, wanted) == expected


@given(record_lists, st.data())
@examples(100, 300)
def test_mutated_records_are_accepted_or_refused_alike(records: list[Record], data: st.DataObject) -> None:
    if len(BACKENDS) < 2:
        pytest.skip("the decoder in C is not built")
    whole = bytearray(batch.build_batch(records))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(batch.HEADER_SIZE, len(whole) - 1) | st.integers(23, 42) | st.integers(57, 60))
        whole[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 2))
    header = batch.parse_header(whole)
    if header.last_offset_delta < 0:
        return
    given_records = [Records(header, bytes(whole[batch.HEADER_SIZE : len(whole) - cut]), 0, _MAX_OFFSET)]
    outcomes: list[object] = []
    for backend in BACKENDS:
        try:
            outcomes.append(rows(backend, given_records))
        except KafkaError as error:
            outcomes.append(error.code)
    assert outcomes[0] == outcomes[1]


@each
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x0c\0\0\0\1\1",
        b"\x0c\0\0\0\1\1\1",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x8c\x80\x80\x80\x80\x80\x80\x80\x80\x00\0\0\0\1\1\0",
        b"\x0c\0\0\0\x7e\1\0",
        b"\x16\0\0\0\1\1\2\2\xff\1",
    ],
)
def test_damaged_records_are_invalid(backend: Backend, body: bytes) -> None:
    good = batch.parse_header(batch.build_batch([Record(None, None, 0)]))
    if body.startswith(b"\x8c"):  # a length in more bytes than needed is as valid as a short one
        assert len(rows(backend, [Records(good, body, 0, 9)])) == 1
        return
    with pytest.raises(KafkaError) as caught:
        backend([Records(good, body, 0, 9)], ALL)
    assert caught.value.code == ErrorCode.INVALID_RECORD


@each
def test_timestamps_of_the_append_time_and_out_of_range(backend: Backend) -> None:
    appended = batch.build_batch([Record(b"k", b"v", 5)], timestamp_type=batch.LOG_APPEND_TIME, append_time=77)
    records = opened(appended)
    assert records is not None
    assert rows(backend, [records])[0].timestamp == 77
    assert backend([records], ["timestampType"])[1]["timestampType"].to_pylist() == [1]
    late = bytearray(batch.build_batch([Record(b"k", b"v", 0), Record(b"k", b"v", 1)]))
    late[27:35] = (2**63 - 1).to_bytes(8, "big")  # base timestamp
    batch.seal(late)
    records = opened(bytes(late))
    assert records is not None
    with pytest.raises(KafkaError):
        backend([records], ["offset"])


@each
def test_only_the_columns_asked_for(backend: Backend) -> None:
    records = opened(batch.build_batch([Record(b"k", None, 3)]))
    assert records is not None
    for columns in (["offset"], ["value", "key"], [], ["headers"]):
        count, found = backend([records], columns)
        assert count == 1
        assert set(found) == set(columns)


def test_control_and_aborted_batches_are_skipped() -> None:
    control = batch.build_batch([Record(batch.control_key(batch.ControlType.COMMIT), b"", 0)], is_control=True)
    assert opened(control) is None
    written = batch.build_batch(
        [Record(b"k", b"v", 0)], base_offset=10, is_transactional=True, producer_id=4, producer_epoch=0, base_sequence=0
    )
    assert opened(written) is not None
    assert opened(written, aborted=[Aborted(4, 10, 12)]) is None
    assert opened(written, aborted=[Aborted(5, 10, 12), Aborted(4, 11, 12), Aborted(4, 3, 9)]) is not None
    assert opened(written, aborted=[Aborted(4, 11, 12), Aborted(4, 3, 9), Aborted(4, 10, 10)]) is None


def test_empty_batches_and_batches_outside_the_range_are_skipped() -> None:
    assert opened(batch.build_batch([], base_offset=4, last_offset_delta=3)) is None
    assert opened(batch.build_batch([Record(b"", b"", 0)], base_offset=4), lo=5) is None
    assert opened(batch.build_batch([Record(b"", b"", 0)], base_offset=4), hi=4) is None


def test_damage_that_puts_a_batch_outside_the_range_is_found() -> None:
    whole = bytearray(batch.build_batch([Record(b"key", b"value", 9)] * 3, base_offset=4))
    whole[23] ^= 0x80  # its last offset is before its first
    with pytest.raises(KafkaError) as caught:
        open_batch(bytes(whole), 0, lo=4)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@given(st.integers(0, 7), st.data())
@settings(max_examples=60, deadline=None)
def test_damage_anywhere_under_the_crc_is_found(bit: int, data: st.DataObject) -> None:
    whole = bytearray(batch.build_batch([Record(b"key", b"value", 9, (("h", b"x"),))] * 3))
    at = data.draw(st.integers(17, len(whole) - 1))
    whole[at] ^= 1 << bit
    with pytest.raises(KafkaError):
        open_batch(bytes(whole), 0)


def test_a_batch_that_is_cut_off_is_corrupt() -> None:
    whole = batch.build_batch([Record(b"key", b"value", 9)])
    for size in (0, 11, 60, len(whole) - 1):
        with pytest.raises(KafkaError) as caught:
            open_batch(whole[:size], 0)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_the_fall_back_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    import sys

    arrow.backend.cache_clear()
    monkeypatch.setitem(sys.modules, "barnabas.streams.decode.native", None)
    with caplog.at_level(logging.WARNING, "barnabas.streams"):
        assert arrow.backend() is decode_python
        assert arrow.backend() is decode_python
    arrow.backend.cache_clear()
    assert sum("not built" in message for message in caplog.messages) == len(caplog.messages) == 1


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(ValueError, match="no column colour"):
        arrow.decode([], ["colour"])
