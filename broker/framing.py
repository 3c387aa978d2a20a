"""Requests out of a stream of bytes: each is a frame, four bytes of length and as many bytes. No I/O, and no clock.

    room -> received -> next, next, ... -> keep

An owner receives into `room()`, says with `received` how many bytes came, takes the whole frames with `next`, and ends
with `keep`. A frame that cannot be handled yet is given back with `put_back`; then `has_frame` holds, and the owner
comes back with `resume` in place of the first two steps.

The receive buffer is shared by all connections of the event loop, as nothing is awaited between `room` and `keep`. Only
the unfinished frame at its end is kept, so an idle connection holds no buffer. A frame that is too large to be kept is
`wanted`: it is received into a buffer of its own, once the owner has given one (`take_buffer`).

Source: the Kafka protocol guide, "Request and response", size-delimited messages.
"""

from __future__ import annotations

import struct

RECEIVE_BYTES = 256 << 10
# An unfinished frame up to this size stays with its connection; a larger one needs a buffer of its own.
KEPT_BYTES = 64 << 10
LENGTH_BYTES = 4

_shared = bytearray(RECEIVE_BYTES)
_shared_view = memoryview(_shared)
_read_length = struct.Struct(">i").unpack_from


class FrameError(ValueError):
    """The client announces a frame of a length that no request may have."""


class Framing:
    """The frames of one connection; none is longer than `limit` bytes."""

    __slots__ = ("_at", "_buffer", "_filled", "_given", "_limit", "_rest", "_size", "has_frame", "wanted")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()  # what stays of the shared buffer; of a wanted frame, what follows its length
        self._buffer: memoryview | None = None  # of a large frame
        self._filled = 0  # bytes of it that are there
        self._size = self._at = 0  # where the bytes in the shared buffer end, and where the next frame begins
        self._given: memoryview | int = 0  # the last frame, if it is a large one, else where it begins
        #: Whether a whole frame was left by `keep`.
        self.has_frame = False
        #: Length of the large frame that needs a buffer; 0 for none.
        self.wanted = 0

    @property
    def is_inside(self) -> bool:
        """Whether a frame has begun that is not whole."""
        return not self.has_frame and (self._buffer is not None or self.wanted > 0 or bool(self._rest))

    @property
    def is_inside_large(self) -> bool:
        """Whether bytes go into a buffer of their own."""
        return self._buffer is not None

    @property
    def received_bytes(self) -> int:
        """Bytes that are held of the frame that is not whole."""
        return self._filled if self._buffer is not None else len(self._rest)

    def room(self) -> memoryview:
        """Where the next bytes go."""
        if self._buffer is not None:
            return self._buffer[self._filled :]
        self._take_up()
        return _shared_view[self._size :] if self._size else _shared_view

    def received(self, count: int) -> None:
        """`count` bytes stand in `room()` now."""
        if self._buffer is not None:
            self._filled += count
        else:
            self._size += count

    def resume(self) -> None:
        """Go on with the frames that were left."""
        self.has_frame = False
        if self._buffer is None:
            self._take_up()

    def _take_up(self) -> None:
        self._at, self._size = 0, len(self._rest)
        if self._rest:
            _shared[: self._size] = self._rest

    def next(self) -> bytes | memoryview | None:
        """The next whole frame, without its length; None where there is none. Raises FrameError.

        A small one is a copy. A large one is a view, of use until `keep` or `take_buffer`, or for as long as its
        buffer is not given to another.
        """
        if self._buffer is not None:
            if self._filled < len(self._buffer):
                return None
            frame = self._given = self._buffer
            self._buffer = None
            return frame
        at = self._at
        if self._size - at < LENGTH_BYTES:
            return None
        (length,) = _read_length(_shared, at)
        if not 0 <= length <= self._limit:
            raise FrameError(f"request of {length} bytes (socket.request.max.bytes is {self._limit})")
        end = at + LENGTH_BYTES + length
        if end > self._size:
            return None
        self._given, self._at = at, end
        frame = _shared_view[at + LENGTH_BYTES : end]
        return bytes(frame) if length < KEPT_BYTES else frame

    def put_back(self) -> None:
        """The last frame is not handled yet: it is the next one again."""
        if isinstance(self._given, memoryview):
            self._buffer = self._given
        else:
            self._at = self._given

    def keep(self) -> None:
        """Let go of the shared buffer: what is left in it stays here."""
        self._given = 0
        if self._buffer is not None:
            self.has_frame = self._filled == len(self._buffer)
            return
        at, size = self._at, self._size
        if at == size:
            if self._rest:
                self._rest = bytearray()
            return
        if size - at >= LENGTH_BYTES:
            (length,) = _read_length(_shared, at)
            # `next` raises for a length that cannot be.
            self.has_frame = length > self._limit or at + LENGTH_BYTES + length <= size
            if not self.has_frame and LENGTH_BYTES + length > KEPT_BYTES:
                self.wanted = length
                at += LENGTH_BYTES
        self._rest = _shared[at:size]

    def take_buffer(self, buffer: memoryview) -> None:
        """Receive the wanted frame into `buffer`, which has its length."""
        self._filled = len(self._rest)
        buffer[: self._filled] = self._rest
        self._rest = bytearray()
        self._buffer, self.wanted = buffer, 0
        self._at = self._size = 0
