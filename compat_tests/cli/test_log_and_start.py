"""A broker as an operator sees it: log lines that no client can forge, a quiet start, and a clean stop."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from barnabas.client.cluster import TRANSACTION, Cluster
from barnabas.client.connection import Address, Connection
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from compat_tests.broker_process import Barnabas
from compat_tests.tools import ROOT
from compat_tests.waiting import until

LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (debug|info|warning|error) [a-z_.]+"
    r"( [\w.]+=(\"(\\.|[^\"\\])*\"|[^\s\"]*))*"
)
LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
EVIL = "g\n2026-01-01T00:00:00.000Z error forged\x1b[2J\r\u2028\u202e"


def test_no_client_forges_a_line_of_the_log(tmp_path: Path) -> None:
    with Barnabas(tmp_path) as broker:
        cluster = Cluster(broker.address)
        wire = cluster.coordinator(EVIL)
        join = JoinGroupRequest(
            group_id=EVIL,
            session_timeout_ms=10000,
            rebalance_timeout_ms=10000,
            protocol_type="consumer",
            group_instance_id=None,
            protocols=[JoinGroupRequestProtocol("range", b"")],
        )
        while (joined := wire.ask(join, JoinGroupResponse, version=3)).error_code in LOADING:
            pass
        assert joined.error_code == 0
        wire.ask(SyncGroupRequest(EVIL, joined.generation_id, joined.member_id), SyncGroupResponse, version=3)
        gone = MemberIdentity(member_id=joined.member_id, reason=EVIL + "x" * 20000)
        wire.ask(LeaveGroupRequest(group_id=EVIL, members=[gone]), LeaveGroupResponse, version=5)
        of_id = cluster.again(lambda: cluster.find_coordinator(EVIL, TRANSACTION))
        of_id.ask(InitProducerIdRequest(transactional_id=EVIL, transaction_timeout_ms=1000), InitProducerIdResponse)
        configs = [CreatableTopicConfig("retention.ms", EVIL), CreatableTopicConfig(EVIL, "1")]
        wire.ask(CreateTopicsRequest([CreatableTopic(EVIL, 1, 1, [], configs)], 1000), CreateTopicsResponse)
        cluster.__exit__()
        until(lambda: "leaves" in broker.log_file.read_text(), "the coordinator has told of it")
        assert broker.stop() == 0
        told = [line for line in broker.log_file.read_text().split("\n") if not line.startswith("barnabas is ready")]
    assert [line for line in told if line and not LINE.fullmatch(line)] == []
    assert any(re.search(r"info groupcoord.classic.join_barrier .*message=.*rebalance", line) for line in told)
    assert max(map(len, told)) < 10000
    assert broker.errors() == []


def test_a_start_tells_of_the_partitions_that_hold_groups_only(tmp_path: Path) -> None:
    with Barnabas(tmp_path) as broker, Cluster(broker.address) as cluster:
        commit = OffsetCommitRequest(
            group_id="g", topics=[OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 7)])]
        )
        wire = cluster.coordinator("g")
        create = CreateTopicsRequest([CreatableTopic("t", 1, 1, [], [])], 1000)
        assert wire.ask(create, CreateTopicsResponse).topics[0].error_code == 0
        answer = wire.ask(commit, OffsetCommitResponse, version=8)
        assert answer.topics[0].partitions[0].error_code == 0
        assert "loaded" not in broker.log_file.read_text()
        assert broker.stop() == 0
        broker.start()
        until(lambda: "loaded" in broker.log_file.read_text(), "the group's partition is loaded")
        assert broker.stop() == 0
        (loaded,) = [line for line in broker.log_file.read_text().splitlines() if "loaded" in line]
        assert "loaded: 1 groups, 1 offsets" in loaded


STOCK = """\
# The settings that Kafka 4 comes with, for one node.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:{quorum}
listeners=PLAINTEXT://:{clients},CONTROLLER://:{quorum}
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:{clients},CONTROLLER://localhost:{quorum}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
    SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={logs}
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class Configured(Barnabas):
    """A broker that is started with only a properties file, or by another command."""

    def __init__(self, folder: Path, config: Path | None = None, before: tuple[str, ...] = ()) -> None:
        super().__init__(folder)
        self.config, self.before = config, before

    def command(self) -> list[str]:
        if self.config is None:
            return [*self.before, *super().command()]
        return [sys.executable, "-m", "barnabas", "serve", "--config", str(self.config)]


def test_the_settings_that_kafka_comes_with_start_quietly(tmp_path: Path) -> None:
    quorum, config = free_port(), tmp_path / "server.properties"
    config.write_text(STOCK.format(clients=free_port(), quorum=quorum, logs=tmp_path / "data"))
    with Configured(tmp_path / "server", config) as broker:
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", quorum), 5):
            pass
        told = subprocess.run(
            [sys.executable, "-m", "barnabas", "topics", "create", "orders", "-b", broker.address],
            capture_output=True,
            cwd=ROOT,
            timeout=120,
        )
        assert told.stdout == b"Created topic orders with 1 partition(s).\n"
        assert broker.stop() == 0
    lines = broker.log_file.read_text().splitlines()
    (one,) = [line for line in lines if " config." in line]
    assert " info config.unused " in one
    assert "num.network.threads" in one
    assert broker.errors() == []


def _in_a_terminal() -> None:
    """Give a new process the terminal of its standard input, and SIGHUP's default action, which nohup removes."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_closed_terminal_stops_the_broker_cleanly(tmp_path: Path) -> None:
    """The kernel sends SIGHUP when the terminal is closed; from then on, writing to it fails."""
    data_dir, (terminal, inner) = tmp_path / "data", pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", "serve", "--listen", "127.0.0.1:0", "--data-dir", str(data_dir)],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=_in_a_terminal,
    )
    os.close(inner)
    try:
        shown = b""
        while b"barnabas is ready" not in shown:
            shown += os.read(terminal, 4096)
        os.close(terminal)
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()
    assert (data_dir / ".kafka_cleanshutdown").exists()


def test_under_nohup_the_broker_outlives_its_terminal(tmp_path: Path) -> None:
    with Configured(tmp_path, before=("nohup",)) as broker:
        assert broker.process
        broker.process.send_signal(signal.SIGHUP)
        Connection(Address("127.0.0.1", broker.port)).close()
        assert broker.stop() == 0
        told = broker.log_file.read_text()
    assert "SIGHUP" not in told
    assert "stopping signal=SIGTERM" in told
