"""What is wrong between the nodes of one broker: damaged files and answers, strangers at a port, a full disk.

A node says in one line what is wrong, serves what it knows, and goes on when the cause is gone.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.broker.between import channel as channels
from barnabas.broker.between import following as following_module
from barnabas.broker.between.channel import Channel
from barnabas.broker.between.following import Following
from barnabas.broker.between.membership import Membership
from barnabas.broker.between.peers import Unreachable
from barnabas.broker.metadata.image import METADATA_TOPIC, MetadataImage
from barnabas.broker.metadata.records import decode_snapshot
from barnabas.broker.tests.client import Client, batch_of
from barnabas.broker.tests.conftest import Start, until
from barnabas.broker.tests.several import OWNER, Several, several
from barnabas.broker.tests.test_operator import FullDisk
from barnabas.broker.tests.test_several_nodes import created, leads, move, values
from barnabas.storage.data_dir import DataDir
from barnabas.wire.batch import HEADER_SIZE
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.fetch import FetchRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from barnabas.wire.records.cluster_metadata import PartitionChangeRecord, PartitionRecord, TopicRecord
from barnabas.wire.types import Message, replace

NODE = 3


def following(nodes: Several, node: int = NODE) -> Following:
    found = nodes[node].node.together
    assert found is not None
    assert found.following is not None
    return found.following


async def cut(nodes: Several) -> None:
    """End the connections of the node to the owner: it needs new ones."""
    await following(nodes).close()
    await nodes[NODE].node.together.channels.close()  # type: ignore[union-attr]


async def topics_of(client: Client) -> set[str]:
    """The names that a node knows."""
    answer = await client.ask(MetadataRequest(topics=None))
    return {topic.name for topic in answer.topics if not topic.is_internal}


async def serves_what_it_leads(nodes: Several) -> None:
    index = next(index for index, leader in (await nodes.leaders("t", NODE)).items() if leader == NODE)
    assert (await (await nodes.client(NODE)).produce("t", batch_of(b"v"), index)).error_code == 0


async def goes_on(nodes: Several) -> None:
    """The node follows again, and has changes made."""
    assert (await (await nodes.client(NODE)).ask(created("after"))).topics[0].error_code == 0
    assert await topics_of(await nodes.client(NODE)) >= {"t", "after"}


# --- what says where a node is, and who it is -------------------------------------------------------------------------


async def answers_http(stream: trio.SocketStream) -> None:
    await stream.receive_some()
    await stream.send_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


async def answers_zeros(stream: trio.SocketStream) -> None:
    await stream.receive_some()
    await stream.send_all(bytes(200))


async def says_nothing(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


@asynccontextmanager
async def stranger(answer: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[int]:
    """Something else that listens; gives its port."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await answer(stream)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def damaged(file: Path, content: bytes | None) -> AsyncIterator[None]:
    """A file has this content in the block, or is not there."""
    before = file.read_bytes()
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    yield
    file.write_bytes(before)


UNKNOWN = "nodes/1/address has no port of node 1"
DAMAGES = {
    "address missing": ("1/address", None, UNKNOWN),
    "address empty": ("1/address", b"", UNKNOWN),
    "address text": ("1/address", b"localhost:9092\n", UNKNOWN),
    "address bytes": ("1/address", b"\xff\xfe\x00", UNKNOWN),
    "address no port": ("1/address", b"99999\n", "no node listens on port 99999"),
    "address huge": ("1/address", b"9" * 40, "no node listens on port 9999"),
    "address of nobody": ("1/address", b"1\n", "no node listens on port 1"),
    "secret missing": ("secret", None, "there is no secret"),
    "secret empty": ("secret", b"", "the node refuses the login"),
    "secret another": ("secret", b"another", "the node refuses the login"),
    "secret bytes": ("secret", b"\xff\xfe\x00", "there is no secret"),
}


@pytest.mark.parametrize(("name", "content", "reason"), DAMAGES.values(), ids=DAMAGES)
async def test_a_file_by_which_nodes_find_each_other_is_damaged(
    tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    async with several(tmp_path) as nodes:
        await (await nodes.client(OWNER)).create_topic("t", 3)
        before = len(nodes[NODE].log)  # a node may have waited for the owner's start, too

        def away() -> list[str]:
            return [line for line in nodes[NODE].log[before:].splitlines() if "metadata.owner.away" in line]

        async with damaged(tmp_path / "nodes" / name, content):
            await cut(nodes)
            await until(lambda: away() != [])
            await serves_what_it_leads(nodes)
        await goes_on(nodes)
        lines = away()
        assert len(lines) == len({line.partition("effect=")[2] for line in lines}), "each effect is told once"
        assert all(reason in line for line in lines)


@pytest.mark.parametrize("answer", [answers_http, answers_zeros, says_nothing])
async def test_something_else_listens_where_a_node_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[trio.SocketStream], Awaitable[None]]
) -> None:
    monkeypatch.setattr(channels, "LOGIN_SECONDS", 1.0)
    async with several(tmp_path) as nodes, stranger(answer) as port:
        await (await nodes.client(OWNER)).create_topic("t", 3)
        before = len(nodes[NODE].log)
        async with damaged(tmp_path / "nodes" / "1" / "address", b"%d\n" % port):
            await cut(nodes)
            await until(lambda: "metadata.owner.away" in nodes[NODE].log[before:])
            await serves_what_it_leads(nodes)
        await goes_on(nodes)


async def test_an_owner_whose_address_was_damaged_moves_nothing_when_it_comes_back(tmp_path: Path) -> None:
    """The others have open what they lead: only when the supervisor begins nobody has said where it is."""
    async with several(tmp_path) as nodes:
        await (await nodes.client(OWNER)).create_topic("t", 6)
        assert await move(nodes, "t", dict.fromkeys(range(6), 2)) == [0] * 6
        await until(lambda: all(leads(nodes.owner, "t", index, 2) for index in range(6)))
        await nodes.cut_off(OWNER)
        (tmp_path / "nodes" / "1" / "address").write_bytes(b"")
        await nodes.start(OWNER)
        assert await nodes.leaders("t") == dict.fromkeys(range(6), 2)


def test_a_node_whose_lock_cannot_be_looked_at_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change waits for it: the owner has no descriptor free for a moment."""
    membership = Membership(OWNER, OWNER, 2, tmp_path)
    assert not membership.is_running(2)
    membership.folder(2).mkdir(parents=True)
    (membership.folder(2) / ".lock").touch()
    assert not membership.is_running(2)

    def none_free(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", none_free)
    assert membership.is_running(2)


# --- what the owner sends ---------------------------------------------------------------------------------------------


def flipped(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 1])


def truncated(records: bytes) -> bytes:
    return records[:-1]


def cut_in_its_header(records: bytes) -> bytes:
    return records[: HEADER_SIZE - 1]


def without_length(records: bytes) -> bytes:
    return records[:8] + bytes(4) + records[12:]


@pytest.mark.parametrize("damage", [flipped, truncated, cut_in_its_header, without_length])
async def test_a_damaged_batch_of_the_owner_is_not_applied_and_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(following_module, "_RETRY_SECONDS", 0.05)
    ask, is_damaged, refused = Channel.ask, False, 0

    async def damages(self: Channel, request: Message, version: int | None = None) -> Any:
        nonlocal refused
        answer = await ask(self, request, version)
        if is_damaged and isinstance(request, FetchRequest) and request.replica_state.replica_id == NODE:
            part = answer.responses[0].partitions[0]
            if part.records:
                refused += 1
                answer.responses[0].partitions[0] = replace(part, records=damage(bytes(part.records)))
        return answer

    monkeypatch.setattr(Channel, "ask", damages)
    async with several(tmp_path) as nodes:
        await (await nodes.client(OWNER)).create_topic("t", 3)
        before, is_damaged = following(nodes).offset, True
        client = await nodes.client(2)
        await client.send(created("after"))
        await until(lambda: refused >= 3)
        await serves_what_it_leads(nodes)
        assert "after" not in nodes[NODE].node.metadata.topics
        assert following(nodes).offset == before
        is_damaged = False
        assert (await client.receive()).topics[0].error_code == 0
        assert "after" in nodes[NODE].node.metadata.topics
        (line,) = [line for line in nodes[NODE].log.splitlines() if " error " in line]
        assert "metadata.not_followed" in line


async def test_the_owner_that_loads_is_away_for_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their partitions are not there yet, which must not look as if their disk had failed."""
    async with several(tmp_path) as nodes:
        await nodes.cut_off(OWNER)
        goes_on = trio.Event()
        load = DataDir.load

        async def load_later(self: DataDir, *arguments: Any, **named: Any) -> None:
            await goes_on.wait()
            await load(self, *arguments, **named)

        monkeypatch.setattr(DataDir, "load", load_later)
        ask = nodes[2].node.together.channels.ask  # type: ignore[union-attr]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nodes.start, OWNER)
            before = nodes[2].node.together.membership.port_of(OWNER)  # type: ignore[union-attr]
            await until(lambda: nodes[2].node.together.membership.port_of(OWNER) != before)  # type: ignore[union-attr]
            with pytest.raises(Unreachable, match="has ended"):
                await ask(OWNER, WriteTxnMarkersRequest([]))
            goes_on.set()
        assert (await ask(OWNER, WriteTxnMarkersRequest([]))).markers == []


# --- a full disk, and much that happens -------------------------------------------------------------------------------


async def test_the_owners_disk_is_full_while_nodes_ask_for_changes(tmp_path: Path) -> None:
    disk = FullDisk("__cluster_metadata")
    async with several(tmp_path, disks={OWNER: disk}, offsets_topic_num_partitions="1") as nodes:
        clients = [await nodes.client(node) for node in (OWNER, 2, NODE)]
        for number, client in enumerate(clients):
            assert (await client.ask(created(f"before{number}", 3))).topics[0].error_code == 0
        disk.full = True
        for number, client in enumerate(clients):
            (told,) = (await client.ask(created(f"full{number}"))).topics
            assert told.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "No space left on device" in told.error_message
        known = {f"before{number}" for number in range(3)}
        for client in clients:
            assert await topics_of(client) == known
        for index, leader in (await nodes.leaders("before0")).items():
            assert (await (await nodes.client(leader)).produce("before0", batch_of(b"v"), index)).error_code == 0
        disk.full = False
        for number, client in enumerate(clients):
            (told,) = (await client.ask(created(f"full{number}"))).topics
            assert told.error_code == 0
            assert (await client.ask(InitProducerIdRequest(transactional_id=None))).error_code == 0
        for client in clients:
            assert await topics_of(client) == known | {f"full{number}" for number in range(3)}
    async with several(tmp_path) as nodes:
        assert await topics_of(await nodes.client(2)) == known | {f"full{number}" for number in range(3)}
        for index, leader in (await nodes.leaders("before0")).items():
            assert await values(nodes, "before0", index, leader) == 1


PARTITIONS, CHANGES = 500, 100_000


async def test_a_hundred_thousand_changes_of_leaders_leave_no_more_than_one(start: Start, tmp_path: Path) -> None:
    """Neither in the metadata log with its snapshots, nor in the image, nor in that of who reads the snapshot."""

    def kept() -> frozenset[tuple[str, int]]:
        """The sizes of all that the image has."""
        return frozenset((name, len(value)) for name, value in vars(metadata).items() if hasattr(value, "__len__"))

    topic_id = b"many changes 123"
    async with start(metadata_log_max_record_bytes_between_snapshots="100000") as broker:
        metadata, topics = broker.node.metadata, broker.node.topics
        parts = [
            PartitionRecord(partition_id=index, topic_id=topic_id, leader=2, leader_epoch=0, replicas=[2])
            for index in range(PARTITIONS)
        ]
        async with topics.changes:
            await topics.commit([TopicRecord(name="t", topic_id=topic_id), *parts])
        images, log_bytes = set(), 0
        for number in range(CHANGES // PARTITIONS):
            node = 3 - number % 2
            async with topics.changes:
                await topics.commit(
                    [
                        PartitionChangeRecord(
                            partition_id=index, topic_id=topic_id, leader=node, isr=[node], replicas=[node]
                        )
                        for index in range(PARTITIONS)
                    ]
                )
            images.add(kept())
            log_bytes = max(log_bytes, metadata.log.size_bytes)
        await broker.node.metadata_snapshots.take()
        assert len(images) == 1
        assert log_bytes < 500_000
        assert sum(file.stat().st_size for file in (tmp_path / "data" / "__cluster_metadata-0").iterdir()) < 500_000
        assert metadata.topics["t"].partitions[0] == (2, CHANGES // PARTITIONS)
        again = MetadataImage(1, broker.node.clock)
        snapshots = broker.node.data_dir.snapshots(METADATA_TOPIC, 0)
        newest = snapshots.ids()[0]
        assert newest.offset == metadata.log.log_end_offset
        list(again.begin_with(decode_snapshot(snapshots.read(newest))))
        assert list(again.records()) == list(metadata.records())


async def test_what_nodes_state_does_not_grow_with_the_moves_of_a_partition(tmp_path: Path) -> None:
    def sizes() -> dict[str, int]:
        folders = [tmp_path / "nodes", *tmp_path.glob("t-*")]
        return {
            str(file.relative_to(tmp_path)): file.stat().st_size
            for folder in folders
            for file in folder.rglob("*")
            if file.is_file()
        }

    async with several(tmp_path) as nodes:
        await (await nodes.client(OWNER)).create_topic("t", 3)

        def arrived(target: int) -> bool:
            taken = nodes[target].node.vnodes
            return all(leads(nodes.owner, "t", index, target) and ("t", index) in taken for index in range(3))

        async def moved(times: int) -> None:
            for number in range(times):
                target = 2 + number % 2
                assert await move(nodes, "t", dict.fromkeys(range(3), target)) == [0] * 3
                await until(partial(arrived, target))

        await moved(12)  # turns have two digits from here on
        before = sizes()
        await moved(20)
        assert sizes() == before
        nodes.no_errors()
