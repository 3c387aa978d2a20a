"""The frame of a metadata record (KIP-631)."""

from __future__ import annotations

import pytest

from barnabas.broker.metadata.records import frame, unframe
from barnabas.wire.records.cluster_metadata import RemoveTopicRecord, TopicRecord
from barnabas.wire.schema import ProtocolError


@pytest.mark.parametrize("record", [TopicRecord("t", bytes(16)), RemoveTopicRecord(b"x" * 16)])
def test_what_is_framed_is_read(record: TopicRecord | RemoveTopicRecord) -> None:
    assert unframe(frame(record)) == record


def test_a_record_type_that_is_not_used_here_is_passed_over() -> None:
    assert unframe(b"\x01\xff\x01\x00") is None


@pytest.mark.parametrize("value", [b"", b"\x01", b"\x01\x80", b"\x01\xff\xff\xff\xff\xff\xff", b"\x02\x02\x00"])
def test_a_damaged_frame_is_refused(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        unframe(value)
