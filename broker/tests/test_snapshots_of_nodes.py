"""Nodes that begin with a snapshot of the owner's metadata (KIP-630)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.broker.between import following as following_module
from barnabas.broker.between.channel import Channel
from barnabas.broker.metadata.image import METADATA_TOPIC
from barnabas.broker.metadata.snapshots import KEPT
from barnabas.broker.tests.conftest import until
from barnabas.broker.tests.several import OWNER, Several, several
from barnabas.storage.errors import StorageError
from barnabas.storage.snapshots import SnapshotId, Snapshots
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import fetch
from barnabas.wire.messages.fetch_snapshot import FetchSnapshotRequest, PartitionSnapshot, TopicSnapshot
from barnabas.wire.records.cluster_metadata import ProducerIdsRecord
from barnabas.wire.types import Message, replace

NODE = 3


async def take(nodes: Several) -> SnapshotId:
    """A snapshot of the owner, with a topic more than the last one."""
    await (await nodes.client(2)).create_topic(f"t{nodes.owner.metadata.log.log_end_offset}")
    await until(lambda: nodes.owner.followers.are_clean)
    found = await nodes.owner.metadata_snapshots.take()
    assert found is not None
    return found


@asynccontextmanager
async def with_snapshots(tmp_path: Path) -> AsyncIterator[Several]:
    """Nodes whose metadata log begins at the first of two snapshots; the last node is stopped."""
    async with several(tmp_path) as nodes:
        for _ in range(3):
            await take(nodes)
        await (await nodes.client(2)).create_topic("last")
        assert nodes.owner.metadata.log.log_start_offset > 0
        await nodes.stop(NODE)
        yield nodes


def knows_all(nodes: Several) -> bool:
    """Whether the last node knows what the owner knows."""
    images = [
        [
            replace(record, broker_id=0) if isinstance(record, ProducerIdsRecord) else record
            for record in nodes[node].node.metadata.records()
        ]
        for node in (OWNER, NODE)
    ]
    return images[0] == images[1]


def snapshots(nodes: Several) -> Snapshots:
    return nodes.owner.data_dir.snapshots(METADATA_TOPIC, 0)


def damage(nodes: Several, snapshot: SnapshotId) -> None:
    file = Path(snapshots(nodes).path(snapshot))
    data = bytearray(file.read_bytes())
    data[-20] ^= 1
    file.write_bytes(data)


class Pieces:
    """The pieces that nodes ask for: each snapshot with a position. `then` is called before an answer is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[SnapshotId, int]] = []
        self.then: Callable[[Any], Any] | None = None
        ask = Channel.ask

        async def watched(channel: Channel, request: Message, version: int | None = None) -> Any:
            answer = await ask(channel, request, version)
            if isinstance(request, FetchSnapshotRequest):
                (part,) = request.topics[0].partitions
                snapshot = SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch)
                self.asked.append((snapshot, part.position))
                if self.then is not None:
                    answer = await self.then(answer)
            return answer

        monkeypatch.setattr(Channel, "ask", watched)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> Pieces:
    monkeypatch.setattr(following_module, "_BYTES", 300)
    return Pieces(monkeypatch)


async def test_a_node_reads_the_newest_snapshot_in_pieces_and_the_log_from_its_end_on(
    tmp_path: Path, pieces: Pieces
) -> None:
    async with with_snapshots(tmp_path) as nodes:
        newest = snapshots(nodes).ids()[0]
        size = len(snapshots(nodes).read(newest))
        await nodes.start(NODE)
        assert pieces.asked == [(newest, position) for position in range(0, size, 300)]
        assert len(pieces.asked) > 2
        assert knows_all(nodes)
        nodes.no_errors()


async def test_a_damaged_snapshot_is_left_for_the_older_one(tmp_path: Path, pieces: Pieces) -> None:
    async with with_snapshots(tmp_path) as nodes:
        newest, older = snapshots(nodes).ids()
        damage(nodes, newest)
        await nodes.start(NODE)
        assert pieces.asked[0] == (newest, 0)
        assert {snapshot for snapshot, _ in pieces.asked[1:]} == {older}
        assert knows_all(nodes)
        await nodes.stop(NODE)
        pieces.asked.clear()
        await nodes.start(NODE)
        assert {snapshot for snapshot, _ in pieces.asked} == {older}
        (line,) = [line for line in nodes.running[OWNER].log.splitlines() if " error " in line]
        assert "metadata.snapshot.damaged" in line
        assert newest.name in line


async def test_a_snapshot_that_is_removed_meanwhile_is_left_for_the_newest(tmp_path: Path, pieces: Pieces) -> None:
    async with with_snapshots(tmp_path) as nodes:

        async def removed(answer: Any) -> Any:
            if len(pieces.asked) == 1:
                for _ in range(KEPT):
                    await take(nodes)
            return answer

        pieces.then = removed
        first = snapshots(nodes).ids()[0]
        await nodes.start(NODE)
        ids = snapshots(nodes).ids()
        assert first not in ids
        assert {pieces.asked[0][0], pieces.asked[1][0]} == {first}
        assert {snapshot for snapshot, _ in pieces.asked[2:]} == {ids[0]}
        assert knows_all(nodes)


async def test_a_snapshot_that_is_damaged_on_its_way_is_not_applied(tmp_path: Path, pieces: Pieces) -> None:
    async def flipped(answer: Any) -> Any:
        (part,) = answer.topics[0].partitions
        piece = bytes(part.unaligned_records)
        answer.topics[0].partitions[0] = replace(part, unaligned_records=piece[:-1] + bytes([piece[-1] ^ 1]))
        return answer

    async def empty(answer: Any) -> Any:
        (part,) = answer.topics[0].partitions
        answer.topics[0].partitions[0] = replace(part, unaligned_records=b"")
        return answer

    async with with_snapshots(tmp_path) as nodes:
        for pieces.then, words in ((flipped, "a damaged snapshot"), (empty, "up to 0 only")):
            with pytest.RaisesGroup(pytest.RaisesExc(StorageError, match=words), flatten_subgroups=True):
                await nodes.start(NODE)
        pieces.then = None
        await nodes.start(NODE)
        assert knows_all(nodes)


async def test_the_owner_goes_away_in_the_middle(tmp_path: Path, pieces: Pieces) -> None:
    async with with_snapshots(tmp_path) as nodes, trio.open_nursery() as nursery:

        async def goes(answer: Any) -> Any:
            if len(pieces.asked) == 2:
                await nodes.cut_off(OWNER)
                nursery.start_soon(nodes.start, OWNER)
            return answer

        pieces.then = goes
        await nodes.start(NODE)
        assert len(pieces.asked) > 2
        await until(lambda: OWNER in nodes.running)
        assert knows_all(nodes)


async def test_what_the_owner_does_not_have(tmp_path: Path) -> None:
    async with with_snapshots(tmp_path) as nodes:
        newest = snapshots(nodes).ids()[0]
        size = len(snapshots(nodes).read(newest))
        channels = nodes.running[2].node.together.channels  # type: ignore[union-attr]

        async def code(
            topic: str = METADATA_TOPIC,
            partition: int = 0,
            position: int = 0,
            snapshot: SnapshotId = newest,
            *,
            node: int = OWNER,
            most: int = 100,
        ) -> int:
            part = PartitionSnapshot(partition, snapshot_id=fetch.SnapshotId(*snapshot), position=position)
            request = FetchSnapshotRequest(max_bytes=most, topics=[TopicSnapshot(topic, [part])])
            (found,) = (await channels.ask(node, request)).topics[0].partitions
            assert len(found.unaligned_records) == (0 if found.error_code else max(0, min(most, size - position)))
            return int(found.error_code)

        for position, most in ((0, 100), (size - 1, 100), (1, 0), (0, 2**31 - 1)):
            assert await code(position=position, most=most) == 0
        for position, most in ((size, 100), (2**62, 100), (-1, 100), (0, -1)):
            assert await code(position=position, most=most) == ErrorCode.POSITION_OUT_OF_RANGE
        for unknown in (SnapshotId(0, 0), SnapshotId(newest.offset, 7), SnapshotId(-1, -1)):
            assert await code(snapshot=unknown) == ErrorCode.SNAPSHOT_NOT_FOUND
        for topic, partition in (("last", 0), (METADATA_TOPIC, 1), ("../last", 0)):
            assert await code(topic, partition) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await nodes.start(NODE)
        assert await code(node=NODE) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        nodes.no_errors()
