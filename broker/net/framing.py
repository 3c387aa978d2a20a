"""Requests out of a stream of bytes: each is a frame, four bytes of length and as many bytes. No I/O, and no clock.

    room -> received -> next, next, ... until there is none

An owner receives into `room()`, says with `received` how many bytes came, and takes the whole frames. A frame that
cannot be handled yet is given back with `put_back`, which ends the round; then `has_frame` holds, and the owner comes
back with `resume` in place of the first two steps.

The receive buffer is shared by all connections of the event loop, as nothing is awaited in a round. Only the unfinished
frame at its end is kept, so an idle connection holds no buffer. A frame that is too large to be kept is `wanted`: it is
received into a buffer of its own, once the owner has given one (`take_buffer`).

Source: the Kafka protocol guide, "Request and response", size-delimited messages.
"""

from __future__ import annotations

import struct

RECEIVE_BYTES = 256 << 10
# An unfinished frame up to this size stays with its connection; a larger one needs a buffer of its own.
KEPT_BYTES = 16 << 10
# A whole frame below this size is copied out of the shared buffer.
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
    """What comes is no request but the begin of a TLS handshake."""


class Framing:
    """The frames of one connection; none is longer than `limit` bytes."""

    __slots__ = ("_at", "_buffer", "_filled", "_given", "_rest", "_size", "has_frame", "is_inside", "limit", "wanted")

    def __init__(self, limit: int) -> None:
        #: The longest frame that is taken.
        self.limit = limit
        self._rest = bytearray()  # what stays of the shared buffer; of a wanted frame, what follows its length
        self._buffer: memoryview | None = None  # of a large frame
        self._filled = 0  # bytes of it that are there
        self._size = self._at = 0  # where the bytes in the shared buffer end, and where the next frame begins
        self._given: memoryview | int = 0  # the last frame, if it is a large one, else where it begins
        #: Whether a whole frame was left.
        self.has_frame = False
        #: Whether a frame has begun that is not whole.
        self.is_inside = False
        #: Length of the large frame that needs a buffer; 0 for none.
        self.wanted = 0

    @property
    def received_bytes(self) -> int:
        """Bytes that are held of the frame that is not whole."""
        return self._filled if self._buffer is not None else len(self._rest)

    def room(self) -> memoryview:
        """Where the next bytes go."""
        if self._buffer is not None:
            return self._buffer[self._filled :]
        if not self._rest:
            self._at = self._size = 0
            return _shared_view
        self._take_up()
        return _shared_view[self._size :]

    def received(self, count: int) -> bytes | memoryview | None:
        """`count` bytes stand in `room()` now; the first frame, as `next` gives it."""
        if self._buffer is not None:
            self._filled += count
        else:
            self._size += count
        return self.next()

    def resume(self) -> bytes | memoryview | None:
        """Go on with the frames that were left; the first one."""
        self.has_frame = False
        if self._buffer is None:
            self._take_up()
        return self.next()

    def _take_up(self) -> None:
        self._at, self._size = 0, len(self._rest)
        _shared[: self._size] = self._rest

    def next(self) -> bytes | memoryview | None:
        """The next whole frame, without its length. None where there is none: then what is left is kept.

        Raises FrameError. A small frame is a copy. A large one is a view, of use until the next `room`, or for as long
        as its buffer is not given to another.
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
                raise FrameError(f"request of {length} bytes, where at most {self.limit} are taken")
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
        """The last frame is not to be handled yet: it is kept, with what follows, and is the next one again."""
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
