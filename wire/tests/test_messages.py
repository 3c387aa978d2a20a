"""Generated codecs compared with the interpreted construct tree, for every message in every version."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.wire.codegen import message_codec
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.produce import ProduceRequest
from barnabas.wire.schema import ProtocolError, schema
from barnabas.wire.tests.strategies import all_messages, examples, value, versions_of
from barnabas.wire.types import Message

MESSAGES = all_messages()
relaxed = settings(examples(3, 10), suppress_health_check=list(HealthCheck))


def outcome(parse: Callable[[Any], Any], data: bytes | memoryview) -> Any:
    """A parser's result for bytes: a message, or None if it refuses them."""
    try:
        return parse(data)
    except ProtocolError:
        return None


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_generated_code_and_construct_tree_agree(cls: type[Message]) -> None:
    @relaxed
    @given(st.data())
    def check(data: st.DataObject) -> None:
        for version in versions_of(cls):
            tree, fast = schema(cls, version), message_codec(cls, version)
            message = data.draw(value(tree))
            wire = tree.build(message)
            assert fast.build(message) == wire
            assert fast.decode(wire) == (message, len(wire))
            assert tree.parse(wire) == message

    check()


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_hostile_bytes_are_accepted_or_refused_alike(cls: type[Message]) -> None:
    @relaxed
    @given(st.data(), st.randoms(use_true_random=False))
    def check(data: st.DataObject, rng: random.Random) -> None:
        for version in versions_of(cls):
            tree, fast = schema(cls, version), message_codec(cls, version)
            wire = bytearray(tree.build(data.draw(value(tree))))
            for _ in range(4):
                hostile = bytearray(wire)
                for _ in range(rng.randrange(3)):
                    if hostile:
                        hostile[rng.randrange(len(hostile))] = rng.choice(
                            (0, 1, 127, 128, 254, 255, rng.randrange(256))
                        )
                if rng.random() < 0.5:
                    del hostile[rng.randrange(len(hostile) + 1) :]
                frame = bytes(hostile)
                assert outcome(fast.parse, frame) == outcome(tree.parse, frame)
                assert outcome(fast.parse, memoryview(frame)) == outcome(tree.parse, frame)

    check()


def test_record_data_is_a_view_of_the_frame() -> None:
    fast = message_codec(ProduceRequest, 9)
    wire = fast.build(fast.parse(b"\x00\xff\xff\x00\x00\x00\x01\x02\x02t\x02\x00\x00\x00\x00\x04abc\x00\x00\x00"))
    frame = bytearray(wire)
    records = fast.parse(frame).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    frame[frame.index(b"abc")] = ord("x")
    assert bytes(records) == b"xbc"


def test_record_data_is_passed_on_as_it_is() -> None:
    class Slice:
        def __len__(self) -> int:
            return 5

    piece = Slice()
    part = PartitionData(records=piece)
    from barnabas.wire.messages.fetch import FetchableTopicResponse, FetchResponse

    chunks = message_codec(FetchResponse, 12).encode(
        FetchResponse(responses=[FetchableTopicResponse(partitions=[part])])
    )
    assert piece in chunks


def test_a_field_that_a_version_lacks_is_refused_unless_ignorable() -> None:
    newer = FetchRequest(topics=[FetchTopic("t", partitions=[FetchPartition(current_leader_epoch=5)])])
    message_codec(FetchRequest, 4).build(newer)  # ignorable
    with pytest.raises(ProtocolError, match="allow_auto_topic_creation"):
        message_codec(MetadataRequest, 3).build(MetadataRequest(allow_auto_topic_creation=False))


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\xff\xff\xff\xfe", id="negative array count"),
        pytest.param(b"\x7f\xff\xff\xff", id="more elements than bytes"),
        pytest.param(b"\x00\x00\x00\x01\xff\xfe", id="negative string length"),
        pytest.param(b"\x00\x00\x00\x01\x7f\xffab", id="string beyond the end"),
        pytest.param(b"\x00\x00\x00\x01\x00\x02\xff\xfe", id="not UTF-8"),
        pytest.param(b"", id="empty"),
    ],
)
def test_bad_lengths_are_protocol_errors(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        message_codec(MetadataRequest, 1).parse(frame)
    with pytest.raises(ProtocolError):
        schema(MetadataRequest, 1).parse(frame)


def test_unknown_tags_are_skipped() -> None:
    plain = message_codec(FetchRequest, 12).build(FetchRequest())
    assert plain.endswith(b"\x00")
    tagged = plain[:-1] + b"\x01\x63\x03abc"  # tag 99 with three bytes
    assert message_codec(FetchRequest, 12).parse(tagged) == FetchRequest()
    assert schema(FetchRequest, 12).parse(tagged) == FetchRequest()


def test_unknown_versions_are_refused() -> None:
    with pytest.raises(ProtocolError, match="no version 99"):
        message_codec(FetchRequest, 99)
