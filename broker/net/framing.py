"""Split a stream of bytes into requests. Each is a frame: four bytes of length and that many bytes. No I/O, no clock.

    room -> received -> next, next, ... until there is none

The owner receives into `room()`, passes the number of bytes to `received`, and takes the complete frames. A frame that
cannot be handled yet is given back with `put_back`, which ends the round; then `has_frame` is true, and the owner
continues later with `resume` in place of the first two steps.

All connections of the event loop share the receive buffer, as nothing is awaited in a round. Only the unfinished frame
at its end is kept, so an idle connection holds no buffer. A frame that is too large to be kept is `wanted`: it is
received into a buffer of its own, once the owner has given one (`take_buffer`).

Source: the Kafka protocol guide, "Request and response", size-delimited messages.
"""

from __future__ import annotations

import struct

RECEIVE_BYTES = 256 << 10
# An unfinished frame up to this size stays with its connection; a larger one needs a buffer of its own.
KEPT_BYTES = 16 << 10
# A complete frame below this size is copied out of the shared buffer.
COPIED_BYTES = 64 << 10
LENGTH_BYTES = 4
# How a TLS handshake begins (RFC 8446, 5.1): a record of type 22, of a version 3.x.
TLS_HELLO = 0x1603

_shared = bytearray(RECEIVE_BYTES)
_shared_view = memoryview(_shared)
_read_length = struct.Struct(">i").unpack_from


class FrameError(ValueError):
    """The client announces a frame of a length that no request may have."""


class SpeaksTls(FrameError):
    """The bytes are not a request but the beginning of a TLS handshake."""


class Framing:
    """The frames of one connection; none is longer than `limit` bytes."""

    __slots__ = ("_at", "_buffer", "_filled", "_given", "_rest", "_size", "has_frame", "is_inside", "limit", "wanted")

    def __init__(self, limit: int) -> None:
        #: The longest frame that is accepted.
        self.limit = limit
        self._rest = bytearray()  # kept from the shared buffer; of a wanted frame, the bytes after its length
        self._buffer: memoryview | None = None  # for a large frame
        self._filled = 0  # bytes of it received so far
        self._size = self._at = 0  # the end of the bytes in the shared buffer, and the start of the next frame
        self._given: memoryview | int = 0  # the last frame if it is large, else its position
        #: Whether a complete frame is left.
        self.has_frame = False
        #: Whether a frame has begun that is not complete.
        self.is_inside = False
        #: Length of the large frame that needs a buffer; 0 for none.
        self.wanted = 0

    @property
    def received_bytes(self) -> int:
        """Bytes held of the incomplete frame."""
        return self._filled if self._buffer is not None else len(self._rest)

    def room(self) -> memoryview:
        """The buffer for the next bytes."""
        if self._buffer is not None:
            return self._buffer[self._filled :]
        if not self._rest:
            self._at = self._size = 0
            return _shared_view
        self._take_up()
        return _shared_view[self._size :]

    def received(self, count: int) -> bytes | memoryview | None:
        """`count` bytes are in `room()` now. Gives the first frame, like `next`."""
        if self._buffer is not None:
            self._filled += count
        else:
            self._size += count
        return self.next()

    def resume(self) -> bytes | memoryview | None:
        """Continue with the frames that were left. Gives the first one."""
        self.has_frame = False
        if self._buffer is None:
            self._take_up()
        return self.next()

    def _take_up(self) -> None:
        self._at, self._size = 0, len(self._rest)
        _shared[: self._size] = self._rest

    def next(self) -> bytes | memoryview | None:
        """The next complete frame, without its length. None if there is none: then the remaining bytes are kept.

        Raises FrameError. A small frame is a copy. A large one is a view, valid until the next `room`, or until its
        buffer is given to another frame.
        """
        if self._buffer is not None:
            return self._next_large()
        at, size = self._at, self._size
        if at == size:
            if self._rest:
                self._rest = bytearray()
            self.is_inside = False
            return None
        if size - at >= LENGTH_BYTES:
            (length,) = _read_length(_shared, at)
            if not 0 <= length <= self.limit:
                if length >> 16 == TLS_HELLO:
                    raise SpeaksTls("the client speaks TLS: it needs security.protocol=PLAINTEXT or SASL_PLAINTEXT")
                raise FrameError(f"request of {length} bytes; at most {self.limit} are accepted")
            end = at + LENGTH_BYTES + length
            if end <= size:
                self._given, self._at = at, end
                frame = _shared_view[at + LENGTH_BYTES : end]
                return bytes(frame) if length < COPIED_BYTES else frame
            if LENGTH_BYTES + length > KEPT_BYTES:
                self.wanted = length
                at += LENGTH_BYTES
        self._rest = _shared[at:size]
        self.is_inside = True
        return None

    def _next_large(self) -> memoryview | None:
        assert self._buffer is not None
        if self._filled < len(self._buffer):
            return None
        frame = self._given = self._buffer
        self._buffer = None
        self.is_inside = False
        return frame

    def put_back(self) -> None:
        """Put the last frame back: it and the bytes after it are kept, and it will be the next one again."""
        if isinstance(self._given, memoryview):
            self._buffer = self._given
        else:
            self._rest = _shared[self._given : self._size]
        self.has_frame, self.is_inside = True, False

    def take_buffer(self, buffer: memoryview) -> None:
        """Receive the wanted frame into `buffer`, which has its length."""
        self._filled = len(self._rest)
        buffer[: self._filled] = self._rest
        self._rest = bytearray()
        self._buffer, self.wanted = buffer, 0
        self._at = self._size = 0
