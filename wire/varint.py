"""Zig-zag varints as records use them (protobuf's sint32/sint64)."""

from __future__ import annotations


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed 32- or 64-bit `value`."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def read_long_varint(data: bytes, pos: int, max_bits: int) -> tuple[int, int]:
    """The value at `pos` and the position after it: the general case, for callers that inline the one-byte case.

    Raises IndexError at the end of `data`, ValueError when the value does not fit `max_bits` bits.
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
