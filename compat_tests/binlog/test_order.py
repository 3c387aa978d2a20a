"""One partition has the order of the server's transactions over all tables, while several writers write."""

from __future__ import annotations

import threading
from pathlib import Path

import trio

from barnabas.client.admin import create_topic
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.connect.binlog.reader import Begin, Change, End
from compat_tests.binlog.mariadb import MariaDb
from compat_tests.binlog.reading import items, place_of
from compat_tests.binlog.subscriber import Subscriber, messages
from compat_tests.broker_process import Server

WRITERS, TRANSFERS = 4, 60


def transfers(server: MariaDb, writer: int) -> None:
    """Transactions that move money between accounts of two databases, and note both in a table without a key."""

    async def run() -> None:
        async with await server.session() as session:
            for number in range(TRANSFERS):
                for statement in (
                    "START TRANSACTION",
                    f"UPDATE order_a.account SET sum = sum - 1 WHERE id = {(writer + number) % 7}",
                    f"UPDATE order_b.account SET sum = sum + 1 WHERE id = {number % 5}",
                    f"INSERT INTO order_a.notes VALUES ({writer}, {number})",
                    "COMMIT",
                ):
                    await session.query(statement)

    trio.run(run)


def test_one_partition_has_the_transactions_of_all_tables_in_their_order(
    tmp_path: Path, mariadb: MariaDb, server: Server
) -> None:
    for name in ("order_a", "order_b"):
        table = f"CREATE TABLE {name}.account (id INT PRIMARY KEY, sum INT)"
        mariadb.sql(
            f"CREATE DATABASE {name}", table, f"USE {name}", "INSERT INTO account SELECT seq, 1 FROM seq_0_to_6"
        )
    mariadb.sql("CREATE TABLE order_a.notes (writer INT, number INT)")
    with Cluster(server.address) as cluster:  # it makes no difference that the topic has several partitions
        assert create_topic(cluster, "ordered", {}, partitions=3).error_code == 0
    options = ("--tables", "order_*.*", "--topic-per", "server", "--prefix", "ordered", "--order", "transaction")
    subscriber = Subscriber(tmp_path, mariadb, server.address, "ordered", *options)
    subscriber.start()
    subscriber.reading()
    start = place_of(mariadb)
    threads = [threading.Thread(target=transfers, args=(mariadb, writer)) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    subscriber.kill()
    subscriber.start()
    for thread in threads:
        thread.join()
    subscriber.wait_for(place_of(mariadb).gtids)
    assert subscriber.stop() == 0

    expected: list[tuple[str, ...]] = []
    for item in items(mariadb, start):
        if isinstance(item, Begin):
            gtid = item.gtid
            expected.append((gtid, "gtid", "", ""))
        elif isinstance(item, Change):
            names = item.layout.database, item.layout.table
            for images in item.rows:
                expected.append((gtid, *names, ",".join(item.layout.literals(images[-1]))))
        elif isinstance(item, End):
            expected.append((gtid, "xid", "", ""))
    found = []
    for each in messages(server.address, "ordered"):
        row = (
            (each["db"], each["table"], ",".join(each["field"])) if "field" in each else (each["eventtypestr"], "", "")
        )
        found.append((each["gtid"], *row))
    assert found == expected
    assert len(found) == WRITERS * TRANSFERS * 5
    writers = [row[3].split(",")[0] for row in found if row[2] == "notes"]
    assert writers != sorted(writers), "the writers took turns"
    with Cluster(server.address) as cluster:
        keys = [("ordered", partition) for partition in range(3)]
        assert list_offsets(cluster, keys[1:], LATEST) == list_offsets(cluster, keys[1:], EARLIEST)
