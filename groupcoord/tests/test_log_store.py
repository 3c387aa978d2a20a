"""Records in real vnodes: what is acknowledged survives a restart, what fails is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from barnabas.groupcoord.config import GroupConfig
from barnabas.groupcoord.coordinator import GroupCoordinator
from barnabas.groupcoord.log.durability import Durability
from barnabas.groupcoord.log.image import PartitionImage
from barnabas.groupcoord.log.log_store import LogStore
from barnabas.groupcoord.log.records import group_record, offset_record
from barnabas.groupcoord.tests.harness import START_MS, MemoryStore, Reply, TopicList, World, subscription
from barnabas.groupcoord.timers import load_partition, run_timers
from barnabas.storage.config import LogConfig
from barnabas.storage.files import FileCache
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.vnode import Origin, Vnode
from barnabas.wire import batch
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.records.group_metadata import GroupMetadataValue
from barnabas.wire.records.offset_commit import OffsetCommitValue


def open_vnode(path: Path, partition: int = 0) -> LocalVnode:
    io = Io()
    vnode = LocalVnode(
        str(path / f"__consumer_offsets-{partition}"),
        "__consumer_offsets",
        partition,
        LogConfig(cleanup_policy="compact"),
        io=io,
        cache=FileCache(io),
    )
    if not Path(vnode.directory).exists():
        vnode.create(b"t" * 16)
    return vnode


class Log:
    """A store over one vnode that is flushed on the test's command."""

    def __init__(self, path: Path) -> None:
        self.vnode = open_vnode(path)
        self.flushes_asked = 0
        self.store = LogStore(
            lambda partition: self.vnode if partition == 0 else None,
            PartitionImage,
            Durability(self._ask),
            lambda: START_MS,
        )
        self.done: list[tuple[str, ErrorCode]] = []

    def _ask(self, vnode: Vnode) -> None:
        self.flushes_asked += 1

    def append(self, name: str, offset: int = 1, partition: int = 0) -> None:
        record = offset_record(name, "orders", 0, OffsetCommitValue(offset=offset))
        self.store.append(partition, [record], lambda error: self.done.append((name, error)))


def test_an_append_is_done_when_it_is_flushed(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.append("a")
    log.append("b")
    assert log.done == []
    assert log.flushes_asked == 2
    log.vnode.flush()
    assert log.done == [("a", ErrorCode.NONE), ("b", ErrorCode.NONE)]
    log.append("c")
    assert len(log.done) == 2
    log.vnode.flush()
    assert log.done[2:] == [("c", ErrorCode.NONE)]


def test_what_waits_on_a_vnode_that_fails_is_refused(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.append("a")
    log.vnode.fail("flush", OSError("no disk"))
    log.append("b")
    log.append("c", partition=1)
    assert log.done == [
        ("a", ErrorCode.KAFKA_STORAGE_ERROR),
        ("b", ErrorCode.KAFKA_STORAGE_ERROR),
        ("c", ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ]
    with pytest.raises(KafkaError):
        log.store.load(0)


def test_a_partition_is_read_back(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for number in range(300):
        log.append(f"g{number % 7}", number)
    log.store.append(0, [group_record("g", GroupMetadataValue(generation=3))], lambda error: None)
    gone = [offset_record("g6", "orders", index, None) for index in range(2_500)]
    log.store.append(0, gone, lambda error: log.done.append(("gone", error)))
    log.vnode.flush()
    assert log.done[-1] == ("gone", ErrorCode.NONE)
    log.vnode.close()

    image = Log(tmp_path).store.load(0)
    assert {group: value.offset for (group, _, _), value in image.offsets.items()} == {
        f"g{number % 7}": number for number in range(293, 300) if number % 7 != 6
    }
    assert image.groups["g"].generation == 3


def test_transactional_offsets_of_another_broker_are_read_back(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for producer, kind in ((1, batch.ControlType.COMMIT), (2, batch.ControlType.ABORT), (3, None)):
        record = offset_record(f"p{producer}", "orders", 0, OffsetCommitValue(offset=producer))
        data = batch.build_batch(
            [batch.Record(offset=-1, timestamp=START_MS, key=record.key, value=record.value)],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        log.vnode.append(data, now_ms=START_MS, origin=Origin.COORDINATOR)
        if kind is not None:
            marker = batch.build_batch(
                [batch.Record(offset=-1, timestamp=START_MS, key=batch.control_key(kind), value=b"\0\0\0\0\0\0")],
                producer_id=producer,
                producer_epoch=0,
                is_transactional=True,
                is_control=True,
            )
            log.vnode.append(marker, now_ms=START_MS, origin=Origin.COORDINATOR)
    log.vnode.flush()
    image = log.store.load(0)
    assert [group for group, _, _ in image.offsets] == ["p1"]
    assert [group for group, _, _ in image.open_transactions.places()] == ["p3"]


def test_a_record_that_nobody_can_read_is_passed_over(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.append("a")
    key = offset_record("b", "orders", 0, None).key
    for value in (b"\0\x63", b"", b"\0\4\0"):
        data = batch.build_batch([batch.Record(offset=-1, timestamp=START_MS, key=key, value=value)])
        log.vnode.append(data, now_ms=START_MS, origin=Origin.COORDINATOR)
    log.append("c")
    log.vnode.flush()
    assert [group for group, _, _ in log.store.load(0).offsets] == ["a", "c"]


def join_request(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", subscription("orders"))],
    )


@pytest.mark.trio
async def test_the_timer_task_expires_sessions(autojump_clock: trio.testing.MockClock) -> None:
    coordinator = GroupCoordinator(
        GroupConfig(), MemoryStore(), trio.current_time, topics=TopicList(), wall_ms=lambda: START_MS
    )
    partition = coordinator.partition_of("g")
    coordinator.finish_load(coordinator.begin_load(partition), MemoryStore().image(partition))
    async with trio.open_nursery() as nursery:
        await nursery.start(run_timers, coordinator.deadlines)
        await trio.sleep(30)
        reply: Reply[JoinGroupResponse] = Reply()
        coordinator.join(join_request(), version=3, client_id="c", client_host="/h", reply=reply)
        member = reply.get().member_id
        beat = HeartbeatRequest("g", 1, member)
        for _ in range(100):
            await trio.sleep(9)
            if coordinator.heartbeat(beat).error_code:
                break
        # It never synced, so its membership ends when the rebalance timeout has passed.
        assert 60 <= trio.current_time() - 30 < 70
        assert coordinator.heartbeat(beat).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_partition_is_loaded_in_a_task(tmp_path: Path) -> None:
    log = Log(tmp_path)
    world = World(GroupConfig(offsets_topic_num_partitions=1))
    log.append("g", 5)
    log.vnode.flush()
    await load_partition(world.coordinator, log.store, 0)
    assert world.committed() == {("orders", 0): (5, -1, "")}
    with pytest.raises(KafkaError):
        await load_partition(world.coordinator, log.store, 1)
    log.vnode.fail("read", OSError("no disk"))
    with pytest.raises(KafkaError):
        await load_partition(world.coordinator, log.store, 0)
    assert world.commit_error(1) == ErrorCode.NOT_COORDINATOR
