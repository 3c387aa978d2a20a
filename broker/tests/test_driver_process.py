"""When the broker starts a streams driver, and when it does not."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from barnabas.broker.jobs import driver_process
from barnabas.broker.jobs.driver_log import LOG_FILE
from barnabas.broker.jobs.queries import Queries
from barnabas.broker.tests.conftest import Start, until
from barnabas.broker.tests.test_queries import BY_HAND, create, driver_of
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.text import SPARK_REMEDY

Starts = Callable[[], int]


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Starts:
    """Drivers that end at once, and are restarted without a pause. Returns the number of starts."""
    count = tmp_path / "starts"
    count.touch()
    monkeypatch.setattr(
        driver_process.DriverProcess, "_command", lambda _: ["/bin/sh", "-c", f"echo x >> {count}; echo no use >&2"]
    )
    monkeypatch.setattr(driver_process, "_FIRST_BACKOFF_SECONDS", 0.0)
    monkeypatch.setattr(driver_process, "_MAX_BACKOFF_SECONDS", 0.0)
    return lambda: len(count.read_text().splitlines())


async def test_a_driver_that_ends_is_not_started_again_while_there_is_no_query(
    start: Start, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = Queries._driver_wanted
    answers: list[tuple[int, bool]] = []

    def recorded(self: Queries) -> bool:
        answers.append((starts(), wanted(self)))
        return answers[-1][1]

    monkeypatch.setattr(Queries, "_driver_wanted", recorded)
    async with start() as running, await running.client() as client:
        assert starts() == 0
        await client.create_topic("src")
        for number in (1, 2, 3):
            told = await create(client, "out", barnabas_query="SELECT a FROM src")
            assert told.error_code == ErrorCode.INVALID_REQUEST
            await until(lambda: (number, False) in answers)
        assert starts() == 3
        assert (
            running.log.count('streams.driver.starting message="starting the driver of queries and streams ..."') == 3
        )
    mode = stat.S_IMODE((Path(running.node.config.data_dir) / LOG_FILE).stat().st_mode)
    assert mode & 0o077 == 0


async def test_a_driver_that_ends_is_started_again_while_there_is_a_query(start: Start, starts: Starts) -> None:
    async with start(**BY_HAND) as running, driver_of(running), await running.client() as client:
        await client.create_topic("src")
        assert (await create(client, "out", barnabas_query="SELECT a FROM src")).error_code == 0
    assert starts() == 0
    async with start() as running, await running.client() as client:
        await until(lambda: starts() >= 3)
        deleted = await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="out")], timeout_ms=1000))
        assert deleted.responses[0].error_code == 0
        assert not running.node.queries._driver_wanted()


async def test_a_driver_whose_log_an_operator_removes_is_started_again(
    start: Start, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start(**BY_HAND) as running, driver_of(running), await running.client() as client:
        await client.create_topic("src")
        assert (await create(client, "out", barnabas_query="SELECT a FROM src")).error_code == 0
        log = Path(running.node.config.data_dir) / LOG_FILE
    command = driver_process.DriverProcess._command(None)[-1]  # type: ignore[arg-type]
    removed = ["/bin/sh", "-c", f"{command}; rm {log}"]
    monkeypatch.setattr(driver_process.DriverProcess, "_command", lambda _: removed)
    async with start() as running:
        await until(lambda: starts() >= 3)
        assert "it said nothing" in running.log


async def test_where_spark_is_missing_no_driver_is_started_and_the_client_is_told_at_once(
    start: Start, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    async with start() as running, await running.client() as client:
        await client.create_topic("src")
        for _ in range(2):
            with trio.fail_after(20):
                told = await create(client, "out", barnabas_query="SELECT a FROM src")
            assert told.error_code == ErrorCode.INVALID_REQUEST
            assert told.error_message == f"Query topics need Spark, and pyspark is not installed: {SPARK_REMEDY}"
        assert running.log.count("streams.driver.not_started") == 1
        assert starts() == 0
        monkeypatch.undo()
