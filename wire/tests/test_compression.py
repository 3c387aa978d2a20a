"""Codecs: compared with the libraries that other clients use, and with bombs and damage."""

from __future__ import annotations

import contextlib
import gzip
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka.codec
import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire import compression
from barnabas.wire.compression import CompressionType, TooLarge, compress, decompress, decompress_into
from barnabas.wire.errors import ErrorCode, KafkaError

LIMIT = 1 << 20
REAL_CODECS = [codec for codec in CompressionType if codec is not CompressionType.NONE]
payloads = st.binary(max_size=2000) | st.builds(lambda b, n: b * n, st.binary(max_size=50), st.integers(0, 5000))


def unzstd(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


THEIR_DECODE = {
    CompressionType.GZIP: gzip.decompress,
    CompressionType.SNAPPY: aiokafka.codec.snappy_decode,
    CompressionType.LZ4: lz4.frame.decompress,
    CompressionType.ZSTD: unzstd,
}
THEIR_ENCODE = {
    CompressionType.GZIP: gzip.compress,
    CompressionType.SNAPPY: aiokafka.codec.snappy_encode,
    CompressionType.LZ4: lz4.frame.compress,
    CompressionType.ZSTD: zstandard.compress,
}


@given(payloads, st.sampled_from(list(CompressionType)))
def test_round_trip(data: bytes, codec: CompressionType) -> None:
    assert decompress(codec, compress(codec, data), LIMIT) == data
    assert decompress(codec, memoryview(compress(codec, memoryview(data))), len(data)) == data


@given(payloads, st.sampled_from(REAL_CODECS))
def test_a_buffer_that_is_used_again_takes_the_same(data: bytes, codec: CompressionType) -> None:
    buffer = bytearray(b"x" * (len(data) + 9))
    packed = compress(codec, data)
    assert bytes(buffer[: decompress_into(codec, memoryview(packed), buffer)]) == data
    for size in {0, len(data) - 1} if data else ():
        with pytest.raises(TooLarge):
            decompress_into(codec, packed, bytearray(size))


@given(st.binary(max_size=200), st.sampled_from(REAL_CODECS))
def test_garbage_is_refused_by_both_ways(data: bytes, codec: CompressionType) -> None:
    def outcome(size: Callable[[], int]) -> object:
        try:
            return size()
        except KafkaError as error:
            return error.code

    whole = outcome(lambda: len(decompress(codec, data, 1000)))
    assert whole == outcome(lambda: decompress_into(codec, data, bytearray(1000)))


@given(payloads, st.sampled_from(REAL_CODECS))
def test_other_libraries_read_and_write_the_same(data: bytes, codec: CompressionType) -> None:
    assert THEIR_DECODE[codec](compress(codec, data)) == data
    assert decompress(codec, THEIR_ENCODE[codec](data), LIMIT) == data


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD])
def test_several_frames_are_one_stream(codec: CompressionType) -> None:
    assert decompress(codec, compress(codec, b"one ") + compress(codec, b"two"), LIMIT) == b"one two"


def test_zstd_without_a_content_size_and_raw_snappy() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    data = stream.compress(b"x" * 100_000) + stream.flush()
    assert decompress(CompressionType.ZSTD, data, LIMIT) == b"x" * 100_000
    raw = aiokafka.codec.snappy_encode(b"x" * 1000, xerial_compatible=False)
    assert decompress(CompressionType.SNAPPY, raw, LIMIT) == b"x" * 1000


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_a_bomb_costs_the_bound_and_no_more(codec: CompressionType) -> None:
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(KafkaError, match="more than 100000 bytes") as caught:
        decompress(codec, bomb, 100_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert peak < 1_000_000


def test_a_snappy_block_that_only_claims_a_size_is_refused() -> None:
    with pytest.raises(KafkaError, match="cannot hold"):
        decompress(CompressionType.SNAPPY, b"\xff\xff\xff\x07ab", 1 << 31)


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_truncation_is_an_error(codec: CompressionType) -> None:
    whole = compress(codec, bytes(range(256)) * 20)
    for size in range(len(whole)):
        if codec is CompressionType.SNAPPY and size == 16:
            continue  # the stream header alone is an empty stream
        with pytest.raises(KafkaError) as caught:
            decompress(codec, whole[:size], LIMIT)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@given(st.sampled_from(list(CompressionType)), st.binary(max_size=100), st.booleans())
def test_hostile_bytes_raise_nothing_but_kafka_errors(codec: CompressionType, data: bytes, with_magic: bool) -> None:
    if with_magic:
        data = compress(codec, b"")[: 16 if codec is CompressionType.SNAPPY else 6] + data
    with contextlib.suppress(KafkaError):
        assert len(decompress(codec, data, LIMIT)) <= LIMIT


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(KafkaError, match="unknown compression codec"):
        compress(5, b"")
    with pytest.raises(KafkaError, match="unknown compression codec"):
        decompress(7, b"", 10)


def test_lz4_blocks_are_independent() -> None:
    """Kafka's Java clients refuse frames whose blocks refer to each other (FLG bit 5 clear)."""
    frame = compress(CompressionType.LZ4, bytes(range(256)) * 2000)
    assert frame[4] & 0x20
    assert decompress(CompressionType.LZ4, frame, 1 << 20) == bytes(range(256)) * 2000


# --- the text of cramjam's error, a private door ----------------------------------------------------------------------

FRAMED = [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD]


class Counted:
    """A codec module that counts its attempts."""

    def __init__(self, module: Any) -> None:
        self.attempts, self._module = 0, module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def decompress_into(self, data: Any, out: bytearray) -> int:
        self.attempts += 1
        return int(self._module.decompress_into(data, out))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, Counted]]:
    found: dict[int, Counted] = {codec: Counted(compression._MODULES[codec]) for codec in FRAMED}
    monkeypatch.setattr(compression, "_MODULES", found)
    yield found
    compression._tells_full.cache_clear()


@pytest.fixture
def other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cramjam that reports a full buffer in unknown words."""
    compression._tells_full.cache_clear()
    monkeypatch.setattr(compression, "_OVERFLOW", "the buffer has no room")


@pytest.mark.door
@pytest.mark.parametrize("codec", FRAMED)
def test_damaged_data_is_told_from_a_full_buffer_at_once(codec: CompressionType, counted: dict[int, Counted]) -> None:
    """Fails if cramjam's words change: damaged data then costs more attempts, and everything else stays the same."""
    assert compression._tells_full(codec)
    counted[codec].attempts = 0
    with pytest.raises(KafkaError) as caught:
        decompress(codec, compress(codec, b"x" * 100)[:-6] + b"damage", LIMIT)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert counted[codec].attempts == 1


@pytest.mark.door
@pytest.mark.usefixtures("other_words")
@pytest.mark.parametrize("codec", FRAMED)
def test_with_other_words_what_is_whole_is_read_and_what_is_damaged_is_not(
    codec: CompressionType, counted: dict[int, Counted]
) -> None:
    data = b"a" * LIMIT
    packed = compress(codec, data)
    assert decompress(codec, packed, LIMIT) == data  # the first guess was too small
    with pytest.raises(TooLarge):  # the caller then uses `decompress`
        decompress_into(codec, packed, bytearray(LIMIT - 1))
    for bad, limit in ((packed, LIMIT - 1), (packed[:-6] + b"damage", LIMIT), (b"damage", LIMIT)):
        counted[codec].attempts = 0
        with pytest.raises(KafkaError) as caught:
            decompress(codec, bad, limit)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
        assert counted[codec].attempts <= 6, "fourfold each time, from 4 KiB to 1 MiB, and a trial"
