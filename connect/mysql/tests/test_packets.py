"""Packets are cut from any pieces of a stream, and their size is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.connect.mysql.packets import (
    MAX_PART,
    PacketSplitter,
    ProtocolError,
    lenenc_bytes,
    lenenc_int,
    packets,
    server_error,
)


def as_lenenc(data: bytes) -> bytes:
    """A length-encoded string."""
    size = len(data)
    if size < 0xFB:
        return bytes([size]) + data
    if size < 1 << 16:
        return b"\xfc" + size.to_bytes(2, "little") + data
    return b"\xfd" + size.to_bytes(3, "little") + data


def fed(splitter: PacketSplitter, stream: bytes, size: int) -> list[bytes]:
    return [payload for at in range(0, len(stream), size) for payload in splitter.feed(stream[at : at + size])]


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 50))
def test_payloads_come_out_as_they_went_in(payloads: list[bytes], size: int) -> None:
    stream = b"".join(packets(payload, number) for number, payload in enumerate(payloads))
    splitter = PacketSplitter(1000)
    assert fed(splitter, stream, size) == payloads
    assert splitter.held == 0


@pytest.mark.parametrize("size", [MAX_PART - 1, MAX_PART, MAX_PART + 1, 2 * MAX_PART])
def test_a_payload_of_16_mib_goes_over_several_packets(size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    payload = payload[:size]
    assert fed(PacketSplitter(1 << 26), packets(payload, 0), 1 << 20) == [payload]


def test_a_payload_that_is_too_large_is_refused_before_it_is_there() -> None:
    with pytest.raises(ProtocolError, match="more than 1,000 bytes"):
        list(PacketSplitter(1000).feed((1001).to_bytes(3, "little") + b"\0"))


def test_a_packet_out_of_order_is_refused() -> None:
    with pytest.raises(ProtocolError, match="packet 5 came where 0"):
        list(PacketSplitter(1000).feed(packets(b"x", 5)))


@given(st.binary(max_size=70_000))
def test_texts_with_their_length(text: bytes) -> None:
    assert lenenc_bytes(as_lenenc(text), 0) == (text, len(as_lenenc(text)))


@pytest.mark.parametrize("data", [b"", b"\xfc\x01", b"\xfe\x01", b"\xff", b"\x05abc"])
def test_lengths_that_lie_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        lenenc_bytes(data, 0)


def test_numbers_of_all_lengths() -> None:
    assert lenenc_int(b"\xfa", 0) == (250, 1)
    assert lenenc_int(b"\xfc\x00\x01", 0) == (256, 3)
    assert lenenc_int(b"\xfd\x00\x00\x01", 0) == (65536, 4)
    assert lenenc_int(b"\xfe" + b"\xff" * 8, 0) == (2**64 - 1, 9)


def test_an_error_has_its_number_and_state() -> None:
    error = server_error(b"\xff\x15\x04#28000Access denied")
    assert (error.code, error.state, str(error)) == (1045, "28000", "Access denied (error 1045, SQLSTATE 28000)")
