"""The examples that need Spark, MariaDB or ZooKeeper."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.admin import create_topic
from barnabas.client.cluster import Cluster
from barnabas.scripts import cli
from compat_tests.binlog import conftest as with_mariadb
from compat_tests.binlog.mariadb import MariaDb
from compat_tests.binlog.reading import place_of
from compat_tests.binlog.subscriber import Subscriber
from compat_tests.broker_process import Barnabas
from compat_tests.examples.running import EXAMPLES, Running, python, run
from compat_tests.offsets import conftest as with_zookeeper
from compat_tests.offsets.zookeeper import ZooKeeper
from compat_tests.streams.support import SETTINGS
from compat_tests.tools import missing

installed, mariadb, zookeeper = with_mariadb.installed, with_mariadb.mariadb, with_zookeeper.zookeeper
pytestmark = pytest.mark.long


@pytest.fixture
def needs_spark() -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
    if reason := missing("java"):
        pytest.skip(reason)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Barnabas]:
    with Barnabas(tmp_path / "broker", SETTINGS) as server:
        yield server


@pytest.mark.usefixtures("needs_spark")
def test_each_reading_of_the_device_is_shipped_once(broker: Barnabas, tmp_path: Path) -> None:
    import pyarrow.dataset

    folder = Path(shutil.copytree(EXAMPLES / "edge", tmp_path / "edge"))
    with Cluster(broker.address) as cluster:
        create_topic(cluster, "readings", {}, partitions=1)
    cloud = tmp_path / "cloud"
    ship = [str(folder / "ship.sh"), str(tmp_path / "outbox"), str(cloud)]
    for first in (0, 500):
        run(python("edge", "sensor.py", broker.address, "500", str(first)))
        run(ship, DATA_DIR=str(broker.data_dir))
    broker.kill()
    broker.start()
    run(python("edge", "sensor.py", broker.address, "500", "1000"))
    run(ship, DATA_DIR=str(broker.data_dir))
    found = pyarrow.dataset.dataset(cloud, format="parquet", partitioning="hive").to_table(columns=["n"])
    assert sorted(found["n"].to_pylist()) == list(range(1500))


@pytest.mark.usefixtures("needs_spark")
def test_the_dashboard_gets_each_window(broker: Barnabas, capsys: pytest.CaptureFixture[str]) -> None:
    page = (EXAMPLES / "dashboard" / "README.md").read_text()
    made = page.split("```sh\n")[1].split("```")[0]
    for statement in [part.rpartition('"')[0] for part in made.split('barnabas sql "')[1:]]:
        assert cli.main(["sql", "--server", broker.address, statement]) == 0, capsys.readouterr()
    with (
        Running(python("dashboard", "machines.py", broker.address, "200")),
        Running(python("dashboard", "dashboard.py", broker.address, "0")) as dashboard,
    ):
        dashboard.until_printed(1)
        address = dashboard.lines[0]
        assert b"EventSource" in urllib.request.urlopen(address, timeout=60).read()
        seen: set[str] = set()
        with urllib.request.urlopen(f"{address}/windows", timeout=120) as events:
            while len(seen) < 5:
                line = events.readline().decode()
                if line.startswith("data: "):
                    window = json.loads(line[6:])
                    assert 0 < window["average"] <= window["highest"]
                    seen.add(window["machine"])
    assert seen == {f"machine-{number}" for number in range(5)}


@pytest.mark.usefixtures("needs_spark")
def test_the_table_in_spark_is_the_table_of_the_server(broker: Barnabas, mariadb: MariaDb, tmp_path: Path) -> None:
    mariadb.sql(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, item VARCHAR(20), cents BIGINT)",
        "INSERT INTO shop.orders VALUES (1, 'shirt', 1999), (2, 'shoes', 8999), (3, 'hat', 2499)",
    )
    options = ("--tables", "shop.*", "--format", "debezium", "--snapshot", "initial")
    subscriber = Subscriber(tmp_path, mariadb, broker.address, "shop", *options)
    subscriber.start()
    try:
        subscriber.reading()
        mariadb.sql(
            "UPDATE shop.orders SET cents = 1799 WHERE id = 1",
            "DELETE FROM shop.orders WHERE id = 2",
            "INSERT INTO shop.orders VALUES (4, 'scarf', 3099)",
        )
        subscriber.wait_for(place_of(mariadb).gtids)
    finally:
        subscriber.kill()
    columns = "id BIGINT, item STRING, cents BIGINT"
    told = run(python("cdc_into_spark", "tables.py", str(broker.data_dir), "shop.orders", columns))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in told.splitlines() if line.startswith("|")]
    assert "3 rows" in told
    assert rows[1:] == [["4", "scarf", "3099"], ["3", "hat", "2499"], ["1", "shirt", "1799"]]


def test_a_group_leaves_zookeeper_while_it_reads(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    from kazoo.client import KazooClient

    client = KazooClient(f"127.0.0.1:{zookeeper.port}")
    client.start()
    client.ensure_path("/example")
    client.stop()
    chroot = f"127.0.0.1:{zookeeper.port}/example"
    with Barnabas(tmp_path, {"zookeeper.connect": chroot}) as broker:
        with Cluster(broker.address) as cluster:
            create_topic(cluster, "events", {}, partitions=1)
        _produce(broker.address, range(30))
        old = run(python("leaving_zookeeper", "old_consumer.py", broker.address, chroot, "billing", "events", "10"))
        migrate = ["offsets", "migrate", "--bootstrap", broker.address, "--zookeeper", chroot, "--group", "billing"]
        journal = ["--journal", str(tmp_path / "journal")]
        assert cli.main([*migrate, *journal, "--dry-run"]) == 0
        new = python("leaving_zookeeper", "new_consumer.py", broker.address, "billing", "events")
        first = run([*new, "10"])
        assert cli.main([*migrate, *journal]) == 0
        last = run([*new, "10"])
        assert (old + first + last).split() == [str(number) for number in range(30)]
        client = KazooClient(chroot)
        client.start()
        assert client.get("/consumers/billing/offsets/events/0")[0] == b"20"  # the path from before the migration
        client.stop()


def _produce(server: str, numbers: range) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server})
    for number in numbers:
        producer.produce("events", str(number), partition=0)
    assert producer.flush(60) == 0
