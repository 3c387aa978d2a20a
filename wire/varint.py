"""Varints: zig-zag ones for records (protobuf's sint32/sint64), and unsigned ones for messages."""

from __future__ import annotations

from barnabas.wire.schema import ProtocolError


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed 32- or 64-bit `value`."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def read_long_varint(data: bytes, pos: int, max_bits: int) -> tuple[int, int]:
    """The value at `pos` and the position after it: the general case, for callers that inline the one-byte case.
    Raises IndexError at the end of `data`, and ValueError if the value does not fit `max_bits` bits.
    """
    value = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 70:
            raise ValueError("varint too long")
    if value >> max_bits:
        raise ValueError(f"varint exceeds {max_bits} bits")
    return (value >> 1) ^ -(value & 1), pos


def more(buf: bytes | bytearray | memoryview, pos: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose first byte (>= 0x80) is at pos-1: (value, next position)."""
    value, shift = first & 0x7F, 7
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise ProtocolError("varint longer than five bytes")
    if value > 0xFFFFFFFF:
        raise ProtocolError("varint beyond 32 bits")
    return value, pos


def uvarint(value: int) -> bytes:
    """Unsigned LEB128."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
