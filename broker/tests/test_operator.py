"""The broker from an operator's view: settings, listeners, mistakes, restarts, failing disks."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import trio

from barnabas.broker.main import load_config
from barnabas.broker.metadata.producer_ids import ProducerIds
from barnabas.broker.settings.config import BrokerConfig, read_properties
from barnabas.broker.settings.keys import ConfigError
from barnabas.broker.settings.listeners import Listener
from barnabas.broker.tests.client import Client, batch_of
from barnabas.broker.tests.conftest import Start
from barnabas.storage.errors import StorageError
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.wire.aliases import BytesLike
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.metadata import MetadataRequest

ROOT = Path(__file__).resolve().parents[2]


# --- settings ---------------------------------------------------------------------------------------------------------


def test_a_properties_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# a comment\n! another\n\n  num.partitions = 3\nlog.dir:/tmp/a\\ b\n"
        "log.cleanup.policy delete,\\\n    compact\n"
        "cluster.id=\\u0061b\\=c\nempty=\nlast=1\\"
    )
    assert read_properties(file) == {
        "num.partitions": "3",
        "log.dir": "/tmp/a b",
        "log.cleanup.policy": "delete,compact",
        "cluster.id": "ab=c",
        "empty": "",
        "last": "1",
    }


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"num.partitions": "many"}, "Invalid value 'many' for num.partitions: expected int"),
        ({"num.partitions": "0"}, "Invalid value 0 for num.partitions: must be at least 1"),
        ({"num.partitions": "9999999999"}, "Invalid value '9999999999' for num.partitions: expected int"),
        ({"auto.create.topics.enable": "yes"}, "Invalid value 'yes' for auto.create.topics.enable: expected boolean"),
        ({"compression.type": "rar"}, "Invalid value rar for compression.type: must be one of"),
        ({"listeners": "localhost:9092"}, "expected NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://h:70000"}, "expected NAME://HOST:PORT"),
        ({"listeners": ""}, "listeners is empty"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "names PLAINTEXT twice"),
        ({"listeners": "INSIDE://a:1"}, "INSIDE has no entry in listener.security.protocol.map"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "give a host that clients can reach"),
        ({"advertised.listeners": "OTHER://a:1"}, "which listeners does not have"),
        ({"default.replication.factor": "3"}, "each partition has one replica"),
        ({"zookeeper.connect": "a:port"}, "for zookeeper.connect: expected HOST:PORT[,HOST:PORT...][/CHROOT]"),
        ({"zookeeper.connect": "a:1/../b"}, "for zookeeper.connect: no chroot: /../b"),
        ({"offsets.storage": "redis"}, "Wrong value redis of offsets.storage; valid values are kafka"),
        ({"offsets.storage": "zookeeper"}, "offsets.storage=zookeeper needs a ZooKeeper: set zookeeper.connect"),
        ({"dual.commit.enabled": "true"}, "dual.commit.enabled=true needs a ZooKeeper: set zookeeper.connect"),
        ({"barnabas.zookeeper.credentials": "secret"}, "barnabas.zookeeper.credentials: expected USER:PASSWORD"),
        ({"barnabas.zookeeper.timeout.ms": "0"}, "must be at least 10"),
    ],
)
def test_a_bad_setting_is_one_clear_line(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(settings)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "log", "zookeeper"),
    [
        ({}, True, False),
        ({"dual.commit.enabled": "false"}, True, False),
        ({"zookeeper.connect": "a:1"}, True, True),
        ({"zookeeper.connect": "a:1", "offsets.storage": "ADS"}, True, True),
        ({"zookeeper.connect": "a:1", "dual.commit.enabled": "false"}, True, False),
        ({"zookeeper.connect": "a:1", "offsets.storage": "zookeeper"}, False, True),
        ({"zookeeper.connect": "a:1", "offsets.storage": "ZooKeeper", "dual.commit.enabled": "false"}, False, True),
    ],
)
def test_where_offsets_are(settings: dict[str, str], log: bool, zookeeper: bool) -> None:
    assert BrokerConfig(settings).offset_stores() == (log, zookeeper)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_a_ratio_is_a_number(text: str) -> None:
    from barnabas.broker.settings.config import TOPIC

    with pytest.raises(ConfigError):
        TOPIC["min.cleanable.dirty.ratio"].parse(text)


def test_the_command_line_goes_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "p"
    file.write_text("num.partitions=3\nlog.dirs=/x\nlisteners=PLAINTEXT://a:1\nsome.key=1\n")
    config = load_config(str(file), str(tmp_path), ["127.0.0.1:0"], ["num.partitions=5"])
    assert (config["num.partitions"], config.data_dir, config.listeners[0].port) == (5, tmp_path, 0)
    assert config.unknown == ["some.key"]


# --- listeners --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_loopback_listener_is_there_on_both_families(start: Start, host: str) -> None:
    async with start(listeners=f"PLAINTEXT://{host}:0") as broker:
        for address in ("127.0.0.1", "::1"):
            try:
                stream = await trio.open_tcp_stream(address, broker.port)
            except OSError:
                assert address == "::1"
                pytest.skip("no IPv6 here")
            await stream.aclose()
        async with await broker.client() as client:
            told = (await client.ask(MetadataRequest(topics=[]))).brokers[0]
            assert (told.host, told.port) == (host, broker.port)


async def test_clients_are_told_the_advertised_address_of_their_listener(start: Start) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,OUTER://127.0.0.1:0",
        "advertised_listeners": "OUTER://kafka.example.org:9999",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,OUTER:PLAINTEXT",
    }
    async with start(**settings) as broker, await broker.client() as client:
        told = (await client.ask(DescribeClusterRequest(endpoint_type=1))).brokers[0]
        assert (told.host, told.port) == ("127.0.0.1", broker.port)
        assert broker.node.identity.advertised("OUTER") == ("kafka.example.org", 9999)


async def test_log_dirs_are_described_with_the_size_of_each_log(start: Start, tmp_path: Path) -> None:
    def size(folder: str) -> int:
        return sum(path.stat().st_size for path in (tmp_path / "data" / folder).glob("*.log"))

    async def described(client: Client, *topics: DescribableLogDirTopic) -> dict[str, list[tuple[int, int, int]]]:
        answer = await client.ask(DescribeLogDirsRequest(list(topics) or None))
        (told,) = answer.results
        assert (answer.error_code, told.error_code, told.log_dir) == (0, 0, str(tmp_path / "data"))
        assert 0 < told.usable_bytes < told.total_bytes
        return {
            topic.name: [(p.partition_index, p.partition_size, p.offset_lag) for p in topic.partitions]
            for topic in told.topics
        }

    async with start(log_segment_bytes="1024") as broker, await broker.client() as client:
        for topic in ("empty", "full"):
            await client.create_topic(topic, 2)
        for number in range(10):
            await client.produce("full", batch_of(b"%d" % number * 300), partition=1)
        told = await described(client)
        full = told["full"]
        assert told == {"empty": [(0, 0, 0), (1, 0, 0)], "full": full}
        asked = [DescribableLogDirTopic("full", [1, 7]), DescribableLogDirTopic("absent", [0])]
        assert await described(client, *asked) == {"full": full[1:]}
    assert full == [(0, 0, 0), (1, size("full-1"), 0)], "without the room for more that a broker keeps meanwhile"
    assert full[1][1] > 3000
    async with start() as broker, await broker.client() as client:
        assert await described(client) == {"empty": [(0, 0, 0), (1, 0, 0)], "full": full}
        assert not any(vnode.loaded for (topic, _), vnode in broker.node.vnodes.items() if topic == "full")


# --- mistakes, at the start of a process ------------------------------------------------------------------------------


def barnabas(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "barnabas", "serve", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=30
    )


def test_mistakes_are_one_line_and_exit_status_1(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    other = tmp_path / "other"
    other.mkdir()
    (other / "meta.properties").write_text("version=1\ncluster.id=theirs\nnode.id=1\n")
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / "meta.properties").write_text("version=1\ncluster.id=a\nnode.id=7\n")
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    port = taken.getsockname()[1]
    here = ["--listen", "127.0.0.1:0", "--data-dir"]
    cases = [
        ([*here, str(tmp_path / "file" / "data")], "cannot use the data directory"),
        ([*here, "/proc/barnabas"], "cannot use the data directory"),
        ([*here, str(other), "--override", "cluster.id=ours"], "belongs to cluster theirs, not ours"),
        ([*here, str(stranger)], "belongs to node 7, not 1"),
        (["--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "d")], f"Port {port} on 127.0.0.1 is in use"),
        (["--listen", "no.such.host.invalid:1", "--data-dir", str(tmp_path / "d")], "is not known"),
        (["--listen", "a..b:1", "--data-dir", str(tmp_path / "d")], "is not known"),
        ([*here, str(tmp_path / "d"), "--override", "num.partitions=x"], "Invalid value 'x' for num.partitions"),
        ([*here, str(tmp_path / "d"), "--override", "nonsense"], "expected key=value"),
        ([*here, str(tmp_path / "d"), "--config", str(tmp_path / "absent")], "Cannot read config file"),
    ]
    with taken:
        for arguments, said in cases:
            done = barnabas(*arguments)
            lines = done.stderr.splitlines()
            assert done.returncode == 1, (arguments, done)
            assert len(lines) == 1, lines
            assert lines[0].startswith("barnabas: ")
            assert said in lines[0]
    assert not (tmp_path / "d").exists()


class NoRoom(Io):
    """A disk without free space."""

    def pwritev(self, fd: int, parts: Sequence[BytesLike], position: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_disk_that_is_full_at_the_start_is_told_with_what_helps(start: Start) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with start(io_calls=NoRoom()):
            pass
    remedy = "No space left on device; make room on its disk, or name another with --data-dir"
    assert caught.group_contains(StorageError, match=remedy, depth=None)


def test_a_process_keeps_its_directory_to_itself_and_stops_cleanly(tmp_path: Path) -> None:
    arguments = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    running = subprocess.Popen(
        [sys.executable, "-m", "barnabas", "serve", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout
        assert running.stdout.readline().startswith("barnabas is ready on 127.0.0.1:")
        second = barnabas(*arguments)
        assert second.returncode == 1
        assert "is in use by another process" in second.stderr
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == 0
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    finally:
        running.kill()
        running.communicate()


# --- restarts ---------------------------------------------------------------------------------------------------------


async def test_topics_configs_and_records_outlive_a_restart(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t", 3, retention_ms="1234")
        assert (await client.produce("t", batch_of(b"a", b"b"), 2)).error_code == 0
        topic_id = broker.node.metadata.topics["t"].topic_id
        change = AlterConfigsResource(
            resource_type=2, resource_name="t", configs=[AlterableConfig(name="segment.bytes", value="2048")]
        )
        assert (await client.ask(IncrementalAlterConfigsRequest(resources=[change]))).responses[0].error_code == 0
        cluster = broker.node.identity.cluster_id
    async with start() as broker, await broker.client() as client:
        topic = broker.node.metadata.topics["t"]
        assert (topic.topic_id, len(topic.partitions), broker.node.identity.cluster_id) == (topic_id, 3, cluster)
        assert topic.configs == {"retention.ms": "1234", "segment.bytes": "2048"}
        assert broker.node.vnodes["t", 2].config.segment_bytes == 2048
        assert (await client.produce("t", batch_of(b"c"), 2)).base_offset == 2
        asked = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=["retention.ms"])
        (result,) = (await client.ask(DescribeConfigsRequest(resources=[asked]))).results
        assert [(c.name, c.value, c.config_source) for c in result.configs] == [("retention.ms", "1234", 1)]


async def test_a_producer_id_is_given_once_over_restarts(start: Start) -> None:
    seen: set[int] = set()
    for _ in range(3):
        async with start() as broker, await broker.client() as client:
            for _ in range(4):
                answer = await client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
                assert answer.producer_id not in seen
                seen.add(answer.producer_id)


async def test_two_who_reserve_producer_ids_at_once_get_different_blocks(start: Start) -> None:
    async with start() as broker:
        given: list[int] = []

        async def ask(ids: ProducerIds) -> None:
            given.append(await ids.next())

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask, ProducerIds(broker.node.topics))
        assert len(set(given)) == 3


async def test_a_stop_waits_for_a_topic_that_is_being_made(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        topics = [CreatableTopic(name=f"t{n}", num_partitions=20, replication_factor=1) for n in range(30)]
        await client.send(CreateTopicsRequest(topics=topics))
        with trio.fail_after(60):
            while not broker.node.metadata.topics:
                await trio.lowlevel.checkpoint()
        broker.node.stop()
        with trio.fail_after(60):
            await broker.node.stopped.wait()
    async with start() as broker:
        for topic in broker.node.metadata.topics.values():
            assert all((topic.name, index) in broker.node.vnodes for index in range(20))


# --- disks ------------------------------------------------------------------------------------------------------------


class FullDisk(Io):
    """Accepts no more bytes for paths that contain `word`, once it is `full`."""

    def __init__(self, word: str, number: int = errno.ENOSPC) -> None:
        self.word, self.number, self.full = word, number, False
        self._paths: dict[int, str] = {}

    def _check(self, path: str) -> None:
        if self.full and self.word in path:
            raise OSError(self.number, os.strerror(self.number), path)

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        if flags & os.O_CREAT or self.number == errno.EMFILE:
            self._check(path)
        fd = super().open(path, flags, mode)
        self._paths[fd] = path
        return fd

    def pwritev(self, fd: int, parts: object, position: int) -> int:
        self._check(self._paths[fd])
        return super().pwritev(fd, parts, position)  # type: ignore[arg-type]

    def mkdir(self, path: str) -> None:
        self._check(path)
        super().mkdir(path)


async def test_a_full_disk_refuses_appends_until_there_is_room(start: Start) -> None:
    disk = FullDisk("bad-0")
    async with start(io_calls=disk) as broker, await broker.client() as client:
        await client.create_topic("bad", 2)
        assert (await client.produce("bad", batch_of(b"kept"))).error_code == 0
        disk.full = True
        for _ in range(2):
            assert (await client.produce("bad", batch_of(b"x"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        found = await client.fetch("bad")
        assert (found.error_code, found.high_watermark) == (0, 1)
        assert (await client.produce("bad", batch_of(b"fine"), 1)).error_code == 0
        disk.full = False
        answer = await client.produce("bad", batch_of(b"again"))
        assert (answer.error_code, answer.base_offset) == (0, 1)
        assert broker.log.count("partition.full topic=bad partition=0 action=append") == 1
        assert broker.log.count("partition.has.room topic=bad partition=0") == 1
        assert "partition.offline" not in broker.log


async def test_a_failed_write_takes_one_partition_offline_with_a_line_and_a_restart_brings_it_back(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []
    monkeypatch.setattr(LocalVnode, "apply_retention", lambda vnode, _: looked_at.append(vnode.log_end_offset))
    disk = FullDisk("bad-0", errno.EIO)
    async with start(io_calls=disk, log_retention_check_interval_ms="20") as broker, await broker.client() as client:
        await client.create_topic("bad", 2)
        assert (await client.produce("bad", batch_of(b"kept"))).error_code == 0
        disk.full = True
        for _ in range(2):
            assert (await client.produce("bad", batch_of(b"x"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.fetch("bad")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.log.count("error partition.offline topic=bad partition=0 action=append") == 1
        assert (await client.produce("bad", batch_of(b"fine"), 1)).error_code == 0
        looked_at.clear()
        with trio.fail_after(60):  # retention continues for the remaining partitions
            while len(looked_at) < 4:
                await trio.lowlevel.checkpoint()
        assert (await client.produce("bad", batch_of(b"fine"), 1)).base_offset == 1
    async with start() as broker, await broker.client() as client:
        assert (await client.produce("bad", batch_of(b"y"))).base_offset == 1


async def test_a_checkpoint_that_cannot_be_written_does_not_stop_the_broker(start: Start) -> None:
    disk = FullDisk("offset-checkpoint")
    async with start(io_calls=disk) as broker, await broker.client() as client:
        await client.create_topic("t")
        disk.full = True
        told = trio.Event()
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                run = partial(broker.node.data_dir.run, checkpoint_interval=0.01, on_error=lambda _: told.set())
                nursery.start_soon(run)
                await told.wait()
                nursery.cancel_scope.cancel()
        assert (await client.produce("t", batch_of(b"x"))).error_code == 0


async def test_a_refused_deletion_of_records_writes_no_checkpoint(start: Start) -> None:
    disk = FullDisk("offset-checkpoint")
    async with start(io_calls=disk) as broker, await broker.client() as client:
        await client.create_topic("t")
        await client.produce("t", batch_of(b"x"))
        disk.full = True
        codes = []
        for offset in (5, 1):
            asked = DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, offset)])])
            codes.append((await client.ask(asked)).topics[0].partitions[0].error_code)
        assert codes == [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.KAFKA_STORAGE_ERROR]


async def test_a_topic_that_finds_no_room_is_not_half_there(start: Start) -> None:
    disk = FullDisk("/t-2")
    async with start(io_calls=disk) as broker, await broker.client() as client:
        disk.full = True
        asked = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=4, replication_factor=1)])
        assert (await client.ask(asked)).topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not broker.node.metadata.topics
        assert not [key for key in broker.node.vnodes if key[0] == "t"]
        disk.full = False
        assert (await client.ask(asked)).topics[0].error_code == 0
        assert (await client.produce("t", batch_of(b"x"), 2)).error_code == 0


@pytest.mark.parametrize(
    "left", ["", "version: 0\ntopic_id: iy39bIBE", "version: 0\ntopic_id: iy39bIBE0", "version: 0\ntopic_id: ###\n"]
)
async def test_a_folder_without_a_whole_topic_id(start: Start, tmp_path: Path, left: str) -> None:
    """A power loss may truncate the file with the topic's id. A topic with records is kept, an empty one removed."""
    async with start() as broker, await broker.client() as client:
        await client.create_topic("full")
        await client.create_topic("empty")
        await client.produce("full", batch_of(b"v"))
    shutil.rmtree(tmp_path / "data" / "__cluster_metadata-0")
    for name in ("full-0", "empty-0"):
        (tmp_path / "data" / name / "partition.metadata").write_text(left)
    async with start() as broker, await broker.client() as client:
        assert set(broker.node.metadata.topics) == {"full"}
        assert (await client.fetch("full")).records
        assert not (tmp_path / "data" / "empty-0").exists()


async def test_a_read_without_a_descriptor_may_be_tried_again(start: Start) -> None:
    disk = FullDisk("/t-0", errno.EMFILE)
    async with start(io_calls=disk) as broker, await broker.client() as client:
        await client.create_topic("t", segment_bytes="1024")
        for _ in range(4):
            await client.produce("t", batch_of(b"x" * 700))
        for segment in broker.node.data_dir.vnodes["t", 0].segments[:-1]:
            broker.node.data_dir.cache.forget(segment)
        disk.full = True
        assert (await client.fetch("t")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.full = False
        assert (await client.fetch("t")).records


async def test_a_large_topic_fits_the_metadata_log_whatever_the_limits_of_topics(start: Start) -> None:
    async with start(log_segment_bytes="1024", message_max_bytes="500") as broker, await broker.client() as client:
        await client.create_topic("t", 100)
    async with start() as broker:
        assert len(broker.node.metadata.topics["t"].partitions) == 100


def test_a_free_port_is_free_in_both_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """With port 0, the kernel chooses one for 127.0.0.1. If ::1 uses the same port, another one is tried."""
    from barnabas.broker.net import listening

    real, refused = listening._bind_one, list[int]()

    def bind(
        listener: Listener, family: socket.AddressFamily, host: str, port: int, *, optional: bool
    ) -> socket.socket | None:
        if host == "::1" and len(refused) < 2:
            refused.append(port)
            raise ConfigError("in use")
        return real(listener, family, host, port, optional=optional)

    monkeypatch.setattr(listening, "_bind_one", bind)
    bound = listening.bind(BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0"}))
    ((listener, sockets),) = bound
    try:
        assert len(refused) == 2
        assert {sock.getsockname()[1] for sock in sockets} == {listener.port}
    finally:
        listening.close(bound)


async def test_a_fault_of_our_own_ends_the_broker(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running broker with an internal error would let clients wait forever."""
    nodes = []

    async def live() -> None:
        async with start() as broker, await broker.client() as client:
            nodes.append(broker.node)
            await client.create_topic("t")
            monkeypatch.setattr(broker.node.flusher, "_start", lambda *_, **__: 1 / 0)
            await client.produce("t", batch_of(b"v"))

    with pytest.raises(ExceptionGroup) as caught:
        await live()
    assert caught.group_contains(ZeroDivisionError)
    assert nodes[0].stopped.is_set()
    async with start() as broker, await broker.client() as client:
        await client.produce("t", batch_of(b"w"))
