"""A broker that uses no Linux-only features: its behaviour on macOS, tested on Linux."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.broker_process import Barnabas, Server
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.conftest import NewServer
from compat_tests.driver import Driver, NotApplicable
from compat_tests.kafka_python.driver import KafkaPythonDriver
from compat_tests.scenarios import SCENARIOS, Bench, Scenario

DRIVER = KafkaPythonDriver


@pytest.fixture(scope="module", autouse=True)
def portable() -> Iterator[None]:
    """Brokers that start in this module use the portable implementations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BARNABAS_PORTABLE", "1")
        yield


def descriptors(server: Server, kind: str) -> int:
    """How many descriptors of a kind a broker has open."""
    assert server.process is not None
    folder = Path(f"/proc/{server.process.pid}/fd")
    return sum(os.readlink(each) == f"anon_inode:[{kind}]" for each in folder.iterdir())


@pytest.mark.one_node("it counts the descriptors of one process")
def test_it_has_no_epoll_but_trios_and_no_events_of_the_kernel(server: Server, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("BARNABAS_PORTABLE")
        with Barnabas(tmp_path) as usual:
            for kind in ("eventpoll", "eventfd"):
                assert descriptors(server, kind) == descriptors(usual, kind) - 1, kind


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario(scenario: Scenario, client: Driver, server: Server, new_server: NewServer) -> None:
    bench = Bench(client, ConfluentDriver(server.address), server, new_server, f"portable-{scenario.name}")
    try:
        with bench.stack:
            scenario.run(bench)
    except NotApplicable as reason:
        pytest.skip(f"n/a: {reason}")
