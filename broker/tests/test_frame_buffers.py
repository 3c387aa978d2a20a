"""Buffers of large frames are reused, within bounds."""

from __future__ import annotations

from barnabas.broker.net.buffers import FrameBuffers


def test_a_buffer_that_was_given_back_is_taken_again() -> None:
    frames = FrameBuffers()
    first = frames.take(200_000)
    assert len(first) == 200_000
    frames.give_back(first)
    second = frames.take(150_000)
    assert second.obj is first.obj
    assert frames.take(150_000).obj is not first.obj


def test_not_more_than_a_bounded_amount_is_kept() -> None:
    frames = FrameBuffers()
    taken = [frames.take(1 << 22) for _ in range(10)]
    for frame in taken:
        frames.give_back(frame)
    assert sum(len(b) for kept in frames._free.values() for b in kept) <= FrameBuffers.KEPT_BYTES


def test_a_very_large_frame_has_memory_of_its_own() -> None:
    frames = FrameBuffers()
    large = frames.take((1 << 22) + 1)
    frames.give_back(large)
    assert not any(frames._free.values())
