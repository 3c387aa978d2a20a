"""MySQL's compressed transactions (`binlog_transaction_compression`): one event holds those of a whole transaction.

Its body begins with fields, each a number, a length and a value, up to a field 0. They give the size of what follows,
the compression, and the uncompressed size. The events inside have no checksums and no positions of their own.
Source: "Transaction_payload_event" of MySQL's documentation.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

from barnabas.connect.binlog.events import HEADER_SIZE, EventError, Header
from barnabas.connect.mysql.packets import ProtocolError, lenenc_int

_END, _SIZE, _COMPRESSION, _UNCOMPRESSED = range(4)
_ZSTD, _NONE = 0, 255
_MOST_WINDOW = 1 << 27  # what level 22 needs
_SIZE_AT, _END_AT = 9, 13  # in the header of an event
_CRC = 4
_NUMBER = struct.Struct("<I")


def events_in(body: bytes, header: Header, *, checksum: bool) -> Iterator[bytes]:
    """The events as the server would have sent them one by one. All of them end where the event that holds them ends.

    Only one event at a time is in memory. With `checksum`, each gets one, like the file's other events. Raises
    EventError.
    """
    fields, at = _fields(body)
    size = fields.get(_SIZE, len(body) - at)
    if at + size > len(body):
        raise EventError("a compressed transaction is cut off")
    payload = memoryview(body)[at : at + size]
    compression = fields.get(_COMPRESSION, _NONE)
    if compression == _ZSTD:
        yield from _events(_unzipped(payload), fields.get(_UNCOMPRESSED, 0), header, checksum)
    elif compression == _NONE:
        yield from _events(_Bytes(payload), size, header, checksum)
    else:
        raise EventError(f"a transaction is compressed in a way that is not known ({compression})")


def _fields(body: bytes) -> tuple[dict[int, int], int]:
    fields: dict[int, int] = {}
    at = 0
    try:
        while True:
            kind, at = lenenc_int(body, at)
            if kind == _END:
                return fields, at
            size, at = lenenc_int(body, at)
            fields[kind], end = lenenc_int(body, at)
            if end > at + size:
                raise ProtocolError("a field is longer than it says")
            at += size
    except (ProtocolError, IndexError) as error:
        raise EventError(f"a compressed transaction cannot be read: {error}") from None


class _Bytes:
    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def read(self, count: int) -> bytes:
        found = bytes(self._data[self._at : self._at + count])
        self._at += len(found)
        return found


def _unzipped(payload: memoryview) -> Any:
    try:
        import zstandard
    except ImportError:
        raise EventError(
            "the transactions are compressed: pip install 'barnabas[binlog]', or set binlog_transaction_compression=OFF"
        ) from None
    return zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW).stream_reader(payload)


def _events(source: Any, left: int, header: Header, checksum: bool) -> Iterator[bytes]:
    while left:
        head = bytearray(_taken(source, HEADER_SIZE))
        size = _NUMBER.unpack_from(head, _SIZE_AT)[0]
        if not HEADER_SIZE <= size <= left:
            raise EventError(f"an event of {size} bytes in a compressed transaction that has {left} left")
        left -= size
        _NUMBER.pack_into(head, _SIZE_AT, size + _CRC if checksum else size)
        _NUMBER.pack_into(head, _END_AT, header.end)
        event = bytes(head) + _taken(source, size - HEADER_SIZE)
        yield event + _NUMBER.pack(zlib.crc32(event)) if checksum else event


def _taken(source: Any, count: int) -> bytes:
    try:
        data: bytes = source.read(count)
    except Exception as error:  # zstandard's own exception
        raise EventError(f"a compressed transaction is damaged: {error}") from None
    if len(data) != count:
        raise EventError("a compressed transaction ends in the middle of an event")
    return data
