"""Compaction of bytes: which records stay, what a batch is like without the others, and that both versions agree."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.wire import batch, compact
from barnabas.wire.batch import Record, build_batch, iter_batches, iter_records
from barnabas.wire.compact import DAMAGED, END, FULL, MORE, SPECIAL, KeyMapInPython, index_batches_in_python
from barnabas.wire.crc import crc32c
from barnabas.wire.tests.strategies import examples

SECRET = bytes(range(16))
NOW, HORIZON = 1_700_000_000_000, 1_700_000_086_400
TWINS: list[Any] = [KeyMapInPython]
if compact.NATIVE:
    from barnabas.wire import _compact

    TWINS.append(_compact.KeyMap)


def keyed(*pairs: tuple[bytes | None, bytes | None], base: int = 0, **more: Any) -> bytes:
    """A batch of records with these keys and values."""
    return build_batch([Record(key, value, NOW + n) for n, (key, value) in enumerate(pairs)], base_offset=base, **more)


def lasts(*offsets: int) -> bytes:
    return array("q", offsets).tobytes()


def offsets_of(data: bytes) -> list[int]:
    return [record.offset for _, view in iter_batches(data) for record in iter_records(view)]


@pytest.fixture(params=TWINS)
def make_map(request: pytest.FixtureRequest) -> Callable[..., Any]:
    kind: Any = request.param

    def make(most: int = 100) -> Any:
        return kind(2 * most, most, SECRET)

    return make


def test_the_last_record_of_each_key_stays_at_its_offset(make_map: Callable[..., Any]) -> None:
    data = keyed((b"a", b"1"), (b"b", b"1"), (b"a", b"2")) + keyed((b"b", b"2"), (b"c", b"1"), base=3)
    keys = make_map()
    assert keys.index(data, 0, 0, 1 << 61, 0, 1 << 60) == (len(data), 5, 4, MORE)
    assert keys.count == 3
    out, pos, _, status, dropped, read, kept, opaque = keys.filter(data, 0, 0, 1 << 61, 4, NOW, HORIZON, b"")
    assert (pos, status, dropped, read, kept, opaque) == (len(data), MORE, -1, 5, 3, 0)
    assert offsets_of(out) == [2, 3, 4]
    first, second = [header for header, view in iter_batches(out) if batch.check(view)]
    assert (first.base_offset, first.last_offset, first.records_count) == (0, 2, 1)
    assert out[first.size_in_bytes :] == data[-second.size_in_bytes :], "a batch that stays whole is copied"


def test_records_behind_the_map_stay(make_map: Callable[..., Any]) -> None:
    data = keyed((b"a", b"1"), (b"a", b"2")) + keyed((b"a", b"3"), (b"a", None), base=2)
    keys = make_map()
    end = len(keyed((b"a", b"1"), (b"a", b"2")))
    assert keys.index(data, 0, 0, 1 << 61, 0, 2) == (end, 2, 1, END)
    assert offsets_of(keys.filter(data, 0, 0, 1 << 61, 1, NOW, HORIZON, b"")[0]) == [1, 2, 3]
    assert not keys.filter(data, end, 0, 1 << 61, 1, NOW, HORIZON, b"")[0][22] & 0x40, (
        "no horizon before what it deletes is gone"
    )


def test_a_full_map_stops_inside_a_batch_and_the_next_goes_on_there(make_map: Callable[..., Any]) -> None:
    data = keyed(*[(b"%d" % n, b"v") for n in range(10)], (b"0", b"new"))
    keys = make_map(4)
    assert keys.index(data, 0, 0, 1 << 61, 0, 1 << 60) == (0, 0, 3, FULL)
    assert keys.count == 4
    keys = make_map(9)
    assert keys.index(data, 0, 0, 1 << 61, 4, 1 << 60) == (len(data), 11, 10, MORE)
    assert offsets_of(keys.filter(data, 0, 0, 1 << 61, 10, NOW, HORIZON, b"")[0]) == list(range(1, 11))


def test_a_tombstone_gets_a_horizon_and_goes_when_that_has_passed(make_map: Callable[..., Any]) -> None:
    data = keyed((b"a", b"1"), (b"b", b"1"), (b"a", None))
    keys = make_map()
    keys.index(data, 0, 0, 1 << 61, 0, 1 << 60)
    first = keys.filter(data, 0, 0, 1 << 61, 2, NOW, HORIZON, b"")[0]
    header = batch.check(first)
    assert header.has_delete_horizon
    assert header.base_timestamp == HORIZON
    assert header.max_timestamp == NOW + 2
    assert [(r.offset, r.key, r.value, r.timestamp) for r in iter_records(first)] == [
        (1, b"b", b"1", NOW + 1),
        (2, b"a", None, NOW + 2),
    ]
    empty = make_map()
    assert empty.filter(first, 0, 0, 1 << 61, 2, HORIZON - 1, 2 * HORIZON, b"")[0] == first, "the horizon is set once"
    last = empty.filter(first, 0, 0, 1 << 61, 2, HORIZON, 2 * HORIZON, b"")[0]
    assert offsets_of(last) == [1]
    assert batch.check(last).has_delete_horizon
    assert [record.timestamp for record in iter_records(last)] == [NOW + 1]


def test_a_batch_under_log_append_time_keeps_its_time(make_map: Callable[..., Any]) -> None:
    data = keyed((b"a", b"1"), (b"a", None), timestamp_type=batch.LOG_APPEND_TIME, append_time=NOW + 77)
    keys = make_map()
    keys.index(data, 0, 0, 1 << 61, 0, 1 << 60)
    out = keys.filter(data, 0, 0, 1 << 61, 1, NOW, HORIZON, b"")[0]
    assert batch.check(out).max_timestamp == NOW + 77
    assert [record.timestamp for record in iter_records(out)] == [NOW + 77]


def test_the_last_batch_of_a_producer_stays_without_records(make_map: Callable[..., Any]) -> None:
    data = b"".join(
        keyed((b"a", b"%d" % n), (b"b", b"x"), base=2 * n, producer_id=7, producer_epoch=3, base_sequence=2 * n)
        for n in range(3)
    )
    data += keyed((b"a", b"new"), (b"b", b"new"), base=6)
    keys = make_map()
    keys.index(data, 0, 0, 1 << 61, 0, 1 << 60)
    out = keys.filter(data, 0, 0, 1 << 61, 7, NOW, HORIZON, lasts(5))[0]
    (kept, last) = [header for header, view in iter_batches(out) if batch.check(view)]
    assert (kept.base_offset, kept.last_offset, kept.records_count) == (4, 5, 0)
    assert (kept.producer_id, kept.producer_epoch, kept.base_sequence, kept.last_sequence) == (7, 3, 4, 5)
    assert last.base_offset == 6
    assert keys.filter(data, 0, 0, 1 << 61, 7, NOW, HORIZON, b"")[0] == out[kept.size_in_bytes :]


def test_nothing_of_the_last_batch_stays(make_map: Callable[..., Any]) -> None:
    data = keyed((b"a", b"1")) + keyed((None, b"1"), base=1)
    keys = make_map()
    keys.index(data, 0, 0, 1 << 61, 0, 1 << 60)
    out, _, _, _, dropped, *_ = keys.filter(data, 0, 0, 1 << 61, 1, NOW, HORIZON, b"")
    assert offsets_of(out) == [0], "a record without a key goes"
    assert dropped == len(out)


def test_special_damaged_and_unreadable_batches(make_map: Callable[..., Any]) -> None:
    plain = keyed((b"a", b"1"))
    packed = keyed((b"a", b"1"), base=1, compression=1)
    in_transaction = keyed(
        (b"a", b"1"), base=1, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    for special in (packed, in_transaction, keyed((b"a", b"1"), base=1, is_control=True)):
        assert make_map().index(plain + special, 0, 0, 1 << 61, 0, 9) == (len(plain), 1, 0, SPECIAL)
        assert make_map().filter(plain + special, 0, 0, 1 << 61, 9, NOW, HORIZON, b"")[1:4] == (len(plain), 1, SPECIAL)
        assert make_map().filter(plain + special, 0, 0, 1 << 61, 0, NOW, HORIZON, b"")[0] == plain + special, (
            "behind the map"
        )
    damaged = bytearray(plain)
    damaged[-1] ^= 1
    assert make_map().index(bytes(damaged), 0, 0, 1 << 61, 0, 9) == (0, 0, -1, DAMAGED)
    assert make_map().filter(bytes(damaged), 0, 0, 1 << 61, 9, NOW, HORIZON, b"")[1:4] == (0, 0, DAMAGED)
    assert make_map().index(plain[:-1], 0, 0, 1 << 61, 0, 9) == (0, 0, -1, MORE)
    unreadable = bytearray(plain)
    unreadable[61] += 2  # the length of the record
    batch.seal(unreadable)
    keys = make_map()
    assert keys.index(bytes(unreadable), 0, 0, 1 << 61, 0, 9) == (len(plain), 1, 0, MORE)
    assert keys.count == 0
    assert keys.filter(bytes(unreadable), 0, 0, 1 << 61, 9, NOW, HORIZON, b"")[0] == bytes(unreadable)


def test_bounds_are_refused(make_map: Callable[..., Any]) -> None:
    keys = make_map()
    kind: Any = type(keys)
    acts: list[Callable[[], Any]] = [
        lambda: keys.index(b"", 1, 0, 0, 0, 0),
        lambda: keys.filter(b"", -1, 0, 0, 0, 0, 0, b""),
        lambda: keys.filter(b"", 0, 0, 0, 0, 0, 0, b"1234567"),
        lambda: keys.index(b"", 0, -1, 0, 0, 0),
        lambda: keys.filter(b"", 0, 0, 2**63 - 1, 0, 0, 0, b""),
        lambda: keys.index_records(b"", -1, 0, 0, 0),
        lambda: keys.index_records(b"", 1, 5, 4, 0),
        lambda: keys.filter_records(b"x", 1, 0, 0, 0, 0, 0, 0, 0, 0),
        lambda: kind(4, 4, SECRET),
        lambda: kind(4, 2, b"short"),
    ]
    for act in acts:
        with pytest.raises(ValueError):
            act()


@pytest.mark.skipif(not compact.NATIVE, reason="no module in C")
def test_the_hash_is_siphash_and_the_checksum_is_crc32c() -> None:
    assert _compact.siphash(SECRET, b"").hex() == "a3817f04ba25a8e66df67214c7550293"
    assert _compact.siphash(SECRET, bytes(range(15))).hex() == "5493e99933b0a8117e08ec0f97cfc3d9"
    for size in (0, 1, 7, 8, 9, 63, 1000):
        data = (bytes(range(250)) * 4)[:size]
        assert _compact.crc_by_tables(data) == crc32c(data)


keys_of_test = st.sampled_from([b"", b"a", b"b", b"c" * 20]) | st.none()
values = st.none() | st.binary(max_size=200)
batches = st.lists(
    st.tuples(
        st.lists(st.tuples(keys_of_test, values, st.integers(-1, 2**62)), min_size=1, max_size=5),
        st.integers(0, 3),  # a gap before it
        st.sampled_from([{}, {}, {"producer_id": 5, "producer_epoch": 1, "base_sequence": 0}]),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)
mutations = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255), st.booleans()), max_size=2)


def logged(given_batches: list[Any], changes: list[tuple[int, int, bool]]) -> bytes:
    """Consecutive batches with some bytes changed; some of these get a valid CRC again."""
    out: list[bytearray] = []
    base = 0
    for pairs, gap, producer, stamped in given_batches:
        base += gap
        made = [Record(key, value, timestamp) for key, value, timestamp in pairs]
        kind: dict[str, Any] = {"timestamp_type": batch.LOG_APPEND_TIME, "append_time": NOW} if stamped else {}
        out.append(bytearray(build_batch(made, base_offset=base, **producer, **kind)))
        base += len(pairs)
    for at, value, sealed in changes:
        one = out[at % len(out)]
        one[at // len(out) % len(one)] = value
        if sealed:
            batch.seal(one)
    return b"".join(out)


def ran(make: Any, data: bytes, high: int, start: int, most: int, now: int, kept: list[int]) -> Any:
    """Everything that a map returns, twice: the first run's output is compacted again."""
    found: list[Any] = []
    for _ in range(2):
        keys = make(2 * most, most, SECRET)
        indexed = keys.index(data, 0, 0, high, start, 30)
        filtered = keys.filter(data, 0, 0, high, indexed[2], now, now + 100, lasts(*sorted(kept)))
        found += [indexed, filtered, keys.count]
        data, now = filtered[0], now + 1000
    return found


@pytest.mark.skipif(not compact.NATIVE, reason="no module in C")
@examples(100, 400)
@given(
    batches,
    mutations,
    st.sampled_from([20, 2**63 - 2]),
    st.integers(0, 5),
    st.integers(1, 6),
    st.integers(0, 2**62),
    st.lists(st.integers(0, 40)),
)
def test_both_twins_say_the_same(
    given_batches: list[Any], changes: list[Any], high: int, start: int, most: int, now: int, kept: list[int]
) -> None:
    data = logged(given_batches, changes)
    assert ran(_compact.KeyMap, data, high, start, most, now, kept) == ran(
        KeyMapInPython, data, high, start, most, now, kept
    )


@pytest.mark.skipif(not compact.NATIVE, reason="no module in C")
@examples(100, 200)
@given(
    st.binary(max_size=60),
    *[st.integers(-1, 9)] * 3,
    st.integers(-5, 2**62),
    st.integers(0, 2**62),
    st.sampled_from([0, 8, 0x40]),
)
def test_both_twins_say_the_same_of_any_records(
    data: bytes, count: int, base: int, span: int, time: int, now: int, attributes: int
) -> None:
    def said(make: Any) -> Any:
        keys = make(8, 3, SECRET)
        try:
            return keys.index_records(data, count, base, base + span, 0), keys.filter_records(
                data, count, base, base + span, time, time, attributes, base + span, now, now + 5
            )
        except ValueError:
            return "refused"

    assert said(_compact.KeyMap) == said(KeyMapInPython)


@pytest.mark.skipif(not compact.NATIVE, reason="no module in C")
@settings(max_examples=100, deadline=None)
@given(batches, st.integers(0, 300), st.integers(0, 300), st.integers(-1, 2**62), st.booleans())
def test_both_twins_index_the_same(
    given_batches: list[Any], interval: int, since: int, newest: int, is_cut: bool
) -> None:
    data = logged(given_batches, [])[: -1 if is_cut else None]

    def said(act: Any) -> Any:
        try:
            return act(data, 0, 1000, interval, since, newest, 0, newest - 1)
        except ValueError:
            return "refused"

    assert said(_compact.index_batches) == said(index_batches_in_python)
