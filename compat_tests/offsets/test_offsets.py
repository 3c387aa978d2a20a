"""`barnabas offsets` as an operator types it: ZooKeeper, Apache Kafka and barnabas, there and back."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.groups import Committed, commit, committed
from compat_tests.apache_kafka import ApacheKafka
from compat_tests.broker_process import Barnabas, Server
from compat_tests.offsets.commands import Znodes, command, offsets, place
from compat_tests.offsets.zookeeper import ZooKeeper
from compat_tests.tools import ROOT, missing
from compat_tests.waiting import until

PARTITIONS = 3


@pytest.fixture(scope="module", params=["barnabas", pytest.param("kafka", marks=pytest.mark.long)])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if request.param == "kafka" and (why := missing("java")):
        pytest.skip(why)
    made = {"barnabas": Barnabas, "kafka": ApacheKafka}[request.param]
    with made(tmp_path_factory.mktemp(request.param), {"num.partitions": str(PARTITIONS)}) as server:
        command("topics", "create", "orders", "--partitions", str(PARTITIONS), "-b", server.address)
        lines = b"".join(b"%d\n" % n for n in range(300))
        for partition in range(PARTITIONS):
            command("produce", "orders", "--partition", str(partition), "-b", server.address, given=lines)
        yield server


@pytest.fixture
def chroot(znodes: Znodes) -> tuple[str, Any]:
    """A chroot for this test: its address, and a client below it."""
    return znodes.address, znodes.client


def put(client: Any, group: str, values: dict[int, bytes], topic: str = "orders") -> None:
    for partition, value in values.items():
        client.create(f"/consumers/{group}/offsets/{topic}/{partition}", value, makepath=True)


def kept(server: Server, group: str) -> dict[int, int]:
    """The committed offsets of a group in a cluster."""
    with Cluster(server.address) as cluster:
        return {partition: position.offset for (_, partition), position in committed(cluster, group).items()}


def keep(server: Server, group: str, positions: dict[int, int], metadata: str = "") -> None:
    with Cluster(server.address) as cluster:
        told = commit(cluster, group, {("orders", p): Committed(at, metadata) for p, at in positions.items()})
        assert not any(told.values())


Chroot = tuple[str, Any]


def test_from_zookeeper_to_a_cluster_and_back(kafka: Server, chroot: Chroot, tmp_path: Path) -> None:
    address, client = chroot
    put(client, "billing", {0: b"100", 1: b"0", 2: b"300"})
    shown, _ = offsets("copy", "--from", address, "--to", place(kafka), "--dry-run", "--group", "billing")
    assert kept(kafka, "billing") == {}
    assert re.search(r"billing +orders +2 +- +300 +set", shown)
    journal = str(tmp_path / "journal")
    _, said = offsets("copy", "--from", address, "--to", place(kafka), "--journal", journal)
    assert "1 group(s), 3 partition(s) copied: 3 set" in said
    assert kept(kafka, "billing") == {0: 100, 1: 0, 2: 300}
    _, said = offsets("verify", "--from", address, "--to", place(kafka))
    assert "compared 3 offset(s) of 1 group(s): 0 differ" in said
    _, said = offsets("copy", "--from", address, "--to", place(kafka), "--journal", journal)
    assert "3 is there" in said, "a second run changes nothing"

    keep(kafka, "billing", {0: 150, 1: 1})
    _, said = offsets("copy", "--from", place(kafka), "--to", address, "--group", "billing", "--journal", journal + "2")
    assert "2 set, 1 is there" in said
    assert [client.get(f"/consumers/billing/offsets/orders/{p}")[0] for p in range(3)] == [b"150", b"1", b"300"]
    offsets("undo", journal + "2", cwd=tmp_path)
    assert [client.get(f"/consumers/billing/offsets/orders/{p}")[0] for p in range(3)] == [b"100", b"0", b"300"]

    keep(kafka, "billing", {0: 100, 1: 0})
    offsets("undo", journal, "--journal", journal + "3")
    assert kept(kafka, "billing") == {}, "there was nothing before"


def test_positions_move_forward_only_unless_the_copy_is_exact(kafka: Server, chroot: Chroot, tmp_path: Path) -> None:
    address, client = chroot
    put(client, "forward", {0: b"10", 1: b"200"})
    keep(kafka, "forward", {0: 50, 1: 100})
    journal = str(tmp_path / "journal")
    _, said = offsets("copy", "--from", address, "--to", place(kafka), "--group", "forward", "--journal", journal)
    assert "1 set, 1 ahead there" in said
    assert kept(kafka, "forward") == {0: 50, 1: 200}
    offsets("copy", "--from", address, "--to", place(kafka), "--group", "forward", "--exact", "--journal", journal)
    assert kept(kafka, "forward") == {0: 10, 1: 200}
    offsets("undo", journal, cwd=tmp_path)
    assert kept(kafka, "forward") == {0: 50, 1: 100}, "one journal of two runs leads back to the beginning"


def test_what_does_not_fit_the_logs_there_is_told_and_the_rest_is_done(
    kafka: Server, chroot: Chroot, tmp_path: Path
) -> None:
    address, client = chroot
    put(client, "odd", {0: b"10", 1: b"301", 7: b"5"})
    put(client, "odd", {0: b"1"}, topic="unknown")
    words = ("copy", "--from", address, "--to", place(kafka), "--group", "odd", "--journal", str(tmp_path / "j"))
    _, said = offsets(*words, status=1)
    assert "group odd, orders-1: 301 is beyond the end of the log, 300" in said
    assert "group odd, orders-7: there is no such partition there" in said
    assert "group odd, unknown-0: there is no such partition there" in said
    assert kept(kafka, "odd") == {0: 10}
    offsets(*words, "--any-range", status=1)
    assert kept(kafka, "odd") == {0: 10, 1: 301}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"", "'' is not a number"),
        (b"-1", "'-1' is not a number"),
        (b" 5", "' 5' is not a number"),
        (b"5\n", r"'5\n' is not a number"),
        (b"1_0", "'1_0' is not a number"),
        (b"9223372036854775808", "9223372036854775808 is too large"),
        (b"\xff\x00", r"is not a number"),
    ],
)
def test_a_znode_that_is_no_offset_is_named_and_the_others_count(chroot: Chroot, value: bytes, told: str) -> None:
    address, client = chroot
    put(client, "g", {0: value, 1: b"7"})
    shown, said = offsets("export", "--from", address, "--format", "zk-tool", status=1)
    assert shown == "/consumers/g/offsets/orders/1:7\n"
    assert "/consumers/g/offsets/orders/0: " in said
    assert told in said


def test_names_that_are_odd(chroot: Chroot) -> None:
    address, client = chroot
    put(client, "a:b", {0: b"1"})
    put(client, "gruppe-ä", {0: b"2"})
    client.create("/consumers/old/offsets/orders/1-0", b"5", makepath=True)
    client.create("/consumers/idle", b"", makepath=True)
    shown, said = offsets("export", "--from", address, "--format", "zk-tool", status=1)
    assert shown == "/consumers/a:b/offsets/orders/0:1\n/consumers/gruppe-ä/offsets/orders/0:2\n"
    assert "Kafka 0.7 named them BROKER-PARTITION" in said


def test_a_group_that_runs_is_refused(kafka: Server, chroot: Chroot, tmp_path: Path) -> None:
    address, client = chroot
    put(client, "runs", {0: b"1"})
    client.create("/consumers/runs/ids/runs_host-1", b"", makepath=True, ephemeral=True)
    words = ("copy", "--from", address, "--to", place(kafka), "--group", "runs", "--journal", str(tmp_path / "j"))
    _, said = offsets(*words, status=1)
    assert "it has 1 member(s) in zookeeper://" in said
    assert kept(kafka, "runs") == {}
    offsets(*words, "--live")
    assert kept(kafka, "runs") == {0: 1}


def test_a_group_with_members_in_the_cluster_is_refused(kafka: Server, chroot: Chroot, tmp_path: Path) -> None:
    address, client = chroot
    put(client, "busy", {0: b"1"})
    reading = [sys.executable, "-m", "barnabas", "consume", "orders", "--group", "busy", "-b", kafka.address]
    consumer = subprocess.Popen(reading, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        until(
            lambda: "Stable" in command("groups", "describe", "busy", "-b", kafka.address, status=None)[0], "it reads"
        )
        words = ("copy", "--from", address, "--to", place(kafka), "--group", "busy", "--journal", str(tmp_path / "j"))
        _, said = offsets(*words, status=1)
        assert "it has 1 member(s) in kafka://" in said
    finally:
        consumer.send_signal(signal.SIGINT)
        consumer.wait(120)


def test_files_of_each_format_come_back_as_they_were(kafka: Server, tmp_path: Path) -> None:
    keep(kafka, "filed", {0: 10, 2: 30}, metadata="note")
    for form in ("json", "zk-tool", "csv"):
        file = tmp_path / form
        offsets("export", "--from", place(kafka), "--group", "filed", "--format", form, str(file))
        keep(kafka, "filed", {0: 1, 2: 1})
        offsets("import", "--to", place(kafka), str(file), "--journal", str(tmp_path / f"{form}.journal"))
        assert kept(kafka, "filed") == {0: 10, 2: 30}
        _, said = offsets("verify", "--to", place(kafka), str(file))
        assert "0 differ" in said
        with Cluster(kafka.address) as cluster:
            found = committed(cluster, "filed")["orders", 0]
        assert found.metadata == ("note" if form == "json" else ""), "the others have no room for it"
    assert (tmp_path / "zk-tool").read_bytes() == (
        b"/consumers/filed/offsets/orders/0:10\n/consumers/filed/offsets/orders/2:30\n"
    )
    assert (tmp_path / "csv").read_bytes() == b"filed,orders,0,10\nfiled,orders,2,30\n"
    assert json.loads((tmp_path / "json").read_text())["groups"]["filed"][0]["metadata"] == "note"


def test_differences_are_shown(kafka: Server, chroot: Chroot) -> None:
    address, client = chroot
    put(client, "differs", {0: b"5", 1: b"6"})
    keep(kafka, "differs", {0: 5})
    shown, said = offsets("verify", "--from", address, "--to", place(kafka), status=1)
    assert re.search(r"differs +orders +1 +6 +-", shown)
    assert "compared 2 offset(s) of 1 group(s): 1 differ" in said


def test_undo_leaves_what_somebody_has_committed_since(kafka: Server, chroot: Chroot, tmp_path: Path) -> None:
    address, client = chroot
    put(client, "since", {0: b"5", 1: b"6"})
    journal = str(tmp_path / "journal")
    offsets("copy", "--from", address, "--to", place(kafka), "--group", "since", "--journal", journal)
    keep(kafka, "since", {0: 20})
    _, said = offsets("undo", journal, status=1, cwd=tmp_path)
    assert "20 is there, which no change of the journal wrote" in said
    assert kept(kafka, "since") == {0: 20}


def test_credentials_open_what_is_protected(chroot: Chroot, zookeeper: ZooKeeper) -> None:
    from kazoo.security import make_digest_acl

    address, client = chroot
    acl = [make_digest_acl("mover", "se:cret", all=True)]
    client.ensure_path("/consumers/guarded/offsets/orders")
    client.create("/consumers/guarded/offsets/orders/0", b"5", acl=acl)
    client.create("/consumers/guarded/offsets/orders/1", b"6")
    shown, said = offsets("export", "--from", address, "--format", "zk-tool", status=1)
    assert shown == "/consumers/guarded/offsets/orders/1:6\n"
    assert "/orders/0: the credentials do not allow it" in said
    with_them = address.replace("zookeeper://", "zookeeper://mover:se%3Acret@")
    shown, said = offsets("export", "--from", with_them, "--format", "zk-tool")
    assert "/orders/0:5\n" in shown
    assert "se:cret" not in said


def test_places_that_are_not_there(zookeeper: ZooKeeper, kafka: Server, tmp_path: Path) -> None:
    def told(*words: str) -> str:
        _, said = offsets(*words, status=1)
        assert said.count("\n") == 1, said
        return said

    assert "has no /nowhere: create it, or mend" in told("export", "--from", zookeeper.place("/nowhere"))
    assert "does not answer at 127.0.0.1:1" in told("export", "--from", "zookeeper://127.0.0.1:1")
    assert "expected zookeeper://HOST:PORT/CHROOT or kafka://HOST:PORT" in told("export", "--from", "redis://h")
    (tmp_path / "x").write_bytes(b"\xff")
    assert "byte 0 is not UTF-8" in told("import", "--to", place(kafka), str(tmp_path / "x"))
    assert "No such file" in told("import", "--to", place(kafka), str(tmp_path / "missing"))
    assert "is not a journal of barnabas offsets" in told("undo", str(tmp_path / "x"))


def test_a_consumer_goes_on_at_exactly_the_next_record(kafka: Server, chroot: Chroot, tmp_path: Path) -> None:
    address, client = chroot
    put(client, "moved", {0: b"298", 1: b"300", 2: b"299"})
    offsets("copy", "--from", address, "--to", place(kafka), "--group", "moved", "--journal", str(tmp_path / "j"))
    words = ("consume", "orders", "--group", "moved", "--exit", "--format", "%p:%o %s\\n", "-b", kafka.address)
    assert sorted(command(*words)[0].splitlines()) == ["0:298 298", "0:299 299", "2:299 299"]
    offsets("copy", "--from", place(kafka), "--to", address, "--group", "moved", "--journal", str(tmp_path / "k"))
    assert [client.get(f"/consumers/moved/offsets/orders/{p}")[0] for p in range(3)] == [b"300"] * 3


def killed_at(words: list[str], when: Callable[[], bool], cwd: Path) -> None:
    """Run a command and kill it when `when()` holds, if it has not ended before."""
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", "offsets", *words], cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until(lambda: when() or process.poll() is not None, "the moment has come")
    process.kill()
    process.wait()


def test_a_kill_between_any_two_groups_is_taken_up_again(kafka: Server, chroot: Chroot, tmp_path: Path) -> None:
    """The journal has every write; the same command finishes the copy, and undo restores the first state."""
    address, client = chroot
    for number in range(8):
        put(client, f"many-{number}", {p: b"%d" % (number + p) for p in range(PARTITIONS)})
    journal = tmp_path / "journal"
    words = ["copy", "--from", address, "--to", place(kafka), "--journal", str(journal)]

    def noted() -> int:
        return journal.read_bytes().count(b"\n") if journal.exists() else 0

    for seen in (1, 7, 13):
        killed_at(words, lambda seen=seen: noted() >= seen, tmp_path)  # type: ignore[misc]
    _, said = offsets(*words)
    assert "8 group(s), 24 partition(s) copied" in said
    for number in range(8):
        assert kept(kafka, f"many-{number}") == {p: number + p for p in range(PARTITIONS)}
    offsets("undo", str(journal), cwd=tmp_path)
    assert not any(kept(kafka, f"many-{number}") for number in range(8))


def test_zookeeper_that_dies_in_the_middle(zookeeper: ZooKeeper, kafka: Server, chroot: Chroot, tmp_path: Path) -> None:
    """The command reports it, and a second run finishes the copy."""
    address, _ = chroot
    keep(kafka, "survivor", {0: 10, 1: 20})
    words = ("copy", "--from", place(kafka), "--to", address, "--group", "survivor", "--journal", str(tmp_path / "j"))
    zookeeper.kill()
    _, said = offsets(*words, status=1)
    assert "does not answer" in said
    zookeeper.start()
    offsets(*words)
    shown, _ = offsets("export", "--from", address, "--group", "survivor", "--format", "zk-tool")
    assert shown == "/consumers/survivor/offsets/orders/0:10\n/consumers/survivor/offsets/orders/1:20\n"
