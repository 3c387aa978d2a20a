"""Apache Kafka's tools that no scenario uses: an operator runs them against a broker, or on its files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from barnabas.wire.batch import HEADER_SIZE
from compat_tests.broker_process import Server
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.conftest import NewServer
from compat_tests.driver import CODECS, Driver, Record
from compat_tests.java import tools
from compat_tests.java.driver import JavaDriver
from compat_tests.scenarios import numbered
from compat_tests.waiting import until

DRIVER = JavaDriver


def run(server: Server, main: str, *arguments: str) -> str:
    """The output of a tool that must succeed."""
    done = tools.run(main, "--bootstrap-server", server.address, *arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def at_rest(segment: Path) -> Path:
    """The segment, once it has no reserved zeros at its end any more: Kafka's tool takes them for damage."""
    until(lambda: not segment.read_bytes().endswith(bytes(HEADER_SIZE)), f"{segment} ends with its log")
    return segment


def test_dump_log_reads_the_segments(client: Driver, other: Driver, server: Server) -> None:
    other.create_topic("dumped")
    stamp = 1_700_000_000_000
    for codec in CODECS:
        records = [Record(b"value " * 10 + b"%d" % i, b"key %d" % i, (("h", b"1"),), 0, stamp + i) for i in range(5)]
        other.produce("dumped", records, codec=codec, idempotent=True)
    segment = at_rest(server.segment("dumped"))
    done = tools.run(tools.DUMP_LOG, "--files", str(segment), "--print-data-log", "--deep-iteration")
    assert done.returncode == 0, done.stderr
    for codec in CODECS:
        assert f"compresscodec: {codec}" in done.stdout
    assert done.stdout.count("isvalid: true") == len(CODECS)
    assert re.findall(r"\| offset: (\d+)", done.stdout) == [str(n) for n in range(5 * len(CODECS))]
    assert f"CreateTime: {stamp + 4}" in done.stdout
    assert "payload: value value" in done.stdout


def test_dump_log_finds_the_indexes_sane(client: Driver, other: Driver, server: Server) -> None:
    other.create_topic("indexed", 1, {"index.interval.bytes": "64"})
    for start in range(0, 200, 10):
        other.produce("indexed", numbered(10, start))
    server.stop()  # the index files of an open segment may lag behind
    segment = server.segment("indexed")
    files = ",".join(str(segment.with_suffix(suffix)) for suffix in (".index", ".timeindex"))
    done = tools.run(tools.DUMP_LOG, "--files", files, "--index-sanity-check")
    server.start()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("passed sanity check") == 2, done.stdout + done.stderr


def test_dump_log_decodes_commits(client: Driver, other: Driver, server: Server) -> None:
    other.create_topic("committed")
    other.produce("committed", numbered(4))
    other.consume_in_group("dumped-group", "committed", 4)
    segments = [s for n in range(50) if (s := server.segment("__consumer_offsets", n)).exists() and s.stat().st_size]
    server.stop()  # a client that is leaving its group may still write
    done = tools.run(tools.DUMP_LOG, "--files", ",".join(map(str, segments)), "--offsets-decoder")
    server.start()
    assert done.returncode == 0, done.stderr
    assert '"group":"dumped-group"' in done.stdout
    assert re.search(r'"topic":"committed","partition":0.*"offset":4', done.stdout), done.stdout[-2000:]


def test_dump_log_decodes_a_snapshot_of_the_metadata(new_server: NewServer) -> None:
    server = new_server({"metadata.log.max.record.bytes.between.snapshots": "1000"})
    other = ConfluentDriver(server.address)
    for number in range(20):
        other.create_topic(f"snapped-{number}", 2, {"retention.ms": "77"})
    folder = server.data_dir / "__cluster_metadata-0"
    until(lambda: len(list(folder.glob("*.checkpoint"))) == 2, "two snapshots are there")
    server.stop()
    newest = max(folder.glob("*.checkpoint"))
    done = tools.run(tools.DUMP_LOG, "--files", str(newest), "--cluster-metadata-decoder")
    server.start()
    assert done.returncode == 0, done.stderr
    for kind in ("SnapshotHeader", "FEATURE_LEVEL_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "SnapshotFooter"):
        assert kind in done.stdout, done.stdout[-3000:]
    assert '"name":"retention.ms","value":"77"' in done.stdout


@pytest.mark.one_node("each node tells of what it leads; it looks for all at the first")
def test_log_dirs_tells_the_sizes(client: Driver, other: Driver, server: Server) -> None:
    other.create_topic("sized", 2)
    other.produce("sized", [Record(b"%d" % n, partition=1) for n in range(4)])
    told = json.loads(run(server, tools.LOG_DIRS, "--describe", "--topic-list", "sized").splitlines()[-1])
    (log_dir,) = told["brokers"][0]["logDirs"]
    assert (log_dir["error"], log_dir["logDir"]) == (None, str(server.data_dir))
    size = at_rest(server.segment("sized", 1)).stat().st_size
    assert sorted((p["partition"], p["size"], p["offsetLag"]) for p in log_dir["partitions"]) == [
        ("sized-0", 0, 0),
        ("sized-1", size, 0),
    ]


def test_verifiable_producer(client: Driver, other: Driver, server: Server) -> None:
    other.create_topic("verified", 4)
    told = run(server, tools.VERIFIABLE_PRODUCER, "--topic", "verified", "--max-messages", "1000")
    events = [json.loads(line) for line in told.splitlines()]
    assert sum(event["name"] == "producer_send_success" for event in events) == 1000
    assert events[-1]["name"] == "shutdown_complete" or events[-1]["acked"] == 1000
    assert len(other.consume("verified", 1000, partition=None)) == 1000


def test_get_offsets(client: Driver, other: Driver, server: Server) -> None:
    other.create_topic("offsets", 3)
    for partition in range(3):
        other.produce("offsets", numbered(partition, partition=partition))
    assert run(server, tools.GET_OFFSETS, "--topic", "offsets").split() == ["offsets:0:0", "offsets:1:1", "offsets:2:2"]
    earliest = run(server, tools.GET_OFFSETS, "--topic", "offsets", "--time", "earliest").split()
    assert earliest == ["offsets:0:0", "offsets:1:0", "offsets:2:0"]


def test_delete_records(client: JavaDriver, other: Driver, server: Server) -> None:
    other.create_topic("shortened")
    other.produce("shortened", numbered(10))
    plan = client.consumer_config.with_name("plan.json")
    places = [{"topic": "shortened", "partition": 0, "offset": 6}]
    plan.write_text(json.dumps({"version": 1, "partitions": places}))
    assert "low_watermark: 6" in run(server, tools.DELETE_RECORDS, "--offset-json-file", str(plan))
    assert run(server, tools.GET_OFFSETS, "--topic", "shortened", "--time", "earliest").strip() == "shortened:0:6"


def test_reset_offsets_of_a_group(client: Driver, other: Driver, server: Server) -> None:
    other.create_topic("reset")
    other.produce("reset", numbered(10))
    other.consume_in_group("reset-group", "reset", 10)
    place = ("--group", "reset-group", "--topic", "reset")
    run(server, tools.GROUPS, "--reset-offsets", *place, "--to-offset", "3", "--execute")
    assert other.committed("reset-group", "reset") == {0: 3}
    told = run(server, tools.GROUPS, "--describe", "--group", "reset-group")
    row = next(line.split() for line in told.splitlines() if line.startswith("reset-group"))
    assert row[2:6] == ["0", "3", "10", "7"]  # partition, committed, end, lag
    run(server, tools.GROUPS, "--delete", "--group", "reset-group")
    assert "reset-group" not in other.groups()


def test_broker_api_versions(client: Driver, server: Server) -> None:
    told = run(server, tools.API_VERSIONS)
    assert re.search(r"Produce\(0\): 0 to \d+", told), told
    assert "Fetch(1): 4 to" in told


def test_cluster_id(client: Driver, server: Server) -> None:
    done = tools.run(tools.CLUSTER, "cluster-id", "--bootstrap-server", server.address)
    assert re.search(r"Cluster ID: [A-Za-z0-9_-]{22}", done.stdout), done.stdout + done.stderr
