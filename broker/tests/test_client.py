"""The project's own client with a real broker that stops and starts again."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from barnabas.broker.tests.conftest import Running, Start
from barnabas.client import admin, groups
from barnabas.client.cluster import Cluster
from barnabas.client.errors import check
from barnabas.client.fetch import Reader
from barnabas.client.groups import Committed, GroupMember
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.client.produce import Batch, produce
from barnabas.client.retry import Timing
from barnabas.wire.batch import Record, build_batch

T = TypeVar("T")
in_thread = trio.to_thread.run_sync


class Away:
    """A broker on a fixed port that can be down. `missed` is set when the client has noticed that."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._port = 0
        self._real = Timing()
        self.missed = threading.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Running]:
        async with self._start(listeners=f"PLAINTEXT://127.0.0.1:{self._port}") as broker:
            self._port = broker.port
            yield broker

    def cluster(self, *, patience: float = 60.0) -> Cluster:
        def sleep(seconds: float) -> None:
            self.missed.set()
            self._real.sleep(seconds)

        return Cluster(f"127.0.0.1:{self._port}", patience=patience, timing=Timing(sleep=sleep))

    async def while_it_comes_back(self, call: Callable[[], T]) -> T:
        """Start `call` while the broker is down, start the broker, and return the result of `call`."""
        self.missed.clear()
        results: list[T] = []
        done = trio.Event()

        async def calling() -> None:
            results.append(await in_thread(call))
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(calling)
            await in_thread(self.missed.wait)
            async with self.running():
                await done.wait()
        return results[0]


def sent(cluster: Cluster, value: bytes) -> None:
    part = produce(cluster, [Batch("t", 0, build_batch([Record(None, value, 1)]))])["t", 0]
    check(part.error_code, "produce", part.error_message)


def made(cluster: Cluster) -> None:
    check(admin.create_topic(cluster, "t", {}, partitions=2).error_code, "create")
    sent(cluster, b"a")


async def test_a_reader_reads_on_when_the_broker_is_back(start: Start) -> None:
    away = Away(start)
    async with away.running():
        cluster = await in_thread(away.cluster)
        await in_thread(made, cluster)
        reader = Reader(cluster, "t")
        reader.positions = {0: 0, 1: 0}
        assert [record.value for _, record in await in_thread(lambda: list(reader.poll()))] == [b"a"]

    def wrote_and_read() -> list[bytes | None]:
        sent(cluster, b"b")  # the connection had ended before anything was sent, so the record may be sent on a new one
        return [record.value for _, record in reader.poll()]

    assert await away.while_it_comes_back(wrote_and_read) == [b"b"]
    assert await away.while_it_comes_back(lambda: list_offsets(cluster, [("t", 0), ("t", 1)], LATEST)) == {
        ("t", 0): 2,
        ("t", 1): 0,
    }
    cluster.close()


async def test_a_member_stays_one_over_a_restart(start: Start) -> None:
    away = Away(start)
    async with away.running():
        cluster = await in_thread(away.cluster)
        await in_thread(made, cluster)
        member = GroupMember(cluster, "g", "t")
        assert sorted(await in_thread(member.join)) == [0, 1]
        await in_thread(member.commit, {0: 1})

    def beats_and_commits() -> dict[int, int]:
        member.heartbeat()
        member.commit({1: 0})
        return member.committed([0, 1])

    assert await away.while_it_comes_back(beats_and_commits) == {0: 1, 1: 0}
    async with away.running():
        await in_thread(member.heartbeat)  # waits until the group is loaded, which a member that leaves does not
        await in_thread(member.leave, {0: 1})
        described = await in_thread(groups.describe_group, cluster, "g")
        assert described.group_state == "Empty"
    cluster.close()


async def test_positions_with_notes_of_a_group_without_members(start: Start) -> None:
    async with start() as broker:
        cluster = await in_thread(Cluster, f"127.0.0.1:{broker.port}")
        await in_thread(made, cluster)
        kept = {("t", 0): Committed(1, "noted"), ("t", 1): Committed(0)}
        told = await in_thread(groups.commit, cluster, "notes", {**kept, ("t", 9): Committed(1)})
        assert [told["t", 0], told["t", 1]] == [0, 0]
        assert told["t", 9]
        assert await in_thread(groups.committed, cluster, "notes") == kept
        assert await in_thread(groups.committed, cluster, "notes", [("t", 0)]) == {("t", 0): kept["t", 0]}
        assert "notes" in {group.group_id for group in await in_thread(groups.list_groups, cluster)}
        cluster.close()


async def test_a_topic_that_is_made_again_begins_anew(start: Start) -> None:
    async with start() as broker:
        cluster = await in_thread(Cluster, f"127.0.0.1:{broker.port}")
        await in_thread(made, cluster)
        assert (await in_thread(list_offsets, cluster, [("t", 0)], LATEST))["t", 0] == 1
        check((await in_thread(admin.delete_topic, cluster, "t"))[0], "delete")
        await in_thread(made, cluster)
        await in_thread(admin.create_partitions, cluster, "t", 3)
        keys = [("t", partition) for partition in range(3)]  # one more than the client knew of
        assert list((await in_thread(list_offsets, cluster, keys, EARLIEST)).values()) == [0, 0, 0]
        cluster.close()
