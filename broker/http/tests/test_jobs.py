"""What the console shows of query topics and streams, and to whom. The tests act as the streams driver."""

from __future__ import annotations

from typing import Any

import trio

from barnabas.broker.http.tests.client import basic
from barnabas.broker.http.tests.test_console import HTTP, LOCKED, Page, allow, page
from barnabas.broker.tests.client import NOW
from barnabas.broker.tests.conftest import Start
from barnabas.broker.tests.test_queries import BY_HAND, create
from barnabas.broker.tests.test_streams import STREAM, driver_of
from barnabas.wire.acls import Operation

DRIVER = {key.replace("_", "."): value for key, value in BY_HAND.items()}


async def jobs(shown: Page) -> dict[str, dict[str, Any]]:
    return {each["topic"]: each for each in (await shown.get("jobs"))["jobs"]}


async def test_queries_and_streams_are_shown_with_what_they_read(start: Start) -> None:
    async with (
        start(more={**HTTP, **DRIVER}) as running,
        driver_of(running) as driver,
        await running.client() as client,
    ):
        await client.create_topic("src")
        assert (await create(client, "hot", barnabas_query="SELECT a FROM src")).error_code == 0
        assert (await create(client, "all", barnabas_query="SELECT a FROM topics('s.*')")).error_code == 0
        made = await create(client, "sums", barnabas_stream=STREAM.format("src"), barnabas_stream_name="by-second")
        assert made.error_code == 0
        figures = {"source": "src", "state": "RUNNING", "lag": 7}
        await driver.say(
            {
                "type": "status",
                "at_ms": NOW,
                "queries": [{"topic": "hot", **figures}],
                "streams": [{"topic": "sums", "name": "by-second", **figures, "last_error": "a is not a number"}],
            }
        )
        shown = await page(running)
        with trio.fail_after(60):
            while (found := await jobs(shown))["sums"]["lag"] is None:
                await trio.lowlevel.checkpoint()
        assert {name: each["kind"] for name, each in found.items()} == {
            "all": "query",
            "hot": "query",
            "sums": "stream",
        }
        assert (found["hot"]["text"], found["hot"]["sources"]) == ("SELECT a FROM src", ["src"])
        assert (found["all"]["pattern"], found["all"]["sources"]) == ("s.*", ["src", "sums"])
        assert (found["sums"]["name"], found["sums"]["last_error"]) == ("by-second", "a is not a number")
        assert found["hot"]["owner"] == "User:ANONYMOUS@127.0.0.1"
        kinds = {each["name"]: each["kind"] for each in (await shown.get("topics"))["topics"]}
        assert kinds == {"all": "query", "hot": "query", "src": "topic", "sums": "stream"}
        assert {each["name"] for each in (await shown.get("topics", kind="stream"))["topics"]} == {"sums"}
        of_source = (await shown.get("topic", name="src"))["job"]
        assert of_source["writes"] is None
        assert {each["topic"] for each in of_source["read_by"]} == {"all", "hot", "sums"}
        assert (await shown.get("topic", name="hot"))["job"]["writes"]["topic"] == "hot"
        counts = (await shown.get("overview"))["counts"]
        assert (counts["query_topics"], counts["streams"]) == (2, 1)


async def test_what_a_job_tells_of_its_sources_is_for_who_may_see_them(start: Start) -> None:
    async with (
        start(more={**LOCKED, **DRIVER}) as running,
        driver_of(running) as driver,
        await running.client() as client,
    ):
        await client.create_topic("secret")
        await client.create_topic("seen")
        assert (await create(client, "all", barnabas_query="SELECT a FROM topics('se.*')")).error_code == 0
        assert (await create(client, "other", barnabas_query="SELECT a FROM secret")).error_code == 0
        failed = {"topic": "all", "source": "", "state": "FAILED", "last_error": "of secret: 4711"}
        await driver.say({"type": "status", "at_ms": NOW, "queries": [failed]})
        with trio.fail_after(60):
            while running.node.queries.status is None:
                await trio.lowlevel.checkpoint()
        await allow(client, "User:ann", "all", Operation.DESCRIBE_CONFIGS)
        await allow(client, "User:ann", "all", Operation.DESCRIBE)
        await allow(client, "User:ann", "seen", Operation.DESCRIBE)
        shown = await page(running, basic("ann", "secret"))
        found = await jobs(shown)
        assert set(found) == {"all"}
        assert (found["all"]["sources"], found["all"]["state"], found["all"]["last_error"]) == (
            ["seen"],
            "FAILED",
            None,
        )
        assert "secret" not in str(await shown.get("jobs"))
        root = await page(running, basic("root", "other"))
        assert (await jobs(root))["all"]["last_error"] == "of secret: 4711"
        assert set((await jobs(root))["all"]["sources"]) == {"secret", "seen"}
        # A reader that the visitor may not see leaves no trace.
        assert (await shown.get("topic", name="seen"))["job"]["read_by"][0]["topic"] == "all"
        await allow(client, "User:bob", "seen", Operation.DESCRIBE)
        bob = await page(running, basic("bob", "third"))
        assert (await bob.get("topic", name="seen"))["job"] is None
