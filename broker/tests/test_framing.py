"""Frames from bytes, however these are split: pure logic, without a socket."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.net.framing import KEPT_BYTES, RECEIVE_BYTES, FrameError, Framing

LIMIT = 1 << 20


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


class Feed:
    """Passes bytes to a framing in pieces, as the connection that owns it does."""

    def __init__(self, framing: Framing) -> None:
        self.framing = framing
        self.frames: list[bytes] = []
        self.buffers: list[int] = []

    def give(self, data: bytes, *, at_most: int = 1 << 30) -> None:
        """Receive `data`. Handle at most `at_most` frames each time that some are complete."""
        while data:
            room = self.framing.room()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self._handle(self.framing.received(count), at_most)
            while self.framing.has_frame:
                self._handle(self.framing.resume(), at_most)

    def _handle(self, frame: bytes | memoryview | None, at_most: int) -> None:
        handled = 0
        while frame is not None:
            if handled == at_most:
                self.framing.put_back()
                break
            handled += 1
            self.frames.append(bytes(frame))
            frame = self.framing.next()
        if self.framing.wanted:
            self.buffers.append(self.framing.wanted)
            self.framing.take_buffer(memoryview(bytearray(self.framing.wanted)))


SIZES = st.one_of(
    st.integers(0, 300), st.sampled_from([KEPT_BYTES - 5, KEPT_BYTES - 4, KEPT_BYTES, RECEIVE_BYTES - 4, RECEIVE_BYTES])
)


@given(st.lists(SIZES, max_size=6), st.lists(st.integers(1, 100_000), max_size=20), st.integers(1, 3))
def test_frames_come_whole_and_in_order_however_they_are_cut(sizes: list[int], cuts: list[int], at_most: int) -> None:
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    data, feed = framed(*bodies), Feed(Framing(LIMIT))
    for cut in cuts:
        feed.give(data[:cut], at_most=at_most)
        data = data[cut:]
    feed.give(data, at_most=at_most)
    assert feed.frames == bodies
    assert not feed.framing.is_inside
    assert feed.framing.received_bytes == 0


def test_an_unfinished_frame_is_kept_and_counted() -> None:
    feed = Feed(Framing(LIMIT))
    feed.give(framed(b"whole", b"unfinished")[:-3])
    assert feed.frames == [b"whole"]
    assert feed.framing.is_inside
    assert feed.framing.received_bytes == 4 + len("unfinished") - 3


@pytest.mark.parametrize("have", [0, 1, 1000])
def test_a_large_frame_asks_for_a_buffer_as_soon_as_its_length_is_known(have: int) -> None:
    feed = Feed(Framing(LIMIT))
    body = bytes(range(250)) * 400
    data = framed(b"small", body, b"behind")
    head = 4 + 5 + 4 + have
    feed.give(data[:head])
    assert feed.frames == [b"small"]
    assert feed.buffers == [len(body)]
    assert feed.framing.received_bytes == have
    feed.give(data[head:])
    assert feed.frames == [b"small", body, b"behind"]


@pytest.mark.parametrize("length", [-1, -(1 << 31), LIMIT + 1, (1 << 31) - 1])
def test_a_length_that_no_request_has_is_refused(length: int) -> None:
    feed = Feed(Framing(LIMIT))
    with pytest.raises(FrameError, match=f"request of {length} bytes"):
        feed.give(framed(b"fine") + struct.pack(">i", length) + b"x")
    assert feed.frames == [b"fine"]


def test_a_wrong_length_behind_a_frame_that_waits_is_refused_in_its_turn() -> None:
    framing = Framing(LIMIT)
    data = framed(b"one") + struct.pack(">i", -5)
    framing.room()[: len(data)] = data
    assert framing.received(len(data)) == b"one"
    framing.put_back()
    assert framing.has_frame
    assert framing.resume() == b"one"
    with pytest.raises(FrameError):
        framing.next()


def test_a_frame_that_is_put_back_comes_again() -> None:
    for body in (b"small", bytes(200_000)):
        feed = Feed(Framing(LIMIT))
        framing = feed.framing
        data = framed(body)
        while not framing.has_frame:
            room = framing.room()
            count = min(len(room), len(data))
            room[:count], data = data[:count], data[count:]
            if framing.received(count) is not None:
                framing.put_back()
            if framing.wanted:
                framing.take_buffer(memoryview(bytearray(framing.wanted)))
        assert not framing.is_inside, "it is the owner who keeps it"
        for _ in range(2):
            assert framing.resume() == body
            framing.put_back()
            assert framing.has_frame


def test_connections_share_the_receive_buffer_and_keep_what_is_theirs() -> None:
    one, other = Feed(Framing(LIMIT)), Feed(Framing(LIMIT))
    first, second = framed(b"a" * 900, b"b"), framed(b"c" * 700, b"d")
    for at in range(0, 905, 100):
        one.give(first[at : at + 100])
        other.give(second[at : at + 100])
    assert one.frames == [b"a" * 900, b"b"]
    assert other.frames == [b"c" * 700, b"d"]
