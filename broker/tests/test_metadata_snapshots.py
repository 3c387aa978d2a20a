"""Snapshots of the metadata: what they keep, what they drop, and what happens if one is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from barnabas.broker.clock import Clock
from barnabas.broker.metadata.features import FEATURES
from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.metadata.records import decode_snapshot, encode_snapshot
from barnabas.broker.tests.client import Client, batch_of
from barnabas.broker.tests.conftest import Running, Start, until
from barnabas.broker.tests.turns import counted_turns
from barnabas.scripts.cli import main
from barnabas.storage.errors import StorageError
from barnabas.storage.snapshots import SnapshotId, Snapshots
from barnabas.storage.tests.support import CrashError, FaultyIo
from barnabas.wire.errors import KafkaError
from barnabas.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.records.cluster_metadata import ConfigRecord, RemoveTopicRecord, TopicRecord
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import Message

SMALL = {"metadata_log_max_record_bytes_between_snapshots": "2000"}
RECORDS: list[Message] = [TopicRecord(name=f"t{n}", topic_id=bytes([n % 256] * 16)) for n in range(1201)]


def files(data: Path) -> list[str]:
    return sorted(file.name for file in (data / "__cluster_metadata-0").glob("*.checkpoint*"))


def image_of(metadata: MetadataImage) -> tuple[object, ...]:
    topics = {name: (t.topic_id, t.partitions, t.configs) for name, t in metadata.topics.items()}
    return topics, metadata.broker_configs, metadata.quotas.of, metadata.next_producer_id


def log_bytes(data: Path) -> int:
    return sum(file.stat().st_size for file in (data / "__cluster_metadata-0").glob("*.log"))


async def work(running: Running, client: Client, rounds: range) -> None:
    """Create topics that stay and topics that are deleted; change settings, a quota and a producer id."""
    for number in rounds:
        await client.create_topic(f"kept-{number}", 2, retention_ms=str(number + 1))
        await client.create_topic(f"gone-{number}")
        await client.ask(DeleteTopicsRequest(topic_names=[f"gone-{number}"]), 5)
    entry = EntryData([EntityData("user", "a")], [OpData("consumer_byte_rate", float(len(rounds)))])
    await client.ask(AlterClientQuotasRequest([entry]))
    await client.ask(InitProducerIdRequest(transactional_id=None))


def test_a_snapshot_has_what_it_was_made_of() -> None:
    data = b"".join(encode_snapshot(RECORDS, 3, 1_700_000_000_000))
    assert decode_snapshot(data) == RECORDS
    assert decode_snapshot(b"".join(encode_snapshot([], 0, 0))) == []


def test_a_snapshot_that_is_damaged_or_cut_off_is_refused() -> None:
    parts = list(encode_snapshot(RECORDS, 0, 0))
    data = b"".join(parts)
    for cut in (0, 1, len(parts[0]), len(data) - len(parts[-1]), len(data) - 1):
        with pytest.raises(KafkaError):
            decode_snapshot(data[:cut])
    for at in range(17, len(data), 997):
        with pytest.raises((KafkaError, ProtocolError)):
            decode_snapshot(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


@pytest.mark.parametrize("kind", ["before", "after", "torn", "enospc", "eio"])
def test_a_write_that_is_cut_leaves_the_snapshot_whole_or_not_there(tmp_path: Path, kind: str) -> None:
    snapshot = SnapshotId(7, 0)
    data = b"".join(encode_snapshot(RECORDS, 0, 0))
    for at in range(1, 20):
        folder = tmp_path / str(at)
        folder.mkdir()
        io = FaultyIo(at, kind)
        try:
            Snapshots(io, str(folder)).write(snapshot, data)
        except (CrashError, OSError):
            pass
        after = Snapshots(FaultyIo(-1, kind), str(folder))
        assert [after.read(found) for found in after.ids()] in ([], [data])
        after.prune(2)
        assert not list(folder.glob("*.part"))
        if io.calls < at:
            return
    raise AssertionError("there are more steps than were met")


async def test_the_log_does_not_grow_for_ever_and_the_image_stays(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with start(**SMALL) as running, await running.client() as client:
        await work(running, client, range(40))
        await until(lambda: len(files(data)) == 2)
        await until(lambda: running.node.metadata.bytes_since_snapshot < 2000)
        assert log_bytes(data) < 8000
        before = image_of(running.node.metadata)
        assert len(running.node.metadata.removed_ids) < 10, "only those since the last snapshot"
        assert len(running.node.metadata.removed_ms) < 10
    async with start(**SMALL) as running, await running.client() as client:
        assert image_of(running.node.metadata) == before
        assert sorted(running.node.metadata.topics) == sorted(f"kept-{n}" for n in range(40))
        assert (await client.produce("kept-39", batch_of(b"v"))).base_offset == 0
        given = await client.ask(InitProducerIdRequest(transactional_id=None))
        assert given.producer_id >= 1000
        await client.create_topic("gone-1")
        assert (await client.produce("gone-1", batch_of(b"v"))).base_offset == 0


async def test_a_damaged_snapshot_costs_nothing_as_long_as_there_is_one_before(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with start(**SMALL) as running, await running.client() as client:
        await work(running, client, range(30))
        await until(lambda: len(files(data)) == 2)
        before = image_of(running.node.metadata)
    newest = data / "__cluster_metadata-0" / files(data)[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    async with start() as running:
        assert image_of(running.node.metadata) == before
        assert f"metadata.snapshot.damaged file={newest.name}" in running.log
    for name in files(data):
        (data / "__cluster_metadata-0" / name).write_bytes(b"")
    with pytest.raises(ExceptionGroup) as caught:
        async with start():
            pass
    refused = caught.value.split(StorageError)[0]
    assert refused is not None
    assert "says what was before offset" in str(leaf(refused))


async def test_log_clean_knows_the_topics_of_a_snapshot(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with start(**SMALL) as running, await running.client() as client:
        await client.create_topic("table", cleanup_policy="compact")
        await work(running, client, range(40))
        await until(lambda: len(files(data)) == 2)
    assert await trio.to_thread.run_sync(main, ["log", "clean", str(data), "table"]) == 0


async def test_the_metadata_log_says_which_features_hold(start: Start, tmp_path: Path) -> None:
    """Kafka refuses to start with a log without these, or with another topic id."""
    for _ in range(2):
        async with start() as running:
            assert running.node.metadata.features == {name: each.finalized for name, each in FEATURES.items()}
            end = running.node.vnodes["__cluster_metadata", 0].log_end_offset
            assert end == len(FEATURES), "once"
    text = (tmp_path / "data" / "__cluster_metadata-0" / "partition.metadata").read_text()
    assert "topic_id: AAAAAAAAAAAAAAAAAAAAAQ" in text


def leaf(error: BaseException) -> BaseException:
    return leaf(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def test_a_folder_that_cannot_be_removed_keeps_the_removal_in_the_log(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with start() as running, await running.client() as client:
        await client.create_topic("t")
        topic_id = running.node.metadata.topics["t"].topic_id
        await client.create_topic("u")
        running.node.topics.unremoved.add(topic_id)  # as after a failed rename
        assert await running.node.metadata_snapshots.take() is None
        assert files(data) == []
        running.node.topics.unremoved.clear()
        taken = await running.node.metadata_snapshots.take()
        assert taken is not None
        assert files(data) == [taken.name]


async def test_others_have_their_turn_while_a_large_snapshot_is_made(start: Start) -> None:
    async with start() as running, await running.client() as client:
        topic = running.node.metadata.topics
        await client.create_topic("t")
        topic["t"].configs.update({f"k{n}": "v" for n in range(30_000)})
        async with counted_turns() as turns:
            await running.node.metadata_snapshots.take()
        assert turns.count > 5, "in pieces of some milliseconds, however quick the machine is"


def test_a_snapshot_has_nothing_of_what_is_removed() -> None:
    image = MetadataImage(1, Clock())
    image.apply(TopicRecord(name="t", topic_id=b"1" * 16))
    image.apply(ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"))
    assert [type(record).__name__ for record in image.records()] == ["ProducerIdsRecord", "TopicRecord", "ConfigRecord"]
    image.apply(RemoveTopicRecord(topic_id=b"1" * 16))
    assert [type(record).__name__ for record in image.records()] == ["ProducerIdsRecord"]
