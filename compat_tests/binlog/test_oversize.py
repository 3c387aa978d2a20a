"""Messages that are larger than their topic allows: they end the subscription, are split, or are cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.admin import create_topic, set_topic_config
from barnabas.client.cluster import Cluster
from barnabas.client.fetch import Reader
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.connect.binlog.oversize import PART
from barnabas.wire.batch import Record
from compat_tests.binlog.applying import Applying, checksums
from compat_tests.binlog.mariadb import MariaDb
from compat_tests.binlog.reading import place_of
from compat_tests.binlog.subscriber import Subscriber, messages
from compat_tests.broker_process import Server

SMALL = 10_000


def made(server: MariaDb, database: str) -> None:
    server.sql(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v LONGTEXT, b LONGBLOB)")


def subscription(tmp_path: Path, mariadb: MariaDb, server: Server, database: str, *options: str) -> Subscriber:
    per = ("--topic-per", "database", "--config", f"max.message.bytes={SMALL}")
    return Subscriber(tmp_path, mariadb, server.address, database, "--tables", f"{database}.*", *per, *options)


def records(broker: str, topic: str) -> list[Record]:
    """The records that a read_committed consumer sees in a topic of one partition."""
    with Cluster(broker) as cluster:
        reader = Reader(cluster, topic, committed_only=True)
        start, end = (list_offsets(cluster, [topic_0 := (topic, 0)], at)[topic_0] for at in (EARLIEST, LATEST))
        reader.positions = {0: start}
        found: list[Record] = []
        while reader.positions[0] < end:
            found += [record for _, record in reader.poll()]
    return found


@pytest.mark.long
def test_large_rows_come_in_parts_and_are_joined_whoever_is_killed(
    tmp_path: Path, mariadb: MariaDb, target: MariaDb, server: Server
) -> None:
    subscriber = subscription(tmp_path, mariadb, server, "parted", "--oversize", "split")
    subscriber.start()
    subscriber.reading()
    made(mariadb, "parted")
    large = "INSERT INTO t SELECT seq, REPEAT('ä😀', seq * 2000), REPEAT(x'00ff27', seq * 3000) FROM seq_{}_to_{}"
    mariadb.sql("USE parted", "INSERT INTO t SELECT seq, 'small', NULL FROM seq_1001_to_2000")
    subscriber.wait_for(place_of(mariadb).gtids)
    subscriber.kill()
    some = [large.format(n, n + 4) for n in (1, 6, 11)]
    mariadb.sql("USE parted", "START TRANSACTION", *some, "UPDATE t SET v = id WHERE id % 3 = 0", "COMMIT")
    subscriber.start()
    subscriber.reading()
    subscriber.kill()
    subscriber.start()
    subscriber.wait_for(place_of(mariadb).gtids)
    applying = Applying(tmp_path, target, server.address, "parted", "--topic", "parted", "--ddl")
    applying.start()
    applying.moved()
    applying.kill()
    mariadb.sql("USE parted", "DELETE FROM t LIMIT 10")
    subscriber.wait_for(place_of(mariadb).gtids)
    with Cluster(server.address) as cluster:  # the reader knows the new limit
        set_topic_config(cluster, "parted", {"max.message.bytes": str(SMALL // 2)})
    mariadb.sql("USE parted", large.format(16, 16), "DELETE FROM t WHERE id BETWEEN 14 AND 15")
    subscriber.wait_for(place_of(mariadb).gtids)
    assert subscriber.stop() == 0
    assert "takes only 5,000 bytes now" in subscriber.told()
    applying.to_the_end()
    assert checksums(target, "parted") == checksums(mariadb, "parted")
    found = [dict(each.headers) for each in records(server.address, "parted")]
    identities = [(each["barnabas.gtid"], each["barnabas.index"], each.get(PART, b"1/1")) for each in found]
    assert len(set(identities)) == len(identities) > 1000
    in_order = [(gtid.split(b"-")[2], index, *part.split(b"/")) for gtid, index, part in identities]  # type: ignore[union-attr]
    numbers = [tuple(map(int, each)) for each in in_order]
    assert numbers == sorted(numbers)
    counts = {number[:2]: number[3] for number in numbers}
    assert {part: sum(number[:2] == part for number in numbers) for part in counts} == counts
    assert max(counts.values()) > 20


def test_large_rows_are_cut_and_marked_and_not_applied(
    tmp_path: Path, mariadb: MariaDb, target: MariaDb, server: Server
) -> None:
    made(mariadb, "cut")
    mariadb.sql(
        "INSERT INTO cut.t VALUES (1, REPEAT('it''s', 5000), x'00')", "INSERT INTO cut.t VALUES (2, 'whole', '')"
    )
    subscriber = subscription(tmp_path, mariadb, server, "cut", "--oversize", "truncate", "--snapshot", "initial")
    subscriber.start()
    subscriber.reading()
    mariadb.sql("USE cut", "UPDATE t SET b = REPEAT('x', 9000)", "DELETE FROM t WHERE id = 1")
    subscriber.wait_for(place_of(mariadb).gtids)
    assert subscriber.stop() == 0
    found = [each for each in messages(server.address, "cut") if each["eventtypestr"] != "query"]
    marks = [[(mark["in"], mark["column"], mark["characters"]) for mark in each.get("truncated", [])] for each in found]
    text, blob = 2 + 5 * 5000, 3 + 2 * 9000
    assert marks == [
        [("field", 2, text)], [],
        [("where", 2, text), ("field", 2, text), ("field", 3, blob)], [("field", 3, blob)],
        [("where", 3, blob), ("where", 2, text)][::-1],
    ]  # fmt: skip
    assert all(each["field"][1].startswith("'it\\'sit") for each in found[:1])
    applying = Applying(tmp_path, target, server.address, "cut", "--topic", "cut", "--ddl")
    assert (
        "has only the beginning of field 2 of 25002 characters: subscribe again with --oversize split"
        in applying.refused()
    )


def test_a_large_row_ends_the_subscription_until_there_is_room(
    tmp_path: Path, mariadb: MariaDb, server: Server
) -> None:
    made(mariadb, "stopped")
    subscriber = subscription(tmp_path, mariadb, server, "stopped")
    subscriber.start()
    subscriber.reading()
    mariadb.sql("USE stopped", "INSERT INTO t VALUES (1, 'small', NULL)")
    subscriber.wait_for(place_of(mariadb).gtids)
    mariadb.sql("USE stopped", "INSERT INTO t VALUES (2, REPEAT('x', 20000), NULL)")
    gtid = place_of(mariadb).gtids
    told = subscriber.ended()
    assert f"message 2 of {gtid} has 20," in told
    assert "stopped takes 10,000: barnabas topics alter stopped --config max.message.bytes=65536" in told
    with Cluster(server.address) as cluster:
        set_topic_config(cluster, "stopped", {"max.message.bytes": "50000"})
    subscriber.start()
    subscriber.wait_for(gtid)
    assert subscriber.stop() == 0
    assert [each["field"][0] for each in messages(server.address, "stopped")] == ["1", "2"]


def test_there_are_no_parts_in_a_compacted_topic(tmp_path: Path, mariadb: MariaDb, server: Server) -> None:
    made(mariadb, "compacted")
    with Cluster(server.address) as cluster:
        configs = {"max.message.bytes": str(SMALL), "cleanup.policy": "compact"}
        assert create_topic(cluster, "compacted.t", configs, partitions=1).error_code == 0
    options = ("--tables", "compacted.*", "--oversize", "split")
    subscriber = Subscriber(tmp_path, mariadb, server.address, "compacted", *options)
    subscriber.start()
    subscriber.reading()
    mariadb.sql("USE compacted", "INSERT INTO t VALUES (2, REPEAT('x', 20000), NULL)")
    assert "compaction would leave the last" in subscriber.ended()
