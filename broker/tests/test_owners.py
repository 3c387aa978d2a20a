"""The owners of query topics and streams: which rights they need when one is made, and as long as it exists."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from barnabas.broker.security.principals import Principal
from barnabas.broker.tests.client import Client, batch_of
from barnabas.broker.tests.conftest import Running, Start, until
from barnabas.broker.tests.test_operator import FullDisk
from barnabas.broker.tests.test_queries import BY_HAND, FakeDriver, alter, configs_of, create, driver_of
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

#: The driver of these tests and the client that grants rights do not log in.
SETTINGS = {
    **BY_HAND,
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}
READ, WRITE, CREATE, ALTER, DESCRIBE_CONFIGS, ALTER_CONFIGS = 3, 4, 5, 7, 10, 11
LITERAL, PREFIXED = 3, 4
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@asynccontextmanager
async def user(running: Running, name: str) -> AsyncIterator[Client]:
    before = set(running.node.connections)
    async with await running.client() as client:
        await until(lambda: len(set(running.node.connections) - before) == 1)
        (connection,) = set(running.node.connections) - before
        connection.known_as(Principal("User", name))
        yield client


async def grant(client: Client, who: str, topic: str, *operations: int, kind: int = LITERAL) -> None:
    made = [AclCreation(2, topic, kind, f"User:{who}", "*", operation, 3) for operation in operations]
    assert {each.error_code for each in (await client.ask(CreateAclsRequest(made))).results} == {0}


async def take(client: Client, who: str, topic: str, operation: int) -> None:
    gone = DeleteAclsFilter(2, topic, LITERAL, f"User:{who}", None, operation, 3)
    answer = await client.ask(DeleteAclsRequest([gone]))
    assert len(answer.filter_results[0].matching_acls) == 1


def config(running: Running, topic: str, key: str) -> str | None:
    return running.node.metadata.topics[topic].configs.get(f"barnabas.{key}")


@asynccontextmanager
async def made(
    start: Start, query: str = "SELECT * FROM src"
) -> AsyncIterator[tuple[Running, FakeDriver, Client, Client]]:
    """Let alice make the query topic `out` over `src`."""
    async with start(**SETTINGS) as running, driver_of(running) as driver, await running.client() as admin:
        await admin.create_topic("src")
        await grant(admin, "alice", "out", CREATE, WRITE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
        await grant(admin, "alice", "src", READ)
        async with user(running, "alice") as alice:
            assert (await create(alice, "out", barnabas_query="SELECT * FROM src")).error_code == 0
            yield running, driver, admin, alice


@pytest.mark.parametrize(
    ("topic", "operation", "reason"),
    [("src", READ, "User:alice may not READ src"), ("out", WRITE, "User:alice may not WRITE out"), ("out", CREATE, "")],
)
async def test_to_make_a_query_topic_needs_these_rights(start: Start, topic: str, operation: int, reason: str) -> None:
    async with start(**SETTINGS) as running, driver_of(running), await running.client() as admin:
        await admin.create_topic("src")
        await grant(admin, "alice", "out", CREATE, WRITE)
        await grant(admin, "alice", "src", READ)
        await take(admin, "alice", topic, operation)
        async with user(running, "alice") as alice:
            refused = await create(alice, "out", barnabas_query="SELECT * FROM src")
            assert refused.error_code == DENIED
            assert reason in (refused.error_message or "")
            assert "out" not in running.node.metadata.topics
            await grant(admin, "alice", topic, operation)
            assert (await create(alice, "out", barnabas_query="SELECT * FROM src")).error_code == 0
        assert config(running, "out", "owner") == "User:alice@127.0.0.1"


async def test_what_is_wrong_with_a_query_is_told_to_who_may_read_its_source(start: Start) -> None:
    async with start(**SETTINGS) as running, driver_of(running) as driver, await running.client() as admin:
        await admin.create_topic("src")
        driver.error = "there is no column b: src has a secret_column"
        await grant(admin, "alice", "out", CREATE, WRITE)
        async with user(running, "alice") as alice:
            refused = await create(alice, "out", barnabas_query="SELECT b FROM src")
            assert (refused.error_code, refused.error_message) == (DENIED, "User:alice may not READ src")
            await grant(admin, "alice", "src", READ)
            refused = await create(alice, "out", barnabas_query="SELECT b FROM src")
            assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_CONFIG, driver.error)


async def results(driver: FakeDriver, base: int) -> int:
    return int((await driver.write("out", driver.covering(base, base + 1, base))).error_code)


@pytest.mark.parametrize(("topic", "operation"), [("src", READ), ("out", WRITE)])
async def test_a_query_stops_when_the_right_goes_and_goes_on_when_it_is_back(
    start: Start, topic: str, operation: int
) -> None:
    async with made(start) as (running, driver, admin, alice):
        assert await results(driver, 0) == 0
        heard = len(driver.messages)
        await take(admin, "alice", topic, operation)
        assert await results(driver, 1) == DENIED
        await until(lambda: config(running, "out", "denied") is not None)
        reason = f"User:alice may not {'READ' if operation == READ else 'WRITE'} {topic}"
        assert (await configs_of(alice, "out"))["barnabas.denied"] == reason
        await until(lambda: {"type": "changed"} in driver.messages[heard:])
        assert f'reason="{reason}"' in running.log
        heard = len(driver.messages)
        await grant(admin, "alice", topic, operation)
        assert await results(driver, 1) == 0
        await until(lambda: config(running, "out", "denied") is None)
        await until(lambda: {"type": "changed"} in driver.messages[heard:])


async def test_the_reason_outlives_a_restart_and_rights_are_looked_at_then(start: Start) -> None:
    async with made(start) as (running, _, admin, _):
        await take(admin, "alice", "src", READ)
        await until(lambda: config(running, "out", "denied") is not None)
    async with start(**SETTINGS) as running:
        assert config(running, "out", "denied") == "User:alice may not READ src"
    async with start(**SETTINGS | {"super_users": "User:ANONYMOUS;User:alice"}) as running:
        await until(lambda: config(running, "out", "denied") is None)
    async with start(**SETTINGS) as running:
        await until(lambda: config(running, "out", "denied") is not None)


async def test_without_an_authorizer_nobody_is_denied(start: Start) -> None:
    async with made(start) as (running, _, admin, _):
        await take(admin, "alice", "src", READ)
        await until(lambda: config(running, "out", "denied") is not None)
    async with start(**BY_HAND) as running, driver_of(running) as driver:
        assert await results(driver, 0) == 0
        await until(lambda: config(running, "out", "denied") is None)


async def test_a_pattern_needs_all_that_it_matches_now_and_later(start: Start) -> None:
    async with start(**SETTINGS) as running, driver_of(running) as driver, await running.client() as admin:
        await admin.create_topic("log.a")
        await admin.create_topic("log.b")
        await grant(admin, "alice", "out", CREATE, WRITE)
        await grant(admin, "alice", "log.a", READ)
        query = "SELECT * FROM topics('log[.].*')"
        async with user(running, "alice") as alice:
            assert (await create(alice, "out", barnabas_query=query)).error_code == DENIED
            await grant(admin, "alice", "log.b", READ)
            assert (await create(alice, "out", barnabas_query=query)).error_code == 0
        assert await results(driver, 0) == 0
        await admin.create_topic("log.secret")
        await until(lambda: config(running, "out", "denied") is not None)
        assert config(running, "out", "denied") == "User:alice may not READ a topic that log[.].* matches"
        assert await results(driver, 1) == DENIED
        await grant(admin, "alice", "log.", READ, kind=PREFIXED)
        await until(lambda: config(running, "out", "denied") is None)


async def test_dead_letters_are_for_who_may_read_the_sources(start: Start) -> None:
    async with made(start) as (running, driver, admin, _):
        letters = await create(admin, "out.dead-letter", barnabas_query_dead_letter_of="out")
        assert letters.error_code == 0
        assert (await driver.write("out.dead-letter", driver.covering(0, 1, 0))).error_code == 0
        await grant(admin, "bob", "out", READ, kind=PREFIXED)
        async with user(running, "bob") as bob:
            assert (await bob.fetch("out")).error_code == 0
            assert (await bob.fetch("out.dead-letter")).error_code == DENIED
            await grant(admin, "bob", "src", READ)
            assert (await bob.fetch("out.dead-letter")).error_code == 0
            await take(admin, "bob", "src", READ)
            assert (await bob.fetch("out.dead-letter")).error_code == DENIED
        await take(admin, "alice", "src", READ)
        assert (await driver.write("out.dead-letter", driver.covering(1, 2, 1))).error_code == DENIED


async def test_what_the_broker_sets_is_not_set_by_others(start: Start) -> None:
    async with made(start) as (running, _, admin, alice):
        for key in ("owner", "denied"):
            forged: Any = {f"barnabas_{key}": "User:alice@*"}
            refused = await create(admin, "new", **forged)
            assert refused.error_code == ErrorCode.INVALID_CONFIG
            for value in ("User:bob", None):
                changed: Any = {f"barnabas_{key}": value}
                if key == "owner" or value is not None:
                    assert (await alter(alice, "out", **changed)).error_code == ErrorCode.INVALID_CONFIG
        assert config(running, "out", "owner") == "User:alice@127.0.0.1"
        assert config(running, "out", "denied") is None


async def test_who_may_do_what_a_query_does_can_take_it_over(start: Start) -> None:
    async with made(start) as (running, _, admin, _):
        await take(admin, "alice", "src", READ)
        await until(lambda: config(running, "out", "denied") is not None)
        await grant(admin, "bob", "out", WRITE, ALTER_CONFIGS)
        async with user(running, "bob") as bob:
            assert (await alter(bob, "out", barnabas_owner="User:bob")).error_code == DENIED
            await grant(admin, "bob", "src", READ)
            assert (await alter(bob, "out", barnabas_owner="User:bob")).error_code == 0
        assert config(running, "out", "owner") == "User:bob@127.0.0.1"
        await until(lambda: config(running, "out", "denied") is None)


async def test_who_changes_a_query_owns_it(start: Start) -> None:
    async with made(start) as (running, _, admin, _):
        await grant(admin, "bob", "out", WRITE, ALTER_CONFIGS)
        async with user(running, "bob") as bob:
            changed = await alter(bob, "out", barnabas_query="SELECT a FROM src")
            assert (changed.error_code, changed.error_message) == (DENIED, "User:bob may not READ src")
            await grant(admin, "bob", "src", READ)
            assert (await alter(bob, "out", barnabas_query="SELECT a FROM src")).error_code == 0
        assert config(running, "out", "owner") == "User:bob@127.0.0.1"


async def test_an_ordinary_topic_stays_one_for_who_may_not(start: Start) -> None:
    async with start(**SETTINGS) as running, driver_of(running), await running.client() as admin:
        await admin.create_topic("src")
        await admin.create_topic("plain")
        await grant(admin, "alice", "plain", WRITE, ALTER_CONFIGS)
        async with user(running, "alice") as alice:
            assert (await alter(alice, "plain", barnabas_query="SELECT * FROM src")).error_code == DENIED
            assert (await alice.produce("plain", batch_of(b"x"))).error_code == 0
        assert config(running, "plain", "owner") is None


async def test_with_a_full_disk_the_results_are_refused_all_the_same(start: Start) -> None:
    """The reason cannot be written, but the results are refused, because the right is missing."""
    disk = FullDisk("__cluster_metadata-0")
    async with (
        start(io_calls=disk, **SETTINGS) as running,
        driver_of(running) as driver,
        await running.client() as admin,
    ):
        await admin.create_topic("src")
        await grant(admin, "alice", "out", CREATE, WRITE)
        await grant(admin, "alice", "src", READ)
        async with user(running, "alice") as alice:
            assert (await create(alice, "out", barnabas_query="SELECT * FROM src")).error_code == 0
        await take(admin, "alice", "src", READ)
        await until(lambda: config(running, "out", "denied") is not None)
        disk.full = True
        running.node.metadata.topics["out"].configs.pop("barnabas.denied")  # as if it was not written yet
        running.node.owners._look.set()
        await until(lambda: "owner.not_told" in running.log)
        assert await results(driver, 0) == DENIED
        disk.full = False


async def test_a_source_made_again_by_somebody_else_is_not_read_by_who_may_not(start: Start) -> None:
    async with made(start) as (_, driver, admin, _):
        assert (await admin.ask(DeleteTopicsRequest([DeleteTopicState("src")]))).responses[0].error_code == 0
        await admin.create_topic("src")
        await take(admin, "alice", "src", READ)
        assert await results(driver, 0) == DENIED
