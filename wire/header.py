"""Request and response headers.

Every request starts with API key, version, correlation id and client id; flexible versions (header 2) add a tag block.
The client id has an int16 length in both, so that a broker can read the header of an ApiVersions request that is newer
than the broker itself (KIP-482, KIP-511). Responses repeat the correlation id; flexible ones (header 1) add a tag
block, except ApiVersions, whose header is always 0.
"""

from __future__ import annotations

import struct

import msgspec

from barnabas.wire.aliases import BytesLike
from barnabas.wire.codegen import skip_tags
from barnabas.wire.schema import ProtocolError

_REQUEST = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """`end` is the position after the client id: that of the body or, in flexible versions, of the tag block."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    end: int


def read_request_header(frame: BytesLike) -> RequestHeader:
    """The part of the header that all versions share.

    Raises ProtocolError if the frame is too short or the client id is not UTF-8.
    """
    try:
        key, version, correlation_id, size = _REQUEST.unpack_from(frame)
    except struct.error:
        raise ProtocolError("request shorter than its header") from None
    end = _REQUEST.size
    client_id = None
    if size >= 0:
        try:
            client_id = str(frame[end : end + size], "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("client id is not UTF-8") from None
        end += size
    if size < -1 or end > len(frame):
        raise ProtocolError("client id beyond the end of the request")
    return RequestHeader(key, version, correlation_id, client_id, end)


def skip_header_tags(frame: BytesLike, pos: int) -> int:
    """The position of a flexible request's body, after the header's tag block."""
    try:
        count = frame[pos]
        return skip_tags(frame, pos + 1, len(frame), count) if count else pos + 1
    except IndexError:
        raise ProtocolError("request ends inside its header") from None


def write_request_header(key: int, version: int, correlation_id: int, client_id: str | None, flexible: bool) -> bytes:
    """A request's header, for clients."""
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    return _REQUEST.pack(key, version, correlation_id, size) + name + (b"\0" if flexible else b"")
