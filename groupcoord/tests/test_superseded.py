"""A coordinator reads the same state from its log with and without the superseded records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.groupcoord.log.image import NO_PRODUCER, PartitionImage
from barnabas.groupcoord.log.records import offset_record
from barnabas.groupcoord.log.superseded import without_superseded
from barnabas.wire import batch, compact
from barnabas.wire.batch import Marker, Record
from barnabas.wire.compression import CompressionType
from barnabas.wire.records.offset_commit import OffsetCommitValue

pytestmark = pytest.mark.skipif(not compact.NATIVE, reason="the module in C was not built: nothing is left out")


def image_of(parts: list[bytes]) -> tuple[object, ...]:
    image = PartitionImage()
    for part in parts:
        for header, view in batch.iter_batches(part):
            batch.check(view)
            if header.is_control:
                marker = batch.marker_of(view)
                assert marker is not None
                image.end_transaction(marker.producer_id, committed=marker.committed)
                continue
            for record in batch.iter_records(view):
                assert record.key is not None
                image.apply(record.key, record.value, header.producer_id if header.is_transactional else NO_PRODUCER)
    return image.offsets, list(image.open_transactions.places())


def log_of(steps: list[tuple[str, int, int]]) -> bytes:
    """Commits of a few positions, tombstones, compressed batches, transactions, and markers."""
    data, offset = b"", 0
    for number, (kind, key, producer) in enumerate(steps):
        if kind == "marker":
            made = batch.build_marker(Marker(producer, 0, number % 2 == 0, 0), 1)
        else:
            value = None if kind == "tombstone" else OffsetCommitValue(offset=number)
            records = [Record(*offset_record("g", "t", at % 4, value), 1) for at in range(key, key + 1 + number % 2)]
            made = batch.build_batch(
                records,
                compression=CompressionType.LZ4 if kind == "compressed" else CompressionType.NONE,
                producer_id=producer if kind == "transaction" else -1,
                producer_epoch=0 if kind == "transaction" else -1,
                is_transactional=kind == "transaction",
            )
        header = batch.parse_header(made)
        data += batch.PREFIX.pack(offset, header.batch_length, 0) + made[batch.PREFIX_SIZE :]
        offset += header.last_offset_delta + 1
    return data


KINDS = ["commit", "commit", "commit", "tombstone", "compressed", "transaction", "marker"]


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.integers(1, 2)), max_size=40))
def test_the_image_is_the_same(steps: list[tuple[str, int, int]]) -> None:
    data = log_of(steps)
    found = list(without_superseded(data))
    assert image_of([bytes(part) for part, _ in found]) == image_of([data])
    last = [header.last_offset + 1 for header, _ in batch.iter_batches(data)]
    seen = [upto for _, upto in found]
    for part, _ in found:
        seen += [header.last_offset + 1 for header, _ in batch.iter_batches(part)]
    assert max(seen, default=0) == (last[-1] if last else 0)


def test_most_of_a_busy_log_is_not_decoded() -> None:
    data = log_of([("commit", number % 4, 1) for number in range(4000)])
    parts = [part for part, _ in without_superseded(data)]
    assert sum(map(len, parts)) < len(data) / 100
    assert image_of([bytes(part) for part in parts]) == image_of([data])


@pytest.mark.parametrize("at", [10, 20, 62])
def test_what_is_damaged_comes_as_it_is_with_all_behind_it(at: int) -> None:
    first, second = log_of([("commit", 0, 1)] * 3), log_of([("commit", 1, 1)] * 3)
    damaged = bytearray(first + second)
    damaged[len(first) + at] ^= 1
    parts = [bytes(part) for part, _ in without_superseded(bytes(damaged))]
    assert parts[-1] == bytes(damaged[len(first) :])
