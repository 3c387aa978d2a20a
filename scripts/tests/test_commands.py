"""The messages of commands when brokers are away, have moved, or stop in the middle."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.retry import Backoff
from barnabas.client.tests.scripted import Scripted, metadata, scripted
from barnabas.scripts.cli import main
from barnabas.scripts.status import cell
from barnabas.wire.codegen import message_codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_topics import CreateTopicsRequest
from barnabas.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from barnabas.wire.messages.produce import ProduceRequest
from barnabas.wire.records.consumer_protocol import ConsumerProtocolAssignment, TopicPartition

END = 40


@pytest.fixture
def broker() -> Iterator[Scripted]:
    """Leads partitions 0 and 1 of `t`, which end at 40, and coordinates all groups."""
    with scripted() as made:
        made.play[MetadataRequest] = lambda request: metadata({1: made}, {"t": {0: 1, 1: 1}}, request)
        made.play[ListOffsetsRequest] = ends
        made.play[FindCoordinatorRequest] = lambda _: FindCoordinatorResponse(node_id=1)
        yield made


def ends(request: ListOffsetsRequest) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name,
                [
                    ListOffsetsPartitionResponse(each.partition_index, offset=END if each.timestamp == -1 else 0)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def run(broker: Scripted, *words: str) -> int:
    return main([*words, "-b", str(broker.address)])


def test_the_first_server_of_a_list_that_answers_is_asked(broker: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    with scripted() as gone:
        pass
    assert main(["topics", "list", "-b", f"{gone.address},{broker.address}"]) == 0
    assert capsys.readouterr().out == "t\n"
    assert main(["topics", "list", "-b", str(gone.address)]) == 1
    assert "is a broker running there?" in capsys.readouterr().err


def test_groups_are_listed_with_state_and_type(broker: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    found = [ListedGroup("g", "consumer", "Stable", "classic"), ListedGroup("a", "", "Empty", "classic")]
    broker.play[ListGroupsRequest] = lambda _: ListGroupsResponse(groups=found)
    assert run(broker, "groups", "list") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["GROUP", "STATE", "TYPE", "PROTOCOL"],
        ["a", "Empty", "classic"],
        ["g", "Stable", "classic", "consumer"],
    ]


def test_a_group_is_described_with_lag_and_who_reads_it(broker: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    assigned = ConsumerProtocolAssignment(assigned_partitions=[TopicPartition("t", [0, 1])])
    reads = DescribedGroupMember(
        member_id="m",
        client_host="/10.0.0.1",
        member_assignment=b"\0\0" + message_codec(type(assigned), 0).build(assigned),
    )
    group = DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", protocol_data="range", members=[reads]
    )
    at = [OffsetFetchResponsePartition(0, 30, metadata="")]
    broker.play[DescribeGroupsRequest] = lambda _: DescribeGroupsResponse(groups=[group])
    broker.play[OffsetFetchRequest] = lambda _: OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", at)])
    assert run(broker, "groups", "describe", "g") == 0
    told, _, *rows = capsys.readouterr().out.splitlines()
    assert told == "Group: g  State: Stable  Members: 1  Assignor: range"
    assert [row.split() for row in rows] == [
        ["t", "0", "30", "40", "10", "m", "/10.0.0.1"],
        ["t", "1", "-", "40", "-", "m", "/10.0.0.1"],
    ]


def test_what_may_have_been_done_is_told_as_not_known(broker: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    broker.play[CreateTopicsRequest] = lambda _: None
    assert run(broker, "topics", "create", "new") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("closed the connection; whether CreateTopics was carried out is not known")


def test_lines_whose_answer_is_lost_are_not_counted_as_sent(
    broker: Scripted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broker.play[ProduceRequest] = lambda _: None
    lines = tmp_path / "lines"
    lines.write_bytes(b"a\nb\n")
    with lines.open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert run(broker, "produce", "t") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "whether Produce was carried out is not known" in line
    assert broker.asked(ProduceRequest) == 1


def test_an_offset_outside_of_a_partition_is_told_with_its_bounds(
    broker: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(broker, "consume", "t", "--offset", "41") == 1
    said = capsys.readouterr().err
    assert "Offset 41 is outside t-0, which begins at 0 and ends at 40; choose one with --partition" in said


def test_a_topic_is_described_with_both_ends(broker: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    broker.play[ListOffsetsRequest] = lambda _: ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse("t", [ListOffsetsPartitionResponse(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)])]
    )
    assert run(broker, "topics", "describe", "t") == 1
    assert "offsets of t-0: TOPIC_AUTHORIZATION_FAILED" in capsys.readouterr().err


def test_an_interrupt_ends_the_wait_for_a_broker_that_is_away(
    broker: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Backoff) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(Backoff, "pause", interrupted)
    broker.play[ListGroupsRequest] = lambda _: broker.stop()
    assert run(broker, "groups", "list") == 130


def test_a_lag_that_is_not_known_is_shown_as_unknown() -> None:
    assert [cell("lag", None), cell("lag", 0), cell("watermark", None)] == ["unknown", 0, ""]
