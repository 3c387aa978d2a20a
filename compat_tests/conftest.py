"""A broker per test module, a bench per scenario, and the report."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from compat_tests import report
from compat_tests.apache_kafka import ApacheKafka
from compat_tests.broker_process import Barnabas, Server
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.driver import Driver, NotApplicable
from compat_tests.scenarios import Bench, Scenario
from compat_tests.tools import missing

Play = Callable[[Scenario], None]


class NewServer(Protocol):
    """Start a broker with these settings, or return the module's broker that has them."""

    def __call__(self, overrides: dict[str, str], port: int = 0) -> Server:
        """The broker listens on `port`, or on any free port."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of these tests."""
    group = parser.getgroup("compatibility")
    group.addoption("--peer", action="store_true", help="run the scenarios against Apache Kafka itself")
    group.addoption(
        "--screenshots", action="store_true", help="write the pictures of the console and the shell to docs/"
    )
    group.addoption("--compat-report", action="store_true", help="write the results to docs/compatibility.md")


def pytest_configure(config: pytest.Config) -> None:
    """Make the object that collects the results."""
    config.stash[report.RESULTS] = report.Results()


def pytest_terminal_summary(config: pytest.Config) -> None:
    """Write the report, if an option asks for it, when all tests have run."""
    if config.getoption("--compat-report"):
        config.stash[report.RESULTS].write(peer=config.getoption("--peer"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With brokers of several nodes, skip the tests that need a single node."""
    if Barnabas.processes == 1:
        return
    for item in items:
        mark = item.get_closest_marker("one_node")
        if mark is not None:
            item.add_marker(pytest.mark.skip(reason=f"one node: {mark.args[0]}"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show the end of the broker's log with a failure."""
    outcome = yield
    told = outcome.get_result()  # type: ignore[attr-defined]
    server = getattr(item, "funcargs", {}).get("server")
    if told.failed and isinstance(server, Server):
        told.sections.append((f"log of {server.name}", server.log_tail()))


def stopped_well(servers: Iterable[Server]) -> None:
    """Stop servers. Raises AssertionError if a barnabas broker failed, or logged an error that no test expects."""
    failures = []
    for server in servers:
        status = server.stop()
        if isinstance(server, Barnabas):
            if status != 0:
                failures.append(f"exit status {status}:\n{server.log_tail()}")
            if server.errors():
                failures.append("errors in the broker's log:\n" + "\n".join(server.errors()))
    assert not failures, "\n".join(failures)


@pytest.fixture(scope="module")
def new_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewServer]:
    """Start brokers with other settings: one broker for each set of settings, stopped at the module's end."""
    peer = request.config.getoption("--peer")
    if peer and (reason := missing("java")):
        pytest.skip(reason)
    started: dict[tuple[tuple[str, str], ...], Server] = {}

    def start(overrides: dict[str, str], port: int = 0) -> Server:
        key = tuple(sorted(overrides.items()))
        if key not in started:
            folder: Path = tmp_path_factory.mktemp("broker")
            server: Server = (ApacheKafka if peer else Barnabas)(folder, overrides)
            server.port = port
            server.start()
            started[key] = server
        return started[key]

    yield start
    stopped_well(started.values())


@pytest.fixture(scope="module")
def server(new_server: NewServer) -> Server:
    """The broker of this module, with default settings."""
    return new_server({})


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Driver]:
    """The module's client: an instance of its `DRIVER`."""
    kind: type[Driver] = request.module.DRIVER
    if kind.tool and (reason := missing(kind.tool)):
        pytest.skip(reason)
    driver = kind(server.address)
    yield driver
    driver.close()


@pytest.fixture(scope="module")
def other(server: Server) -> Driver:
    """A second, different client, which checks the first one."""
    return ConfluentDriver(server.address)


@pytest.fixture
def play(
    request: pytest.FixtureRequest,
    client: Driver,
    other: Driver,
    server: Server,
    new_server: NewServer,
) -> Play:
    """Run a scenario and note its result."""
    results = request.config.stash[report.RESULTS]

    def run(scenario: Scenario) -> None:
        label = re.sub(r"\W|_", "-", f"{scenario.name}-{client.name}")
        bench = Bench(client, other, server, new_server, label)
        results.set(client, scenario, "fail")
        try:
            with bench.stack:
                scenario.run(bench)
        except NotApplicable as reason:
            results.set(client, scenario, "n/a", str(reason))
            pytest.skip(f"n/a: {reason}")
        results.set(client, scenario, "pass")

    return run
