"""Servers that a page needs: databases, a ZooKeeper, and the data directory of a stopped Kafka."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
from collections.abc import Callable, Iterator

from compat_tests.apache_kafka import ApacheKafka
from compat_tests.binlog import mariadb
from compat_tests.binlog.mariadb import MariaDb
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.docs.machine import Machine
from compat_tests.driver import Record
from compat_tests.offsets.zookeeper import ZooKeeper
from compat_tests.tools import missing

#: The value of MYSQL_PWD in docs/binlog.md.
PASSWORD = "..."


def _started(machine: Machine, port: str, **settings: str) -> MariaDb:
    installed = machine.root / "installed"
    if not installed.exists():
        mariadb.install(installed)
    server = MariaDb(machine.root / f"mariadb-{port}", installed, **settings)
    server.start()
    machine.ports[port] = str(server.port)
    return server


@contextlib.contextmanager
def source(machine: Machine) -> Iterator[None]:
    """A MariaDB with a table, and a user who may follow its binary log."""
    server = _started(machine, "3306")
    server.prepare()
    server.sql(
        f"ALTER USER {mariadb.USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'",
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, customer TEXT, total DECIMAL(10,2))",
        f"SET PASSWORD = PASSWORD('{PASSWORD}')",
    )
    try:
        yield
    finally:
        server.stop()


@contextlib.contextmanager
def target(machine: Machine) -> Iterator[None]:
    """A MariaDB without tables."""
    server = _started(machine, "3307", server_id="78")
    server.sql(f"SET PASSWORD = PASSWORD('{PASSWORD}')")
    try:
        yield
    finally:
        server.stop()


@contextlib.contextmanager
def kafka_directory(machine: Machine) -> Iterator[None]:
    """The data directory of a stopped Apache Kafka in /var/lib/kafka."""
    kafka = ApacheKafka(machine.root / "kafka")
    with kafka:
        client = ConfluentDriver(kafka.address)
        client.produce("orders", [Record(b"first")])
        client.close()
        kafka.stop()
    shutil.move(kafka.data_dir, machine.root / "var" / "lib" / "kafka")
    yield


@contextlib.contextmanager
def zookeeper(machine: Machine) -> Iterator[None]:
    """A ZooKeeper with Kafka's chroot."""
    from kazoo.client import KazooClient

    with ZooKeeper(machine.root / "zookeeper") as server:
        machine.ports["2181"] = str(server.port)
        client = KazooClient(f"127.0.0.1:{server.port}")
        client.start()
        client.ensure_path("/kafka")
        client.stop()
        client.close()
        yield


def _no_zookeeper() -> str | None:
    is_there = importlib.util.find_spec("kazoo") is not None
    return missing("zookeeper") if is_there else "kazoo is not installed: make setup-test"


SERVERS: dict[str, Callable[[Machine], contextlib.AbstractContextManager[None]]] = {
    "mariadb": source,
    "second mariadb": target,
    "kafka directory": kafka_directory,
    "zookeeper": zookeeper,
}
#: Functions that say why a server is missing on this machine.
MISSING: dict[str, Callable[[], str | None]] = {
    "mariadb": mariadb.missing,
    "second mariadb": mariadb.missing,
    "kafka directory": lambda: missing("java"),
    "zookeeper": _no_zookeeper,
}
