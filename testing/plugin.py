"""Fixtures for pytest: a broker for the session, and a topic for each test.

    def test_orders(barnabas_broker, barnabas_topic):
        producer = KafkaProducer(bootstrap_servers=barnabas_broker.bootstrap_servers)
        producer.send(barnabas_topic, b"hello")

If a test that used the broker fails, its report shows what the broker has logged since the test began. For other
properties of the broker, override `barnabas_properties` (a session-scoped fixture that returns a mapping), for several
nodes `barnabas_processes` (a session-scoped fixture that returns their number).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from barnabas.testing import Broker

_running = pytest.StashKey["Broker"]()
_begins = pytest.StashKey[int]()
_MOST_NAME = 180


@pytest.fixture(scope="session")
def barnabas_properties() -> Mapping[str, object]:
    """The properties of the server."""
    return {}


@pytest.fixture(scope="session")
def barnabas_processes() -> int:
    """How many nodes the broker has."""
    return 1


@pytest.fixture(scope="session")
def barnabas_broker(
    barnabas_properties: Mapping[str, object], barnabas_processes: int, pytestconfig: pytest.Config
) -> Iterator[Broker]:
    """A broker for the whole session (one for each worker with pytest-xdist)."""
    from barnabas.testing import Broker

    with Broker(barnabas_properties, processes=barnabas_processes) as broker:
        pytestconfig.stash[_running] = broker
        yield broker


@pytest.fixture
def barnabas_topic(barnabas_broker: Broker, request: pytest.FixtureRequest) -> str:
    """The name of a new topic for this test, with one partition."""
    test = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:_MOST_NAME]
    name = f"{test}-{uuid.uuid4().hex[:8]}"
    barnabas_broker.create_topic(name)
    return name


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note where this test's part of the broker's log begins."""
    item.stash[_begins] = len(broker.log) if (broker := _broker_of(item)) is not None else 0


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Add the broker's log to a failure's report."""
    outcome = yield
    report = outcome.get_result()
    broker = _broker_of(item)
    if report.failed and broker is not None:
        said = broker.log[item.stash.get(_begins, 0) :]
        report.sections.append(("barnabas", said or "(the broker has said nothing since the test began)"))


def _broker_of(item: pytest.Item) -> Broker | None:
    """The broker that a test uses, if it was started."""
    return item.config.stash.get(_running, None) if "barnabas_broker" in getattr(item, "fixturenames", ()) else None
