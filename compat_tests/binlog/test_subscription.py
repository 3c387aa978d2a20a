"""A subscription, with a real server and a real broker: exactly once, whichever process dies; errors are one line."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.produce import Batch, produce
from barnabas.connect.binlog.reports import reports, tell
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.subscription_reports import TOPIC, Report
from compat_tests.binlog.mariadb import MariaDb
from compat_tests.binlog.reading import place_of
from compat_tests.binlog.subscriber import Subscriber, messages, values
from compat_tests.broker_process import Server
from compat_tests.tools import ROOT
from compat_tests.waiting import until

SNAPSHOT = ("--snapshot", "initial")


def shop(server: MariaDb, database: str) -> None:
    server.sql(
        f"CREATE DATABASE {database}",
        f"USE {database}",
        "CREATE TABLE orders (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(50))",
        "CREATE TABLE items (a INT, b INT, n INT, PRIMARY KEY (b, a))",
        "CREATE TABLE nokey (v INT)",
    )


def test_each_table_has_a_topic_with_its_changes_by_primary_key(
    tmp_path: Path, mariadb: MariaDb, server: Server
) -> None:
    shop(mariadb, "one")
    subscriber = Subscriber(tmp_path, mariadb, server.address, "one", "--tables", "one.*", "--partitions", "3")
    subscriber.start()
    subscriber.reading()
    mariadb.sql("USE one", "INSERT INTO orders VALUES (1,'a'),(2,'b')", "UPDATE orders SET name='it''s' WHERE id=1")
    mariadb.sql(
        "USE one", "INSERT INTO items VALUES (1,2,3)", "DELETE FROM orders WHERE id=2", "INSERT INTO nokey VALUES (1)"
    )
    mariadb.sql("CREATE DATABASE other", "CREATE TABLE other.t (id INT)", "INSERT INTO other.t VALUES (1)")
    subscriber.wait_for(place_of(mariadb).gtids)
    assert subscriber.stop() == 0
    found = sorted(
        messages(server.address, "one.orders"),
        key=lambda each: (int(each["gtid"].split("-")[2]), int(each["event_index"])),
    )
    shown = [(each["eventtypestr"], each["where"], each["field"]) for each in found]
    assert shown == [
        ("insert", [], ["1", "'a'"]),
        ("insert", [], ["2", "'b'"]),
        ("update", ["1", "'a'"], ["1", "'it\\'s'"]),
        ("delete", ["2", "'b'"], []),
    ]
    assert [each["event_index"] for each in found] == ["2", "3", "2", "2"]
    assert {(each["db"], each["table"], each["logtype"]) for each in found} == {("one", "orders", "mysqlbinlog")}
    assert len(messages(server.address, "one.items")) == len(messages(server.address, "one.nokey")) == 1
    listed = subprocess.run(
        ["kcat", "-C", "-b", server.address, "-t", "one.items", "-e", "-q", "-f", "%k"], capture_output=True, text=True
    )
    assert listed.stdout == '{"b":2,"a":1}'
    told = subprocess.run(
        [sys.executable, "-m", "barnabas", "connect", "status", "--bootstrap", server.address],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "one" in told.stdout
    assert place_of(mariadb).gtids in told.stdout
    (line,) = (line for line in told.stdout.splitlines() if line.startswith("one "))
    assert "ENDED" in line


def test_the_status_tells_the_last_error_and_what_it_is_doing(tmp_path: Path, mariadb: MariaDb, server: Server) -> None:
    """While the subscription reads, and after it has ended with an error."""
    subscriber = Subscriber(tmp_path, mariadb, server.address, "told", "--prefix", "told")
    subscriber.start()
    subscriber.reading()

    def report() -> Report | None:
        with Cluster(server.address) as cluster:
            return reports(cluster, ["told"]).get("told")

    until(lambda: (told := report()) is not None and told.state == "READING", "it says that it reads")
    subscriber.kill()
    subscriber = Subscriber(tmp_path, mariadb, server.address, "told", "--prefix", "told", "--config", "nope=1")
    shop(mariadb, "told")
    mariadb.sql("INSERT INTO told.orders VALUES (1, 'a')")
    subscriber.start()
    until(lambda: (told := report()) is not None and "nope" in told.error, "the error is told")
    subscriber.kill()
    found = report()
    with Cluster(server.address) as cluster:  # records of another producer
        for number in range(50):
            tell(cluster, f"stranger {number}", found or Report(state="READING", at=0))
        produce(cluster, [Batch(TOPIC, 0, build_batch([Record(b"told", b"x" * 500_000)]))])
    assert report() == found
    with Cluster(server.address) as cluster:
        tell(cluster, "told", Report(state="RETRYING", at=1, error="\x1b[2J" + "x" * 500_000, error_at=1))
        assert list(reports(cluster, ["told", "another"])) == ["told"]
    shown = subprocess.run(
        [sys.executable, "-m", "barnabas", "connect", "status", "--bootstrap", server.address],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert len(shown.stdout) < 20_000
    assert "stranger" not in shown.stdout
    assert "\x1b" not in shown.stdout
    assert found is not None
    assert found.state_at(found.at + 61) == ("ENDED" if found.state == "ENDED" else "SILENT")


def test_one_topic_for_all_has_the_bounds_of_transactions_and_no_passwords(
    tmp_path: Path, mariadb: MariaDb, server: Server
) -> None:
    subscriber = Subscriber(tmp_path, mariadb, server.address, "all", "--topic-per", "server", "--prefix", "everything")
    subscriber.start()
    subscriber.reading()
    shop(mariadb, "two")
    mariadb.sql(
        "CREATE USER spy@localhost IDENTIFIED BY 'very secret'", "SET PASSWORD FOR spy@localhost = PASSWORD('x')"
    )
    mariadb.sql(
        "USE two", "START TRANSACTION", "INSERT INTO orders VALUES (1,'a')", "INSERT INTO nokey VALUES (5)", "COMMIT"
    )
    subscriber.wait_for(place_of(mariadb).gtids)
    assert subscriber.stop() == 0
    found = messages(server.address, "everything")
    assert [each["eventtypestr"] for each in found[-4:]] == ["gtid", "insert", "insert", "xid"]
    assert [each["event_index"] for each in found[-4:]] == ["1", "2", "3", "4"]
    assert found[-1]["xid"].isdigit()
    statements = [each["sql"] for each in found if each["eventtypestr"] == "query"]
    assert statements[0] == "CREATE DATABASE two"
    assert len(statements) == 4
    assert "secret" not in str(found)


@pytest.mark.parametrize("shape", ["debezium", "maxwell"])
def test_other_formats(tmp_path: Path, mariadb: MariaDb, server: Server, shape: str) -> None:
    shop(mariadb, shape)
    subscriber = Subscriber(tmp_path, mariadb, server.address, shape, "--format", shape, "--tables", f"{shape}.*")
    subscriber.start()
    subscriber.reading()
    mariadb.sql(
        f"USE {shape}", "INSERT INTO orders VALUES (1,NULL)", "UPDATE orders SET name='x'", "DELETE FROM orders"
    )
    subscriber.wait_for(place_of(mariadb).gtids)
    assert subscriber.stop() == 0
    found = messages(server.address, f"{shape}.orders")
    if shape == "debezium":
        rows = [None, {"id": 1, "name": None}, {"id": 1, "name": "x"}, None]
        assert [(e["op"], e["before"], e["after"]) for e in found] == list(zip("cud", rows, rows[1:], strict=False))
        assert {e["source"]["table"] for e in found} == {"orders"}
    else:
        assert [(e["type"], e["data"]["name"], e.get("old")) for e in found] == [
            ("insert", None, None), ("update", "x", {"name": None}), ("delete", "x", None),
        ]  # fmt: skip


def test_masked_columns_are_in_no_message(tmp_path: Path, mariadb: MariaDb, server: Server) -> None:
    mariadb.sql(
        "CREATE DATABASE masked",
        "CREATE TABLE masked.t (id INT PRIMARY KEY, secret TEXT, hidden TEXT)",
        "INSERT INTO masked.t VALUES (1, 'secret before', 'hidden before')",
    )
    masks = ("--mask", "masked.t.secret=null", "--mask", "masked.*.hidden=drop")
    subscriber = Subscriber(tmp_path, mariadb, server.address, "masked", "--tables", "masked.*", *masks, *SNAPSHOT)
    subscriber.start()
    subscriber.reading()
    mariadb.sql("UPDATE masked.t SET secret = 'secret after', hidden = 'hidden after'", "DELETE FROM masked.t")
    subscriber.wait_for(place_of(mariadb).gtids)
    assert subscriber.stop() == 0
    found = [(each["where"], each["field"]) for each in messages(server.address, "masked.t")]
    seen = ["1", "NULL"]
    assert found == [([], seen), (seen, seen), (seen, [])]


def work(server: MariaDb, database: str, rows: int) -> None:
    """Write one large transaction, with many small ones before and after it."""
    for number in range(30):
        server.sql(f"USE {database}", f"INSERT INTO orders(name) VALUES ('before {number}')")
    server.sql(
        f"USE {database}", "START TRANSACTION",
        f"INSERT INTO orders(name) SELECT CONCAT('n', seq) FROM seq_1_to_{rows}",
        "UPDATE orders SET name = CONCAT(name, '!') WHERE id % 7 = 0", "INSERT INTO items VALUES (1,1,1)", "COMMIT",
    )  # fmt: skip
    for number in range(30):
        server.sql(f"USE {database}", f"UPDATE orders SET name = 'after' WHERE id = {number}", "DELETE FROM items")


def crash(tmp_path: Path, mariadb: MariaDb, server: Server, database: str, rows: int, kills: int, seed: int) -> None:
    """Check that a reader that is killed at random moments writes the same as one that is not."""
    shop(mariadb, database)
    options = ("--tables", f"{database}.*", "--partitions", "2")
    killed = Subscriber(tmp_path, mariadb, server.address, f"k-{database}", *options, "--prefix", f"k-{database}")
    calm = Subscriber(tmp_path, mariadb, server.address, f"c-{database}", *options, "--prefix", f"c-{database}")
    for each in (killed, calm):
        each.start()
        each.reading()
    work(mariadb, database, rows)
    chance = random.Random(seed)
    end = place_of(mariadb).gtids

    def is_done() -> bool:
        found = killed.position()
        return found is not None and found.place.gtids == end

    for _ in range(kills):
        before = killed.position()
        wait = chance.uniform(0, 0.4)
        until(lambda: killed.position() != before or is_done(), "something is written")  # noqa: B023
        subprocess.run(["sleep", str(wait)], check=True)
        killed.kill()
        killed.start()
    killed.reading()
    for each in (killed, calm):
        each.wait_for(end)
        assert each.stop() == 0
    for table in ("orders", "items"):
        expected = values(server.address, f"c-{database}.{table}")
        assert expected
        assert values(server.address, f"k-{database}.{table}") == expected
    orders = messages(server.address, f"k-{database}.orders")
    assert len({(each["gtid"], each["event_index"]) for each in orders}) == len(orders) > rows


def test_a_reader_that_is_killed_writes_each_change_once(tmp_path: Path, mariadb: MariaDb, server: Server) -> None:
    crash(tmp_path, mariadb, server, "crash", 20_000, 5, 1)


def test_a_second_reader_of_a_name_ends_the_first(tmp_path: Path, mariadb: MariaDb, server: Server) -> None:
    shop(mariadb, "twice")
    first = Subscriber(tmp_path, mariadb, server.address, "same", "--tables", "twice.*")
    second = Subscriber(tmp_path / "..", mariadb, server.address, "same", "--tables", "twice.*", "--server-id", "4711")
    first.start()
    first.reading()
    second.log = tmp_path / "second.log"
    second.start()
    second.reading()
    mariadb.sql("USE twice", "INSERT INTO orders VALUES (1,'a')")
    assert "another reader has taken over same" in first.ended()
    second.wait_for(place_of(mariadb).gtids)
    assert second.stop() == 0
    assert len(messages(server.address, "twice.orders")) == 1


def test_the_server_restarts_and_dies_and_the_reader_goes_on(
    tmp_path: Path, own_mariadb: MariaDb, server: Server
) -> None:
    shop(own_mariadb, "restart")
    subscriber = Subscriber(tmp_path, own_mariadb, server.address, "restart", "--tables", "restart.*")
    subscriber.start()
    subscriber.reading()
    for number, end in enumerate([own_mariadb.stop, own_mariadb.kill]):
        own_mariadb.sql("USE restart", f"INSERT INTO orders(name) VALUES ('{number}')")
        end()
        own_mariadb.start()
    own_mariadb.sql("USE restart", "INSERT INTO orders(name) VALUES ('last')")
    subscriber.wait_for(place_of(own_mariadb).gtids)
    assert subscriber.stop() == 0
    assert [each["field"][1] for each in messages(server.address, "restart.orders")] == ["'0'", "'1'", "'last'"]


def test_a_log_that_was_reset_is_not_taken_for_the_old_one(
    tmp_path: Path, own_mariadb: MariaDb, server: Server
) -> None:
    shop(own_mariadb, "reset_it")
    subscriber = Subscriber(tmp_path, own_mariadb, server.address, "reset", "--tables", "reset_it.*")
    subscriber.start()
    subscriber.reading()
    own_mariadb.sql("USE reset_it", "INSERT INTO orders(name) VALUES ('a')")
    subscriber.wait_for(place_of(own_mariadb).gtids)
    assert subscriber.stop() == 0
    own_mariadb.sql("RESET MASTER", *[f"INSERT INTO reset_it.orders(name) VALUES ('{n}')" for n in range(20)])
    subscriber.start()
    assert "its history is another one" in subscriber.ended() or "is not the one that was read" in subscriber.ended()


def test_what_was_purged_ends_the_reader(tmp_path: Path, own_mariadb: MariaDb, server: Server) -> None:
    shop(own_mariadb, "purged")
    subscriber = Subscriber(tmp_path, own_mariadb, server.address, "purged", "--tables", "purged.*")
    subscriber.start()
    subscriber.reading()
    assert subscriber.stop() == 0
    own_mariadb.sql("INSERT INTO purged.orders(name) VALUES ('lost')", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    own_mariadb.sql("INSERT INTO purged.orders(name) VALUES ('kept')")
    file = place_of(own_mariadb).file

    def is_purged() -> bool:  # the server may take a while to notice that the reader is gone
        own_mariadb.sql(f"PURGE BINARY LOGS TO '{file}'")
        return len(own_mariadb.sql("SHOW BINARY LOGS")) == 1

    until(is_purged, "the old files are gone")
    subscriber.start()
    assert "start again with --start now" in subscriber.ended()


def test_wrong_passwords_missing_privileges_and_wrong_settings(
    tmp_path: Path, own_mariadb: MariaDb, server: Server
) -> None:
    def told(name: str, url: str | None = None, password: str | None = None) -> str:
        subscriber = Subscriber(tmp_path, own_mariadb, server.address, name)
        subscriber.start(url, **({} if password is None else {"password": password}))
        return subscriber.ended()

    assert "Access denied" in told("wrong", password="wrong")
    own_mariadb.sql("CREATE USER poor@'127.0.0.1' IDENTIFIED BY 'x'")
    poor = own_mariadb.url.replace("repl@", "poor@")
    assert "GRANT REPLICATION SLAVE" in told("poor", poor, "x")
    own_mariadb.sql("SET GLOBAL binlog_format=MIXED")
    assert "binlog_format=MIXED: set binlog_format=ROW" in told("mixed")
    assert "write mysql://USER@HOST:PORT" in told("address", "127.0.0.1")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_ten_kills_in_a_transaction_of_a_hundred_thousand_rows(
    tmp_path: Path, mariadb: MariaDb, server: Server, seed: int
) -> None:
    crash(tmp_path, mariadb, server, f"slow{seed}", 100_000, 10, seed)
