"""One ZooKeeper for all of these tests, and a chroot for each. Without ZooKeeper they skip with the reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.client.cluster import Cluster
from compat_tests.broker_process import Barnabas
from compat_tests.offsets.commands import Znodes, new_topic
from compat_tests.offsets.zookeeper import ZooKeeper
from compat_tests.tools import missing

PARTITIONS = 3
#: For tests of one process: with several nodes, each one detects and logs by itself that ZooKeeper is away.
one_process = pytest.mark.skipif(Barnabas.processes > 1, reason="each of several nodes finds that out by itself")


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    pytest.importorskip("kazoo.client", reason="kazoo is not installed: make setup-test")
    if reason := missing("zookeeper"):
        pytest.skip(reason)
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def znodes(zookeeper: ZooKeeper, request: pytest.FixtureRequest) -> Iterator[Znodes]:
    """A chroot for this test."""
    made = Znodes(zookeeper, "/" + re.sub(r"\W+", "-", request.node.name)[:80])
    yield made
    made.close()


Broker = Callable[..., Barnabas]


@pytest.fixture
def broker(znodes: Znodes, tmp_path: Path) -> Iterator[Broker]:
    """Start the test's broker, with the offsets of its chroot and a topic `orders`; keyword arguments are settings."""
    made = Barnabas(tmp_path / "broker")

    def start(**settings: str) -> Barnabas:
        made.overrides = {"zookeeper.connect": znodes.connect, "num.partitions": str(PARTITIONS)}
        made.overrides |= {name.replace("_", "."): value for name, value in settings.items()}
        made.start()
        new_topic(made)
        return made

    yield start
    made.kill()
    assert made.errors() == []


@pytest.fixture(scope="module")
def dual_znodes(zookeeper: ZooKeeper) -> Iterator[Znodes]:
    made = Znodes(zookeeper, "/dual")
    yield made
    made.close()


@pytest.fixture(scope="module")
def dual(dual_znodes: Znodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    """A broker with dual commit, for tests that share it and use groups of their own."""
    settings = {"zookeeper.connect": dual_znodes.connect, "barnabas.zookeeper.timeout.ms": "5000"}
    with Barnabas(tmp_path_factory.mktemp("dual"), settings) as server:
        new_topic(server)
        yield server
        assert server.errors() == []


@pytest.fixture(scope="module")
def cluster(dual: Barnabas) -> Iterator[Cluster]:
    with Cluster(dual.address) as made:
        yield made
