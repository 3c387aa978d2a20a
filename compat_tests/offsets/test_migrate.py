"""`barnabas offsets migrate` as an operator types it: forward, back, refused, killed, and with many groups."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.client.admin import set_broker_config
from barnabas.client.cluster import Cluster
from barnabas.client.groups import Committed, commit, committed
from barnabas.client.offsets import LATEST, list_offsets
from barnabas.client.produce import Batch, produce
from barnabas.wire.batch import Record, build_batch
from compat_tests.broker_process import Barnabas
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.driver import wait_for_records
from compat_tests.offsets.commands import Znodes, new_topic, offsets
from compat_tests.offsets.conftest import Broker, one_process
from compat_tests.offsets.zookeeper import stopped
from compat_tests.tools import ROOT
from compat_tests.waiting import until

GROUPS = [f"group-{n}" for n in range(8)]
GROUPS_TO_COPY = 300  # enough groups to take some time


def fill(server: Barnabas, partitions: int = 3, topic: str = "orders", records: int = 300) -> None:
    """Write 300 records to each partition of `orders`."""
    batch = build_batch([Record(None, b"%d" % n, 1_700_000_000_000) for n in range(records)])
    with Cluster(server.address) as cluster:
        for partition in range(partitions):
            assert produce(cluster, [Batch(topic, partition, batch)], acks=-1)[topic, partition].error_code == 0


def in_log(server: Barnabas, group: str) -> dict[int, int]:
    with Cluster(server.address) as cluster:
        return {partition: position.offset for (_, partition), position in committed(cluster, group).items()}


def words_of(server: Barnabas, znodes: Znodes, journal: Path, *more: str) -> tuple[str, ...]:
    return ("migrate", "-b", server.address, "--zookeeper", znodes.connect, "--journal", str(journal), *more)


@pytest.fixture
def server(broker: Broker) -> Barnabas:
    made = broker(dual_commit_enabled="false", barnabas_zookeeper_timeout_ms="5000")
    fill(made)
    return made


def test_all_groups_forward_and_back(server: Barnabas, znodes: Znodes, tmp_path: Path) -> None:
    for number, group in enumerate(GROUPS):
        for partition in range(3):
            znodes.put(group, partition, number + partition)
    words = words_of(server, znodes, tmp_path / "journal")
    _, said = offsets(*words, "--dry-run")
    assert "step 1: checked, 8 group(s), 24 offset(s)" in said
    assert in_log(server, GROUPS[0]) == {}
    _, said = offsets(*words)
    assert [line[:7] for line in said.splitlines() if line.startswith("step")] == [f"step {n}:" for n in (1, 2, 3, 4)]
    for number, group in enumerate(GROUPS):
        assert in_log(server, group) == {partition: number + partition for partition in range(3)}
    _, said = offsets(*words)
    assert said == "nothing to do: the offsets of 8 group(s) are in kafka alone\n"
    with Cluster(server.address) as cluster:
        commit(cluster, GROUPS[3], {("orders", 1): Committed(200)})
    assert znodes.get(GROUPS[3], 1) == 4, "dual commit is off"
    _, said = offsets(*words, "--to", "zookeeper")
    assert "the log is ahead of ZooKeeper for 1 offset(s): they go there first" in said
    assert znodes.get(GROUPS[3], 1) == 200
    _, said = offsets(*words, "--to", "zookeeper")
    assert said.startswith("nothing to do")
    znodes.put(GROUPS[3], 1, 210)
    _, said = offsets(*words)
    assert in_log(server, GROUPS[3])[1] == 210
    _, said = offsets("undo", str(tmp_path / "journal"), cwd=tmp_path, status=None)
    assert in_log(server, GROUPS[0]) == {}, "there was nothing before"


def test_what_speaks_against_it_is_said_before_anything_changes(
    server: Barnabas, znodes: Znodes, tmp_path: Path
) -> None:
    znodes.put("good", 0, 5)
    znodes.put("far", 0, 9999)
    znodes.put("text", 0, b"text")
    words = words_of(server, znodes, tmp_path / "journal")
    _, said = offsets(*words, status=1)
    assert "group far, orders-0: 9999 is beyond the end of the log, 300" in said
    assert "'text' is not a number" in said
    _, said = offsets(*words, "--group", "good", status=1)
    assert "2 other group(s) (far, text): they would lose their offsets" in said
    shown, _ = offsets("status", "-b", server.address)
    assert "dual.commit.enabled=false" in shown
    offsets(*words, "--group", "good", "--leave-others")
    assert in_log(server, "good") == {0: 5}


def test_a_group_that_still_runs_in_zookeeper_keeps_dual_commit_on(
    server: Barnabas, znodes: Znodes, tmp_path: Path
) -> None:
    znodes.put("runs", 0, 5)
    znodes.client.create("/consumers/runs/ids/runs_host-1", b"", makepath=True, ephemeral=True)
    words = words_of(server, znodes, tmp_path / "journal")
    _, said = offsets(*words, status=1)
    assert "group runs: it has members that commit to ZooKeeper alone" in said
    assert "dual commit stays on" in said
    znodes.put("runs", 0, 7)
    znodes.client.delete("/consumers/runs/ids/runs_host-1")
    offsets(*words)
    assert in_log(server, "runs") == {0: 7}


def test_another_chroot_than_the_broker_s_is_refused(server: Barnabas, znodes: Znodes, tmp_path: Path) -> None:
    znodes.client.ensure_path("/other")
    words = ("migrate", "-b", server.address, "--zookeeper", f"{znodes.connect}/other")
    _, said = offsets(*words, status=1)
    assert said.endswith(f"has zookeeper.connect={znodes.connect}: that is another chroot\n")


def test_a_broker_without_zookeeper_is_told_so(znodes: Znodes, tmp_path: Path) -> None:
    with Barnabas(tmp_path) as server:
        _, said = offsets(*words_of(server, znodes, tmp_path / "journal"), status=1)
        assert f"start it with zookeeper.connect={znodes.connect} in its config file" in said
        shown, _ = offsets("status", "-b", server.address)
        assert "in the log alone" in shown


def killed(words: tuple[str, ...], after: float, cwd: Path) -> bool:
    """Start a command and kill it `after` seconds; returns whether it was still running."""
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", "offsets", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        process.kill()
    return process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("kills", [6, pytest.param(50, marks=pytest.mark.slow)])
def test_a_kill_at_any_moment_is_taken_up_again(server: Barnabas, znodes: Znodes, tmp_path: Path, kills: int) -> None:
    moment = random.Random(kills)
    for number, group in enumerate(GROUPS):
        for partition in range(3):
            znodes.put(group, partition, number + partition)
    words = words_of(server, znodes, tmp_path / "journal")
    began = time.monotonic()
    offsets(*words)
    took = time.monotonic() - began
    expected = {group: in_log(server, group) for group in GROUPS}
    directions = ("zookeeper", "kafka")
    hit = 0
    for number in range(kills):
        to = directions[number % 2]
        with Cluster(server.address) as cluster:  # offsets to move
            for group in GROUPS:
                at = expected[group][0] + 1
                if to == "zookeeper":
                    assert not any(commit(cluster, group, {("orders", 0): Committed(at)}).values())
                else:
                    znodes.put(group, 0, at)
                expected[group][0] = at
        hit += killed((*words, "--to", to), moment.uniform(took * 0.2, took), tmp_path)
        offsets(*words, "--to", to)
        for group in GROUPS:
            assert {partition: znodes.get(group, partition) for partition in range(3)} == expected[group]
            assert in_log(server, group) == expected[group]
    assert hit, "some were killed before their end"


# --- faults -----------------------------------------------------------------------------------------------------------


@one_process
def test_the_broker_s_session_expires(broker: Broker, znodes: Znodes) -> None:
    """The broker goes on in a new session."""
    server = broker(zookeeper_session_timeout_ms="1000", barnabas_zookeeper_timeout_ms="1000")
    with Cluster(server.address) as cluster:
        before = znodes.server.sessions()
        assert not any(commit(cluster, "g", {("orders", 0): Committed(5)}).values())
        (own,) = until_new(znodes, before)
        assert server.process is not None
        with stopped(server.process):
            until(lambda: own not in znodes.server.sessions(), "ZooKeeper has ended the session")
        assert not any(commit(cluster, "g", {("orders", 0): Committed(6)}).values())
        until(lambda: znodes.get("g") == 6, "the new session wrote it")
        assert {place: at.offset for place, at in committed(cluster, "g").items()} == {("orders", 0): 6}


@pytest.mark.slow
def test_the_command_s_session_expires_in_the_middle(server: Barnabas, znodes: Znodes, tmp_path: Path) -> None:
    """The command reports it, and a second run finishes the move."""
    with Cluster(server.address) as cluster:
        for number in range(GROUPS_TO_COPY):
            commit(cluster, f"group-{number}", {("orders", 0): Committed(number)})
    journal = tmp_path / "journal"
    copy = ("copy", "--from", f"kafka://{server.address}", "--to", znodes.address, "--journal", str(journal))
    before = znodes.server.sessions()
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", "offsets", *copy], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    while not (journal.exists() and journal.read_bytes().count(b"\n") > 5):
        assert process.poll() is None, "it is in the middle"
    with stopped(process):
        (own,) = until_new(znodes, before)
        until(lambda: own not in znodes.server.sessions(), "ZooKeeper has ended the session")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "run it again" in said
    _, said = offsets(*copy)
    assert f"{GROUPS_TO_COPY} group(s), {GROUPS_TO_COPY} partition(s) copied" in said
    assert [znodes.get(f"group-{number}") for number in range(GROUPS_TO_COPY)] == list(range(GROUPS_TO_COPY))
    offsets("undo", str(journal), "--to", znodes.address, cwd=tmp_path)
    assert not any(znodes.get(f"group-{number}") for number in range(GROUPS_TO_COPY))


def until_new(znodes: Znodes, before: set[str]) -> set[str]:
    """Wait for sessions besides those before; returns the new ones."""
    until(lambda: znodes.server.sessions() - before, "a new session")
    return znodes.server.sessions() - before


def test_a_full_disk_under_the_journal_stops_the_command_before_it_changes_more(
    server: Barnabas, znodes: Znodes, tmp_path: Path
) -> None:
    for number in range(50):
        znodes.put(f"group-{number}", 0, number)
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", place], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no small file system can be mounted: {made.stderr.decode().strip()}")
    try:
        journal = place / "journal"
        copy = ("copy", "--from", znodes.address, "--to", f"kafka://{server.address}", "--journal")
        _, said = offsets(*copy, str(journal), status=1)
        assert "No space left on device: nothing more was changed" in said
        noted = journal.read_text()
        written = [number for number in range(50) if in_log(server, f"group-{number}")]
        assert 0 < len(written) < 50
        assert all(f'"group-{number}"' in noted for number in written), "what was changed can be put back"
        offsets(*copy, str(tmp_path / "journal"))
        assert [in_log(server, f"group-{number}") for number in range(50)] == [{0: number} for number in range(50)]
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.slow
def test_a_group_with_too_many_znodes_is_refused_and_the_others_are_done(znodes: Znodes) -> None:
    znodes.put("small", 0, 5)
    znodes.fill({("huge", "orders", number): 1 for number in range(100_001)})
    shown, said = offsets("export", "--from", znodes.address, "--format", "zk-tool", status=1)
    assert shown == "/consumers/small/offsets/orders/0:5\n"
    assert "there are 100001 positions: this reads groups of at most 100000" in said


@pytest.mark.slow
def test_many_groups_move_while_some_of_them_read(
    broker: Broker, znodes: Znodes, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """200 groups with 50 partitions each; five groups have a consumer that reads all the time."""
    server = broker(dual_commit_enabled="false", barnabas_zookeeper_timeout_ms="5000")
    new_topic(server, "wide", 50)
    fill(server, 50, "wide", 20)
    groups = [f"group-{number}" for number in range(200)]
    znodes.fill({(group, "wide", partition): 10 for group in groups for partition in range(50)})
    with Cluster(server.address) as cluster:
        set_broker_config(cluster, {"dual.commit.enabled": "true"})
    client = ConfluentDriver(server.address)
    members = [client.join(group, "wide") for group in groups[:5]]
    for member in members:
        wait_for_records(member, 500)
    words = words_of(server, znodes, tmp_path / "journal", "--timeout", "120")
    for to in ("kafka", "zookeeper"):
        began = time.monotonic()
        with subprocess.Popen(
            [sys.executable, "-m", "barnabas", "offsets", *words, "--to", to],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            while process.poll() is None:
                fill(server, 50, "wide", 1)
            assert process.stderr is not None
            said = process.stderr.read()
        assert process.returncode == 0, said
        record_property(to, time.monotonic() - began)
        print(f"to {to}: {time.monotonic() - began:.1f} s")
        print(said)
        with Cluster(server.address) as cluster:
            end = list_offsets(cluster, [("wide", partition) for partition in range(50)], LATEST)
        for member in members:
            wait_for_records(member, sum(end.values()) - 500)
    for member in members:
        member.close()
        seen = sorted((record.partition, record.offset) for record in member.records)
        assert seen == [(p, at) for p in range(50) for at in range(10, end["wide", p])], "each record once"
    for group in groups[:5]:
        assert [znodes.get(group, p, "wide") for p in range(50)] == [end["wide", p] for p in range(50)]
    assert all(znodes.get(group, p, "wide") == 10 for group in groups[5:] for p in range(0, 50, 7))
