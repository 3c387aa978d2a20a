"""Packets of the client/server protocol, without I/O: a length of three bytes, a sequence number, a payload.

A payload of 16 MiB - 1 or more is spread over several packets.
Source: "Protocol Basics" of MariaDB's and MySQL's documentation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

MAX_PART = 0xFFFFFF
_U16, _U32, _U64 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<Q")
OK, LOCAL_INFILE, ERROR, EOF, NULL = 0x00, 0xFB, 0xFF, 0xFE, 0xFB


class ProtocolError(Exception):
    """The server sent something that the protocol does not allow."""


class PacketSplitter:
    """Cuts a stream of bytes into payloads. A payload of more than `most` bytes raises ProtocolError."""

    def __init__(self, most: int) -> None:
        self.sequence = 0
        self._most = most
        self._buffer = bytearray()
        self._parts: list[bytes] = []

    @property
    def held(self) -> int:
        """Bytes that are waiting for the rest of their payload."""
        return len(self._buffer) + sum(map(len, self._parts))

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The payloads that `data` completes. Take all of them before the next call."""
        buffer = self._buffer
        buffer += data
        at, end = 0, len(buffer)
        while end - at >= 4:
            size = buffer[at] | buffer[at + 1] << 8 | buffer[at + 2] << 16
            if size > self._most or (self._parts and size + sum(map(len, self._parts)) > self._most):
                raise ProtocolError(f"a packet of more than {self._most:,} bytes")
            if end - at - 4 < size:
                break
            if buffer[at + 3] != self.sequence:
                raise ProtocolError(f"packet {buffer[at + 3]} came where {self.sequence} was expected")
            self.sequence = self.sequence + 1 & 0xFF
            with memoryview(buffer) as view:
                payload = bytes(view[at + 4 : at + 4 + size])
            at += 4 + size
            if size == MAX_PART:
                self._parts.append(payload)
            elif self._parts:
                parts, self._parts = self._parts, []
                yield b"".join([*parts, payload])
            else:
                yield payload
        del buffer[:at]


def packets(payload: bytes, sequence: int) -> bytes:
    """The packets of a payload, ready to send; the first has the number `sequence`."""
    out = bytearray()
    at = 0
    while True:
        part = payload[at : at + MAX_PART]
        out += len(part).to_bytes(3, "little") + bytes([sequence & 0xFF]) + part
        sequence += 1
        at += MAX_PART
        if len(part) < MAX_PART:
            return bytes(out)


def lenenc_int(data: bytes, at: int) -> tuple[int, int]:
    """A length-encoded integer, and the position after it. Raises ProtocolError."""
    try:
        first = data[at]
        if first < 0xFB:
            return first, at + 1
        if first == 0xFC:
            return _U16.unpack_from(data, at + 1)[0], at + 3
        if first == 0xFD:
            return int.from_bytes(data[at + 1 : at + 4], "little"), at + 4
        if first == 0xFE:
            return _U64.unpack_from(data, at + 1)[0], at + 9
    except (IndexError, struct.error):
        raise ProtocolError("a length is cut off") from None
    raise ProtocolError(f"{first:#x} begins no length")


def lenenc_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """A length-encoded string, and the position after it. Raises ProtocolError."""
    size, at = lenenc_int(data, at)
    if size > len(data) - at:
        raise ProtocolError("a string is cut off")
    return data[at : at + size], at + size


def nul_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Bytes up to a NUL, and the position after it; without a NUL, all remaining bytes."""
    end = data.find(b"\0", at)
    return (data[at:], len(data)) if end < 0 else (data[at:end], end + 1)


class ServerError(Exception):
    """The server refused. `code` is MariaDB's or MySQL's number, `state` the SQLSTATE."""

    def __init__(self, code: int, state: str, message: str) -> None:
        super().__init__(f"{message} (error {code}, SQLSTATE {state})" if state else f"{message} (error {code})")
        self.code, self.state, self.message = code, state, message


def server_error(payload: bytes) -> ServerError:
    """The error in an ERR packet."""
    code = _U16.unpack_from(payload, 1)[0] if len(payload) >= 3 else 0
    rest = payload[3:]
    state = ""
    if rest.startswith(b"#") and len(rest) >= 6:
        state, rest = rest[1:6].decode("ascii", "replace"), rest[6:]
    return ServerError(code, state, rest.decode("utf-8", "replace"))


def is_eof(payload: bytes) -> bool:
    """Whether a packet is the EOF packet rather than a row."""
    return len(payload) < 9 and payload[:1] == b"\xfe"
