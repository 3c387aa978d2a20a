"""Request headers compared with kafka-python's, and hostile ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.api_header import RequestHeader as TheirHeader

from barnabas.wire.header import read_request_header, skip_header_tags, write_request_header
from barnabas.wire.schema import ProtocolError

INT16 = st.integers(0, 2**15 - 1)


@given(INT16, INT16, st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=20), st.booleans())
def test_what_is_written_is_read(
    key: int, version: int, correlation_id: int, client_id: str | None, flexible: bool
) -> None:
    head = write_request_header(key, version, correlation_id, client_id, flexible)
    read = read_request_header(head + b"body")
    assert (read.api_key, read.api_version) == (key, version)
    assert (read.correlation_id, read.client_id) == (correlation_id, client_id)
    end = skip_header_tags(head + b"body", read.end) if flexible else read.end
    assert end == len(head)


@pytest.mark.parametrize("flexible", [False, True])
def test_kafka_python_writes_the_same(flexible: bool) -> None:
    theirs = TheirHeader(request_api_key=3, request_api_version=9, correlation_id=77, client_id="klient")
    assert bytes(theirs.encode(flexible=flexible)) == write_request_header(3, 9, 77, "klient", flexible)


def test_tags_of_a_header_are_skipped() -> None:
    head = write_request_header(3, 9, 1, None, False) + b"\x02\x00\x01x\x05\x02yz"
    assert skip_header_tags(head, read_request_header(head).end) == len(head)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\0\3\0\1\0\0\0\1", id="no client id"),
        pytest.param(b"\0\3\0\1\0\0\0\1\0\5ab", id="client id beyond the end"),
        pytest.param(b"\0\3\0\1\0\0\0\1\xff\xfe", id="negative client id length"),
        pytest.param(b"\0\3\0\1\0\0\0\1\0\2\xff\xff", id="client id is not UTF-8"),
    ],
)
def test_hostile_headers_are_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_request_header(frame)


@pytest.mark.parametrize("tags", [b"", b"\x01", b"\x01\x00", b"\x01\x00\x05ab", b"\xff\xff\xff\xff\xff\xff"])
def test_hostile_header_tags_are_refused(tags: bytes) -> None:
    head = write_request_header(3, 9, 1, None, False)
    with pytest.raises(ProtocolError):
        skip_header_tags(head + tags, len(head))
