"""A subscription, applied to another server: both end with the same rows, whichever process dies; no other SQL runs."""

from __future__ import annotations

import json
import random
import re
import threading
from pathlib import Path

import pytest

from barnabas.client.admin import create_topic, delete_topic
from barnabas.client.cluster import Cluster
from barnabas.client.produce import Batch, produce
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from compat_tests.binlog.applying import Applying, checksums
from compat_tests.binlog.mariadb import MariaDb
from compat_tests.binlog.reading import place_of
from compat_tests.binlog.subscriber import Subscriber
from compat_tests.binlog.test_snapshot import fill, writers
from compat_tests.binlog.test_types import ROWS, SESSION
from compat_tests.broker_process import Server
from compat_tests.waiting import until


def typed(server: MariaDb, database: str) -> None:
    """Statements for a table of each type, with and without a primary key; all rows change, and some are deleted."""
    kinds = list(dict.fromkeys(kind for kind, _ in ROWS))
    made = [f"USE {database}"]
    for number, kind in enumerate(kinds):
        made.append(f"CREATE TABLE k{number} (id INT PRIMARY KEY, v {kind}, w {kind})")
        made.append(f"CREATE TABLE n{number} (v {kind}, w {kind})")
    made.append("START TRANSACTION")
    for key, (kind, value) in enumerate(ROWS):
        number = kinds.index(kind)
        made += [
            f"INSERT INTO k{number} VALUES ({key}, {value}, NULL), ({key + 1000}, {value}, {value})",
            f"INSERT INTO n{number} VALUES ({value}, NULL), ({value}, {value})",
        ]
    made.append("COMMIT")
    made.append("START TRANSACTION")
    for number, _ in enumerate(kinds):
        for table in (f"k{number}", f"n{number}"):
            made += [f"UPDATE {table} SET w = v WHERE w IS NULL", f"DELETE FROM {table} LIMIT 1"]
    server.sql(*SESSION, *made, "COMMIT")


def shop(server: MariaDb, database: str) -> None:
    """Statements for tables with foreign keys, the child's name before the parent's, with DDL between rows."""
    server.sql(
        f"USE {database}",
        "CREATE TABLE `par``ent's` (id INT PRIMARY KEY, v TEXT)",
        "CREATE TABLE child (id INT AUTO_INCREMENT PRIMARY KEY, p INT, "
        "FOREIGN KEY (p) REFERENCES `par``ent's` (id) ON DELETE CASCADE)",
        "INSERT INTO `par``ent's` VALUES (1, 'a\\0b''c\\\\'), (2, '; DROP TABLE child; -- '), (3, NULL)",
        "INSERT INTO child(p) VALUES (1), (1), (2), (3), (NULL)",
        "DELETE FROM `par``ent's` WHERE id = 1",
        "ALTER TABLE child ADD COLUMN more VARCHAR(9) DEFAULT 'x' FIRST",
        "UPDATE child SET more = 'y' WHERE p = 3",
        "CREATE TABLE later AS SELECT * FROM child",
        "RENAME TABLE later TO last",
        "CREATE INDEX i ON last (p)",
        "CREATE TRIGGER t AFTER INSERT ON last FOR EACH ROW UPDATE child SET more = 'trigger'",
        "INSERT INTO last VALUES ('z', 0, 9)",
        "CREATE VIEW seen AS SELECT * FROM child",
        "CREATE TABLE gone (id INT)",
        "INSERT INTO gone VALUES (1)",
        "TRUNCATE gone",
        "INSERT INTO gone VALUES (2)",
        "CREATE TABLE dropped (id INT)",
        "DROP TABLE dropped",
        "SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO'",
        "INSERT INTO child(id) VALUES (0)",
    )


WIDE = ("--config", "max.message.bytes=4000000")


def subscribed(tmp_path: Path, mariadb: MariaDb, server: Server, database: str, *options: str) -> Subscriber:
    subscriber = Subscriber(tmp_path, mariadb, server.address, database, "--tables", f"{database}.*", *WIDE, *options)
    subscriber.start()
    subscriber.reading()
    return subscriber


def finish(subscriber: Subscriber) -> None:
    subscriber.wait_for(place_of(subscriber.server).gtids)
    assert subscriber.stop() == 0


def test_a_database_is_restored_on_another_server(
    tmp_path: Path, mariadb: MariaDb, target: MariaDb, server: Server
) -> None:
    fill(mariadb, "whole", 500)
    shop(mariadb, "whole")
    with writers(mariadb, "whole", 3):
        subscriber = subscribed(tmp_path, mariadb, server, "whole", "--topic-per", "database", "--snapshot", "initial")
    mariadb.sql("DROP TABLE whole.child, whole.last", "DROP TABLE whole.`par``ent's`", "DROP VIEW whole.seen")
    mariadb.sql("DROP TABLE whole.gone")
    shop(mariadb, "whole")
    typed(mariadb, "whole")
    finish(subscriber)
    applying = Applying(tmp_path, target, server.address, "whole", "--topic", "whole", "--ddl")
    applying.to_the_end()
    applying.to_the_end()
    expected = checksums(mariadb, "whole")
    assert len(expected) > 250
    assert checksums(target, "whole") == expected
    assert "apply.left.out" in applying.told()
    assert target.sql("SELECT COUNT(*) FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = 'whole'") == [("0",)]


@pytest.mark.parametrize("shape", ["tdsql", "debezium", "maxwell"])
def test_topics_of_tables_are_applied_in_all_formats(
    tmp_path: Path, mariadb: MariaDb, target: MariaDb, server: Server, shape: str
) -> None:
    database = f"shape_{shape}"
    certain = [kind for kind, _ in ROWS if "CHARACTER SET" not in kind or "utf8" in kind or "latin1" in kind]
    kinds = list(dict.fromkeys(certain))
    made = [f"CREATE DATABASE {database}", f"USE {database}"]
    made += [f"CREATE TABLE t{n} (id INT PRIMARY KEY, v {kind}, w {kind})" for n, kind in enumerate(kinds)]
    for each in (mariadb, target):
        each.sql(*SESSION, *made)
    options = ("--snapshot", "initial", "--format", shape)
    values = [f"USE {database}", "START TRANSACTION"]
    rows = [(kind, value) for kind, value in ROWS if kind in kinds]
    values += [f"INSERT INTO t{kinds.index(kind)} VALUES ({n}, {v}, NULL)" for n, (kind, v) in enumerate(rows)]
    mariadb.sql(*SESSION, *values, "COMMIT")
    subscriber = subscribed(tmp_path, mariadb, server, database, *options)
    changes = [f"UPDATE t{n} SET w = v" for n in range(len(kinds))] + ["DELETE FROM t0 LIMIT 1"]
    mariadb.sql(*SESSION, f"USE {database}", "START TRANSACTION", *changes, "COMMIT")
    finish(subscriber)
    topics = [f"--topic={database}.t{n}" for n in range(len(kinds))]
    Applying(tmp_path, target, server.address, database, *topics).to_the_end()
    assert checksums(target, database) == checksums(mariadb, database)


def test_members_with_the_same_text_are_told_apart(
    tmp_path: Path, mariadb: MariaDb, target: MariaDb, server: Server
) -> None:
    """The text of a SET does not show an empty member; without strict mode, a collation may treat members as equal."""
    kinds = {"s": ("SET('a','','b')", range(8)), "e": ("ENUM('a','A','')", range(1, 4))}
    options = ("--topic-per", "server", "--prefix", "members")
    subscriber = subscribed(tmp_path, mariadb, server, "members", *options)
    made = ["CREATE DATABASE members", "USE members"]
    for name, (kind, numbers) in kinds.items():
        values = ", ".join(f"({number})" for number in reversed(numbers))
        for table, key in ((f"{name}1", "PRIMARY KEY"), (f"{name}2", "NOT NULL")):
            made += [
                f"CREATE TABLE {table} (v {kind} {key}, n INT DEFAULT 0)",
                f"INSERT INTO {table} (v) VALUES {values}",
            ]
            made += [f"UPDATE {table} SET n = {number} WHERE v + 0 = {number}" for number in numbers]
            made += [f"DELETE FROM {table} WHERE v + 0 = {number}" for number in (0, 1, 4)]
    mariadb.sql(*SESSION, *made)
    finish(subscriber)
    Applying(tmp_path, target, server.address, "members", "--topic", "members", "--ddl").to_the_end()
    for name in ("s1", "s2", "e1", "e2"):
        found = [each.sql(f"SELECT v + 0, n FROM members.{name} ORDER BY 1") for each in (mariadb, target)]
        assert found[0] == found[1]
        assert len(found[0]) > 0


def killed(
    tmp_path: Path, mariadb: MariaDb, target: MariaDb, server: Server, database: str, *, rows: int, kills: int
) -> None:
    """Check that statements and rows are applied correctly by a process that is killed at random moments."""
    subscriber = subscribed(tmp_path, mariadb, server, database, "--topic-per", "server", "--prefix", database)
    mariadb.sql(f"CREATE DATABASE {database}")
    shop(mariadb, database)
    work = [f"USE {database}", "CREATE TABLE big (id INT PRIMARY KEY, v VARCHAR(50))", "CREATE TABLE nokey (v INT)"]
    for turn in range(8):
        first = turn * rows
        work += [
            f"INSERT INTO big(id, v) SELECT seq, CONCAT('n', seq) FROM seq_{first + 1}_to_{first + rows}",
            f"UPDATE big SET v = CONCAT(v, '!') WHERE id % 5 = 0 AND id > {first}",
            f"ALTER TABLE big ADD COLUMN c{turn} INT DEFAULT {turn}",
            f"DELETE FROM big WHERE id % 7 = {turn}",
            "INSERT INTO nokey SELECT seq % 3 FROM seq_1_to_20",
            "DELETE FROM nokey WHERE v = 1 LIMIT 5",
            f"CREATE TABLE made{turn} (id INT)",
            f"INSERT INTO made{turn} VALUES ({turn})",
            *([f"DROP TABLE made{turn - 1}"] if turn % 2 else []),
        ]
    mariadb.sql(*work)
    finish(subscriber)
    applying = Applying(tmp_path, target, server.address, database, "--topic", database, "--ddl")
    chance = random.Random(kills)
    for _ in range(kills):
        applying.start("--until-end")
        applying.moved()
        threading.Event().wait(chance.uniform(0, 0.3))  # the moment of the kill is random
        applying.kill()
    applying.to_the_end()
    expected = checksums(mariadb, database)
    assert len(expected) > 10
    assert checksums(target, database) == expected


def test_who_is_killed_applies_nothing_twice(tmp_path: Path, mariadb: MariaDb, target: MariaDb, server: Server) -> None:
    killed(tmp_path, mariadb, target, server, "killed_apply", rows=300, kills=3)


@pytest.mark.slow
def test_twenty_kills_while_applying(tmp_path: Path, mariadb: MariaDb, target: MariaDb, server: Server) -> None:
    killed(tmp_path, mariadb, target, server, "often_apply", rows=5000, kills=20)


def written(server: Server, topic: str, *values: dict[str, object], headers: bool = False) -> None:
    """Write messages as another producer would."""
    with Cluster(server.address) as cluster:
        marks = (("barnabas.snapshot", b"true"),) if headers else ()
        records = [Record(None, json.dumps(value).encode(), 0, marks) for value in values]
        for told in produce(cluster, [Batch(topic, 0, build_batch(records))]).values():
            assert told.error_code == 0


def row(kind: str, **more: object) -> dict[str, object]:
    return {"eventtypestr": kind, "db": "strange", "table": "t", "where": [], "field": [], **more}


def test_a_stranger_s_messages_end_it_and_what_was_before_them_stays(
    tmp_path: Path, target: MariaDb, server: Server
) -> None:
    target.sql("CREATE DATABASE strange", "CREATE TABLE strange.t (id INT PRIMARY KEY, v VARCHAR(5))")
    bad = {
        "not one SQL literal": row("insert", field=["2", "'a'), (3, 'b'"]),
        "--ddl was not given": row("query", sql="DROP TABLE strange.t"),
        "table of the server's own": row("insert", db="mysql", field=["1"]),
        "has 2 columns in the target, and the row has 1": row("insert", field=["1"]),
        "does not have the row\\(s\\) that changed": row("update", where=["9", "'a'"], field=["9", "'b'"]),
        "the row is there already": row("insert", field=["1", "'b'"]),
        "Data too long": row("insert", field=["5", "'too long'"]),
        "the target has no table strange.u": row("insert", table="u", field=["5"]),
        "is not a statement that is run": row("query", sql="SELECT SLEEP(100)"),
    }
    for number, (reason, message) in enumerate(bad.items()):
        topic = f"strange{number}"
        with Cluster(server.address) as cluster:
            assert create_topic(cluster, topic, {}, partitions=1).error_code == 0
        target.sql("DELETE FROM strange.t")
        written(server, topic, row("insert", field=["1", "'a'"]), message, row("insert", field=["7", "'c'"]))
        applying = Applying(tmp_path, target, server.address, topic, "--topic", topic)
        told = applying.refused()
        assert re.search(reason, told)
        assert f"{topic}-0, " in told
        kept = target.sql("SELECT id, v FROM strange.t")
        assert kept in ([("1", "a")], [])  # the rows of its transaction, or none; never the third one
        assert re.search(reason, applying.refused())


def test_two_cannot_apply_under_one_name_and_a_topic_made_again_is_another_one(
    tmp_path: Path, target: MariaDb, server: Server
) -> None:
    target.sql("CREATE DATABASE twice", "CREATE TABLE twice.t (id INT PRIMARY KEY)")
    with Cluster(server.address) as cluster:
        assert create_topic(cluster, "twice", {}, partitions=1).error_code == 0
        written(server, "twice", row("insert", db="twice", field=["1"]))
        first = Applying(tmp_path, target, server.address, "twice", "--topic", "twice")
        first.start()
        until(lambda: target.sql("SELECT * FROM twice.t"), "the row is there")
        (tmp_path / "second").mkdir()
        second = Applying(tmp_path / "second", target, server.address, "twice", "--topic", "twice", "--wait", "1")
        assert "another process applies" in second.refused()
        first.kill()
        assert delete_topic(cluster, "twice")[0] == 0
        until(lambda: create_topic(cluster, "twice", {}, partitions=1).error_code == 0, "it is made again")
    assert "was deleted and made again" in second.refused()


def test_statements_in_a_topic_of_several_partitions_and_lost_records_end_it(
    tmp_path: Path, target: MariaDb, server: Server
) -> None:
    target.sql("CREATE DATABASE parts", "CREATE TABLE parts.t (id INT PRIMARY KEY)")
    with Cluster(server.address) as cluster:
        assert create_topic(cluster, "parts", {}, partitions=2).error_code == 0
        written(server, "parts", row("insert", db="parts", field=["1"]))
        applying = Applying(tmp_path, target, server.address, "parts", "--topic", "parts", "--ddl")
        applying.to_the_end()
        written(server, "parts", row("insert", db="parts", field=["2"]))
        asked = DeleteRecordsRequest([DeleteRecordsTopic("parts", [DeleteRecordsPartition(0, 2)])], 5000)
        told = cluster.broker(cluster.leaders("parts")[0]).ask(asked, DeleteRecordsResponse)
        assert told.topics[0].partitions[0].error_code == 0
        assert "the records in between are deleted" in applying.refused()
    written(server, "parts", row("query", db="parts", sql="DROP TABLE t"))
    other = Applying(tmp_path, target, server.address, "others", "--topic", "parts", "--ddl")
    assert "a topic of several partitions" in other.refused()
