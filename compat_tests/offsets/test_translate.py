"""`barnabas offsets copy --translate`: the same records at other offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.groups import Committed, commit, committed
from barnabas.client.produce import Batch, produce
from barnabas.wire.batch import Record, build_batch
from compat_tests.broker_process import Barnabas, Server
from compat_tests.offsets.commands import command, offsets, place

RECORDS = [Record(b"k%d" % n, b"value %d" % n, 1_700_000_000_000 + n // 3) for n in range(60)]
OLDER = [Record(b"o", b"older", 1_600_000_000_000)] * 7


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """The second cluster has seven older records before those of the first one, and has lost some of them."""
    with (
        Barnabas(tmp_path_factory.mktemp("first")) as first,
        Barnabas(tmp_path_factory.mktemp("second")) as second,
    ):
        for server, records in ((first, RECORDS), (second, OLDER + RECORDS)):
            command("topics", "create", "mirrored", "--partitions", "1", "-b", server.address)
            with Cluster(server.address) as cluster:
                for start in range(0, len(records), 10):
                    batch = build_batch(records[start : start + 10])
                    told = produce(cluster, [Batch("mirrored", 0, batch)], acks=-1)
                    assert told["mirrored", 0].error_code == 0
        yield first, second


def moved(
    clusters: tuple[Server, Server], tmp_path: Path, at: int, how: str, status: int = 0
) -> tuple[int | None, str]:
    first, second = clusters
    group = f"{how}-{at}"
    with Cluster(first.address) as cluster:
        assert not any(commit(cluster, group, {("mirrored", 0): Committed(at)}).values())
    words = ("--group", group, "--translate", how, "--journal", str(tmp_path / "journal"))
    _, said = offsets("copy", "--from", place(first), "--to", place(second), *words, status=status)
    with Cluster(second.address) as cluster:
        found = committed(cluster, group).get(("mirrored", 0))
    return None if found is None else found.offset, said


@pytest.mark.parametrize("at", [0, 1, 17, 59, 60])
def test_the_next_record_is_found_by_what_it_is(clusters: tuple[Server, Server], tmp_path: Path, at: int) -> None:
    assert moved(clusters, tmp_path, at, "content")[0] == at + len(OLDER)


@pytest.mark.parametrize(("at", "found"), [(0, 7), (3, 10), (4, 10), (59, 64), (60, 67)])
def test_the_next_record_is_found_by_its_time(
    clusters: tuple[Server, Server], tmp_path: Path, at: int, found: int
) -> None:
    """Three records have the same timestamp: reading starts again at the first of them."""
    assert moved(clusters, tmp_path, at, "time")[0] == found


def test_what_cannot_be_matched_is_named(clusters: tuple[Server, Server], tmp_path: Path) -> None:
    first, _ = clusters
    with Cluster(first.address) as cluster:
        extra = build_batch([Record(b"k", b"only here", 1_700_000_001_000)])
        produce(cluster, [Batch("mirrored", 0, extra)], acks=-1)
    found, said = moved(clusters, tmp_path, 60, "content", status=1)
    assert "group content-60, mirrored-0: offset 60 has no match within 1000 records" in said
    found, said = moved(clusters, tmp_path, 99, "content", status=1)
    assert found is None
    assert "offset 99 is outside the log here, 0 to 61" in said


def test_zookeeper_has_no_records(clusters: tuple[Server, Server]) -> None:
    first, _ = clusters
    words = ("copy", "--from", place(first), "--to", "zookeeper://127.0.0.1:1", "--translate", "time")
    _, said = offsets(*words, status=1)
    assert said == "barnabas: --translate reads the records of both places: ZooKeeper has none\n"
