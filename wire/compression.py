"""The four codecs of record batches, protected against decompression bombs.

Formats: gzip members, LZ4 frames, Zstandard frames, and for snappy either the xerial stream of snappy-java (written by
the Java client) or one raw snappy block (written by librdkafka). Several members or frames may follow one another.

Invariant: `decompress` never allocates much more than `max_size` bytes, whatever the input claims.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from typing import Any

import cramjam

from barnabas.wire.aliases import BytesLike
from barnabas.wire.errors import ErrorCode, KafkaError


class CompressionType(IntEnum):
    """The codec numbers of the batch attributes (bits 0 to 2); the names are those of `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# The level if none is given. LZ4's own default would be the slow high-compression mode; 1 is its fast mode.
_DEFAULT_LEVEL = {CompressionType.GZIP: 6, CompressionType.LZ4: 1, CompressionType.ZSTD: 3}
_MODULES: dict[int, Any] = {
    CompressionType.GZIP: cramjam.gzip,
    CompressionType.LZ4: cramjam.lz4,
    CompressionType.ZSTD: cramjam.zstd,
}

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_INT32 = struct.Struct(">i")
# On PyPy cramjam writes to whole bytearrays only.
_WRITES_TO_VIEWS = sys.implementation.name == "cpython"

_FIRST_GUESS = 4096
# cramjam reports a full output buffer with the text of Rust's WriteZero error; there is no separate exception type.
# This relies on an internal detail, see docs/decisions/0020-private-doors.md.
_OVERFLOW = "failed to write whole buffer"


class TooLarge(KafkaError):
    """The data decompresses to more than the caller allows."""

    def __init__(self, max_size: int) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, f"the data decompresses to more than {max_size} bytes")


def compress(codec: int, data: BytesLike, level: int | None = None) -> bytes:
    """`data` as one compressed unit. `level` has the codec's own meaning; snappy ignores it."""
    if codec == CompressionType.NONE:
        return bytes(data)
    if codec == CompressionType.SNAPPY:
        return _compress_xerial(memoryview(data))
    module = _MODULES.get(codec)
    if module is None:
        raise _unknown(codec)
    level = _DEFAULT_LEVEL[CompressionType(codec)] if level is None else level
    if codec == CompressionType.LZ4:
        # Kafka's Java clients read frames of independent blocks only.
        lz4 = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        lz4.compress(bytes(data))
        return bytes(lz4.finish())
    return bytes(module.compress(data, level=level))


def decompress(codec: int, data: BytesLike, max_size: int) -> bytes:
    """The uncompressed bytes. Raises `KafkaError` if the data is damaged, truncated, or larger than `max_size`."""
    if codec == CompressionType.NONE:
        if len(data) > max_size:
            raise TooLarge(max_size)
        return bytes(data)
    if codec == CompressionType.SNAPPY:
        return _decompress_snappy(memoryview(data), max_size)
    module = _MODULES.get(codec)
    if module is None:
        raise _unknown(codec)
    # The output size is unknown beforehand: guess, and grow fourfold while the guess was too small.
    guess = min(max_size, max(_FIRST_GUESS, 4 * len(data)))
    while True:
        out = bytearray(guess)
        try:
            size = module.decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if not _may_be_full(codec, error):
                raise _damaged(codec, error) from None
            if guess >= max_size:
                raise TooLarge(max_size) if _OVERFLOW in str(error) else _damaged(codec, error) from None
        else:
            with memoryview(out) as view:
                return bytes(view[:size])
        guess = min(max_size, guess * 4)


def decompress_into(codec: int, data: BytesLike, buffer: bytearray) -> int:
    """Like `decompress`, but into a reused buffer, which is faster. Returns the number of bytes.

    Raises KafkaError: `TooLarge` if the buffer is or may be too small, else CORRUPT_MESSAGE.
    """
    if codec == CompressionType.SNAPPY:
        return _decompress_snappy_into(memoryview(data), buffer)
    module = _MODULES.get(codec)
    if module is None:
        raise _unknown(codec)
    try:
        return int(module.decompress_into(data, buffer))
    except cramjam.DecompressionError as error:
        if _may_be_full(codec, error):
            raise TooLarge(len(buffer)) from None
        raise _damaged(codec, error) from None


def _may_be_full(codec: int, error: cramjam.DecompressionError) -> bool:
    """Whether the output buffer was too small.

    If cramjam's wording changes, every failure may mean that: damaged data then costs further attempts up to the limit,
    but sound data is never called damaged.
    """
    return _OVERFLOW in str(error) or not _tells_full(codec)


@cache
def _tells_full(codec: int) -> bool:
    """Whether this cramjam reports a full output buffer in the known words. Tried once, at a codec's first failure."""
    packed = compress(codec, b"full")
    try:
        _MODULES[codec].decompress_into(packed, bytearray(1))
    except cramjam.DecompressionError as error:
        return _OVERFLOW in str(error)
    return False


def _compress_xerial(data: memoryview) -> bytes:
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, max(len(data), 1), _XERIAL_BLOCK):  # at least one, because some readers need it
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_size: int) -> bytes:
    try:
        return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block, _ in _snappy_blocks(data, max_size))
    except cramjam.DecompressionError as error:
        raise _damaged(CompressionType.SNAPPY, error) from None


def _decompress_snappy_into(data: memoryview, buffer: bytearray) -> int:
    with memoryview(buffer) as view:
        pos = 0
        for block, size in _snappy_blocks(data, len(buffer)):
            try:
                if _WRITES_TO_VIEWS:
                    with view[pos : pos + size] as part:
                        cramjam.snappy.decompress_raw_into(block, part)
                else:
                    view[pos : pos + size] = cramjam.snappy.decompress_raw(block)
            except cramjam.DecompressionError as error:
                raise _damaged(CompressionType.SNAPPY, error) from None
            pos += size
    return pos


def _snappy_blocks(data: memoryview, max_size: int) -> Iterator[tuple[memoryview, int]]:
    """The raw blocks of a stream, or the single one, with the sizes that they claim.

    A size is believed only within what is left of `max_size`, and within what the block's bytes could expand to.
    """
    if data[:8] != _XERIAL_MAGIC:
        yield data, _stated_size(data, max_size, max_size)
        return
    end = len(data)
    pos = len(_XERIAL_HEADER)
    if end < pos:
        raise _damaged(CompressionType.SNAPPY, "truncated stream header")
    left = max_size
    while pos < end:
        if end - pos < 4:
            raise _damaged(CompressionType.SNAPPY, "truncated block length")
        (size,) = _INT32.unpack_from(data, pos)
        pos += 4
        if not 0 <= size <= end - pos:
            raise _damaged(CompressionType.SNAPPY, f"block of {size} bytes with {end - pos} left")
        block = data[pos : pos + size]
        expands_to = _stated_size(block, left, max_size)
        yield block, expands_to
        pos += size
        left -= expands_to


def _stated_size(block: memoryview, left: int, max_size: int) -> int:
    try:
        size = int(cramjam.snappy.decompress_raw_len(block))
    except cramjam.DecompressionError as error:
        raise _damaged(CompressionType.SNAPPY, error) from None
    if size > left:
        raise TooLarge(max_size)
    if not len(block) or size > 64 * len(block):
        raise _damaged(CompressionType.SNAPPY, f"{len(block)} bytes cannot hold {size}")
    return size


def _unknown(codec: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"unknown compression codec {codec}")


def _damaged(codec: int, why: object) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"damaged {CompressionType(codec).name.lower()} data: {why}")
