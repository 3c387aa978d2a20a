"""Events of a binary log, from bytes: headers, checksums, and the bodies that are not rows.

An event is a header of 19 bytes, a body and, if the file has them, a checksum of 4 bytes. Each file says so in its
FORMAT_DESCRIPTION. Events that the server makes up for a replica (the first ROTATE, heartbeats) are checked against
their own CRC.
Source: "Binlog Event Types" of MariaDB's documentation, "Binary Log Event" of MySQL's.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from barnabas.connect.mysql.packets import ProtocolError, lenenc_bytes, lenenc_int

HEADER_SIZE = 19
_HEADER = struct.Struct("<IBIIIH")
_CRC = 4

QUERY, STOP, ROTATE, INTVAR, RAND, USER_VAR, FORMAT_DESCRIPTION, XID = 2, 3, 4, 5, 13, 14, 15, 16
BEGIN_LOAD_QUERY, EXECUTE_LOAD_QUERY, TABLE_MAP, INCIDENT, HEARTBEAT, IGNORABLE = 17, 18, 19, 26, 27, 28
ROWS_QUERY, MYSQL_GTID, ANONYMOUS_GTID, PREVIOUS_GTIDS, XA_PREPARE, PARTIAL_UPDATE = 29, 33, 34, 35, 38, 39
TRANSACTION_PAYLOAD, HEARTBEAT_V2, TAGGED_GTID = 40, 41, 42
ANNOTATE_ROWS, BINLOG_CHECKPOINT, GTID, GTID_LIST, START_ENCRYPTION, QUERY_COMPRESSED = 160, 161, 162, 163, 164, 165
#: Kind of row event -> what it does (the number of its version 1), whether it is version 2, whether it is compressed.
ROWS = {
    **{kind: (kind, False, False) for kind in (23, 24, 25)},
    **{kind: (kind - 7, True, False) for kind in (30, 31, 32)},
    **{kind: (kind - 143, False, True) for kind in (166, 167, 168)},
    **{kind: (kind - 146, True, True) for kind in (169, 170, 171)},
}
WRITE, UPDATE, DELETE = 23, 24, 25
#: Events that a subscriber of rows does not need.
IGNORED = frozenset({STOP, ROWS_QUERY, PREVIOUS_GTIDS, ANNOTATE_ROWS, BINLOG_CHECKPOINT, GTID_LIST, IGNORABLE})
#: Header flag: a reader that does not know the event may skip it.
IGNORABLE_FLAG = 0x80
_STANDALONE = 1


class EventError(Exception):
    """An event cannot be read. The reader stops there, because no change may be left out."""


class Header(NamedTuple):
    """The header of an event. `timestamp`: when its statement began, in seconds since 1970."""

    timestamp: int
    kind: int
    server_id: int
    size: int
    end: int  # the position of the next one, modulo 2**32
    flags: int


class Query(NamedTuple):
    """A statement in a database. `charset` is the number of the client's character set, 0 if it is not given."""

    database: str
    sql: bytes
    charset: int


class MariaGtid(NamedTuple):
    """MariaDB's number of a group of events."""

    domain: int
    server: int
    sequence: int
    flags: int

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.sequence}"

    @property
    def is_standalone(self) -> bool:
        """Whether the group consists of this one event."""
        return bool(self.flags & _STANDALONE)


class Table(NamedTuple):
    """What a TABLE_MAP says of a table's columns. None stands for what an optional part leaves out."""

    database: str
    name: str
    types: bytes
    metadata: bytes
    nullable: bytes
    signedness: bytes | None
    default_charset: tuple[int, dict[int, int]] | None
    charsets: list[int] | None
    names: list[str] | None
    sets: list[list[bytes]] | None
    enums: list[list[bytes]] | None
    enum_default_charset: tuple[int, dict[int, int]] | None
    enum_charsets: list[int] | None
    primary_key: list[int]


def header_of(event: bytes, at: int = 0) -> Header:
    """The header of an event that begins at `at`. Raises EventError."""
    try:
        return Header(*_HEADER.unpack_from(event, at))
    except struct.error:
        raise EventError("an event is shorter than its header") from None


def body_of(event: bytes, at: int, header: Header, *, checksum: bool) -> bytes:
    """The body of an event that begins at `at`, after its checksum (if it has one) was verified. Raises EventError."""
    size = len(event) - at
    if header.size != size:
        raise EventError(f"an event of {header.size} bytes came with {size}")
    end = len(event)
    if checksum:
        if size < HEADER_SIZE + _CRC:
            raise EventError("an event is shorter than its checksum")
        end -= _CRC
        view = memoryview(event)
        if zlib.crc32(view[at:end]) != int.from_bytes(view[end:], "little"):
            raise EventError("the checksum of an event is wrong")
    return event[at + HEADER_SIZE : end]


def made_up(event: bytes, at: int, header: Header) -> bytes:
    """Like `body_of`, for an event that no file holds: it has a checksum if the last bytes match."""
    if len(event) - at >= HEADER_SIZE + _CRC:
        view = memoryview(event)
        if zlib.crc32(view[at : len(event) - _CRC]) == int.from_bytes(view[-_CRC:], "little"):
            return body_of(event, at, header, checksum=True)
    return body_of(event, at, header, checksum=False)


def rotate_of(body: bytes) -> tuple[str, int]:
    """The next file, and the position in it."""
    return body[8:].decode("utf-8", "replace"), int.from_bytes(body[:8], "little")


def has_checksums(event: bytes, at: int) -> bool:
    """Whether a file has checksums, according to its FORMAT_DESCRIPTION. Raises EventError."""
    if len(event) - at < HEADER_SIZE + 57 + _CRC + 1:
        raise EventError("a format description is cut off")
    algorithm = event[-_CRC - 1]
    if algorithm > 1:
        raise EventError(f"the binary log has checksums of an unknown algorithm ({algorithm})")
    return algorithm == 1


def maria_gtid_of(body: bytes, header: Header) -> MariaGtid:
    """The GTID in a MariaDB GTID event. Raises EventError."""
    try:
        sequence, domain, flags = struct.unpack_from("<QIB", body)
    except struct.error:
        raise EventError("a GTID is cut off") from None
    return MariaGtid(domain, header.server_id, sequence, flags)


def mysql_gtid_of(body: bytes) -> str:
    """UUID:NUMBER. Raises EventError."""
    if len(body) < 25:
        raise EventError("a GTID is cut off")
    told = body[1:17].hex()
    uuid = f"{told[:8]}-{told[8:12]}-{told[12:16]}-{told[16:20]}-{told[20:]}"
    return f"{uuid}:{int.from_bytes(body[17:25], 'little')}"


def xid_of(body: bytes) -> int:
    """The number of the committing transaction."""
    return int.from_bytes(body[:8], "little")


def query_of(body: bytes, *, compressed: bool) -> Query:
    """The statement in a query event. Raises EventError."""
    try:
        size, _, extra = struct.unpack_from("<BHH", body, 8)
    except struct.error:
        raise EventError("a statement is cut off") from None
    status = body[13 : 13 + extra]
    at = 13 + extra
    name = body[at : at + size]
    sql = body[at + size + 1 :]
    if compressed:
        sql = inflated(sql)
    return Query(name.decode("utf-8", "replace"), sql, _charset_in(status))


#: Sizes of the status variables that come before the client's character set.
_STATUS_SIZES = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 18: 2, 128: 3, 129: 8}
_CHARSET = 4
_STATUS_TEXTS = {2: 2, 5: 1, 6: 1}  # a length, the text, and for 2 a NUL


def _charset_in(status: bytes) -> int:
    at = 0
    while at < len(status):
        kind = status[at]
        at += 1
        if kind == _CHARSET:
            return int.from_bytes(status[at : at + 2], "little")
        if kind in _STATUS_SIZES:
            at += _STATUS_SIZES[kind]
        elif kind in _STATUS_TEXTS and at < len(status):
            at += status[at] + _STATUS_TEXTS[kind]
        else:
            break
    return 0


def inflated(data: bytes, at: int = 0) -> bytes:
    """MariaDB's compressed part of an event (`log_bin_compress`). Raises EventError."""
    if at >= len(data):
        raise EventError("compressed data is cut off")
    head = data[at]
    count = head & 0x07
    size = int.from_bytes(data[at + 1 : at + 1 + count], "big")
    if not head & 0x80 or head & 0x70 or not 1 <= count <= 4:
        raise EventError(f"compressed data begins with {head:#x}")
    return _unzipped(data[at + 1 + count :], size, zlib.MAX_WBITS)


def _unzipped(data: bytes, size: int, window: int) -> bytes:
    """Exactly `size` bytes. Raises EventError."""
    unzip = zlib.decompressobj(window)
    try:
        found = unzip.decompress(data, size + 1)
    except zlib.error as error:
        raise EventError(f"compressed data is damaged: {error}") from None
    if len(found) != size:
        raise EventError(f"compressed data does not have the {size} bytes that are told")
    return found


def column_inflated(data: bytes) -> bytes:
    """The value of a column with MariaDB's COMPRESSED attribute. Raises EventError."""
    if not data:
        return b""
    head = data[0]
    if head == 0:
        return data[1:]
    count = head & 0x07
    if head >> 4 != 8 or not 1 <= count <= 4:
        raise EventError(f"a compressed column begins with {head:#x}")
    size = int.from_bytes(data[1 : 1 + count], "big")
    return _unzipped(data[1 + count :], size, -zlib.MAX_WBITS if head & 0x08 else zlib.MAX_WBITS)


def table_id_of(body: bytes) -> int:
    """The table id of a TABLE_MAP or a row event."""
    return int.from_bytes(body[:6], "little")


def table_of(body: bytes) -> Table:
    """The table in a TABLE_MAP. Raises EventError."""
    try:
        return _table(body)
    except (ProtocolError, IndexError, UnicodeDecodeError) as error:
        raise EventError(f"a table map cannot be read: {error}") from None


def _table(body: bytes) -> Table:
    at = 8
    size = body[at]
    database = body[at + 1 : at + 1 + size]
    at += size + 2
    size = body[at]
    name = body[at + 1 : at + 1 + size]
    at += size + 2
    count, at = lenenc_int(body, at)
    types = body[at : at + count]
    if len(types) != count:
        raise ProtocolError("types are missing")
    metadata, at = lenenc_bytes(body, at + count)
    end = at + (count + 7) // 8
    nullable = body[at:end]
    if len(nullable) != (count + 7) // 8:
        raise ProtocolError("what may be NULL is missing")
    parts: dict[int, bytes] = {}
    while end < len(body):
        kind = body[end]
        parts[kind], end = lenenc_bytes(body, end + 1)
    key = [each[0] for each in _numbers(parts[8], 1)] if 8 in parts else []
    if 9 in parts:
        key = [each[0] for each in _numbers(parts[9], 2)]
    return Table(
        database.decode(),
        name.decode(),
        types,
        metadata,
        nullable,
        parts.get(1),
        _default_charset(parts.get(2)),
        _list(parts.get(3)),
        None if 4 not in parts else [each.decode() for each in _texts(parts[4])],
        None if 5 not in parts else _values(parts[5]),
        None if 6 not in parts else _values(parts[6]),
        _default_charset(parts.get(10)),
        _list(parts.get(11)),
        key,
    )


def _numbers(data: bytes, width: int) -> list[list[int]]:
    found: list[int] = []
    at = 0
    while at < len(data):
        number, at = lenenc_int(data, at)
        found.append(number)
    return [found[at : at + width] for at in range(0, len(found), width)]


def _list(data: bytes | None) -> list[int] | None:
    return None if data is None else [each[0] for each in _numbers(data, 1)]


def _default_charset(data: bytes | None) -> tuple[int, dict[int, int]] | None:
    if data is None:
        return None
    default, at = lenenc_int(data, 0)
    return default, {pair[0]: pair[1] for pair in _numbers(data[at:], 2)}


def _texts(data: bytes) -> list[bytes]:
    found = []
    at = 0
    while at < len(data):
        text, at = lenenc_bytes(data, at)
        found.append(text)
    return found


def _values(data: bytes) -> list[list[bytes]]:
    """The texts of each ENUM or SET column."""
    found = []
    at = 0
    while at < len(data):
        count, at = lenenc_int(data, at)
        texts = []
        for _ in range(count):
            text, at = lenenc_bytes(data, at)
            texts.append(text)
        found.append(texts)
    return found
