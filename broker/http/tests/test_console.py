"""The answers of the console: it is a client in memory, with the visitor's rights."""

from __future__ import annotations

import json
import socket
import struct
import threading
from typing import Any
from urllib.parse import urlencode

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from barnabas.broker.http.asking import CLIENT_ID, Asker
from barnabas.broker.http.messages import Visitor
from barnabas.broker.http.tests.client import Browser, basic, browse
from barnabas.broker.http.views import topic_changes
from barnabas.broker.http.views.reading import MOST_PARTITIONS, Cursor
from barnabas.broker.metrics.lag_history import LagHistory
from barnabas.broker.security.principals import ANONYMOUS
from barnabas.broker.tests.client import Client, batch_of, produce_request
from barnabas.broker.tests.conftest import Running, Start, until
from barnabas.client.partitioner import murmur2
from barnabas.wire.acls import Operation, Permission, ResourceType
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.compression import CompressionType
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.end_txn import EndTxnRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.types import replace

HTTP = {"barnabas.http.listen": "127.0.0.1:0"}
WRITES = {**HTTP, "barnabas.http.console.writes": "true"}
USERS = 'user_ann="secret" user_bob="third" user_root="other"'
JAAS = f"org.apache.kafka.common.security.plain.PlainLoginModule required {USERS};"
#: A broker that allows everything to the super user, whom the tests use, and to ann what ACLs allow.
LOCKED = {
    **WRITES,
    "listeners": "PLAINTEXT://127.0.0.1:0,SAFE://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SAFE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.safe.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root;User:ANONYMOUS",
}


class Page:
    """An open page of the console, which reads, and makes changes with the token of its session."""

    def __init__(self, browser: Browser, headers: dict[str, str]) -> None:
        self._browser, self._headers = browser, headers

    async def get(self, path: str, status: int = 200, **query: Any) -> Any:
        got = await self._browser.ask("GET", f"/api/{path}?{urlencode(query)}", self._headers)
        assert got.status == status, (got.status, got.body)
        return got.json()

    async def post(self, path: str, status: int = 200, **body: Any) -> Any:
        token = (await self.get("session"))["csrf"]
        headers = {**self._headers, "x-csrf-token": token, "Content-Type": "application/json"}
        got = await self._browser.ask("POST", f"/api/{path}", headers, json.dumps(body).encode())
        assert got.status == status, (got.status, got.body)
        return got.json()

    async def all_records(self, **query: Any) -> list[dict[str, Any]]:
        """The records of all pages."""
        rows: list[dict[str, Any]] = []
        told = await self.get("topic/records", **query)
        while True:
            rows += told["records"]
            if told["cursor"] is None:
                return rows
            told = await self.get("topic/records", **{**query, "cursor": told["cursor"]})


async def page(running: Running, headers: dict[str, str] | None = None) -> Page:
    assert running.node.http is not None
    return Page(await browse(running.node.http.port), headers or {})


async def produce_all(client: Client, topic: str, values: list[bytes], partition: int = 0) -> None:
    assert (await client.produce(topic, batch_of(*values), partition)).error_code == 0


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return [row["value"]["text"] for row in rows]


async def commit(client: Client, group: str, topic: str, offset: int) -> None:
    await client.ask(FindCoordinatorRequest(coordinator_keys=[group]))  # creates the topic of committed offsets
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])])
    answer = await client.ask(request, 9)
    assert answer.topics[0].partitions[0].error_code == 0


async def test_the_page_is_served_and_asked_for_once(start: Start) -> None:
    async with start(more=HTTP) as running:
        assert running.node.http is not None
        browser = await browse(running.node.http.port)
        got = await browser.ask("GET", "/console/")
        assert got.status == 200
        assert got.headers["content-type"].startswith("text/html")
        assert b"<script>" not in got.body
        assert b"style=" not in got.body
        assert "default-src 'self'" in got.headers["content-security-policy"]
        again = await browser.ask("GET", "/console/", {"If-None-Match": got.headers["etag"]})
        assert (again.status, again.body) == (304, b"")
        assert (await browser.ask("GET", "/console/../console.py")).status == 404
        assert (await browser.ask("GET", "/api/nothing")).status == 404


async def test_the_overview_counts_what_there_is(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("orders", 3)
        await commit(client, "billing", "orders", 0)
        running.node.log.warning("disk.full", where="/")
        told = await (await page(running)).get("overview")
        counts = told["counts"]
        assert (counts["topics"], counts["groups"]) == (1, 1)
        assert counts["partitions"] >= 3
        assert told["disks"][0]["total"] > told["disks"][0]["usable"] > 0
        assert {"level": "warning", "event": "disk.full", "count": 1} in told["events"]
        assert told["listeners"][0]["address"] == f"127.0.0.1:{running.port}"


async def test_topics_are_filtered_sorted_and_paged(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        for index in range(5):
            await client.create_topic(f"t{index}", 1 + index % 2, retention_ms="60000")
        await produce_all(client, "t3", [b"a", b"b"])
        shown = await page(running)
        told = await shown.get("topics", limit=2, start=2)
        assert [each["name"] for each in told["topics"]] == ["t2", "t3"]
        assert (told["matched"], told["total"]) == (5, 5)
        assert told["topics"][1]["records"] == 2
        assert told["topics"][1]["retention_ms"] == "60000"
        assert (await shown.get("topics", sort="records", order="desc"))["topics"][0]["name"] == "t3"
        assert (await shown.get("topics", sort="bytes", order="desc"))["topics"][0]["name"] == "t3"
        assert [each["name"] for each in (await shown.get("topics", filter="T4"))["topics"]] == ["t4"]
        assert "sort must be one of" in (await shown.get("topics", 400, sort="colour"))["error"]


async def test_records_are_read_from_every_place(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("orders", 2)
        for index in range(30):
            await produce_all(client, "orders", [b"%d" % index], index % 2)
        shown = await page(running)
        newest = await shown.get("topic/records", name="orders", limit=4)
        assert len(newest["records"]) == 4
        assert {row["value"]["text"] for row in newest["records"]} == {"26", "27", "28", "29"}
        everything = await shown.all_records(name="orders", limit=4)
        assert sorted(map(int, texts(everything))) == list(range(30))
        oldest = await shown.all_records(name="orders", limit=7, **{"from": "oldest"})
        assert sorted(map(int, texts(oldest))) == list(range(30))
        at = await shown.all_records(name="orders", partition=1, at=12, limit=2, **{"from": "offset"})
        assert [row["offset"] for row in at] == [12, 13, 14]
        assert await shown.all_records(name="orders", at=2 * 10**12, **{"from": "time"}) == []
        assert "no partition 7" in (await shown.get("topic/records", 404, name="orders", partition=7))["error"]
        assert "UNKNOWN_TOPIC" in (await shown.get("topic/records", 404, name="nowhere"))["error"]


@pytest.mark.parametrize("where", ["oldest", "newest"])
async def test_records_that_are_deleted_between_two_pages_are_passed_over(start: Start, where: str) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("orders")
        for index in range(20):
            await produce_all(client, "orders", [b"%d" % index])
        shown = await page(running)
        query: dict[str, Any] = {"name": "orders", "limit": 2, "from": where}
        told = await shown.get("topic/records", **query)
        gone = DeleteRecordsPartition(partition_index=0, offset=10)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="orders", partitions=[gone])], timeout_ms=1000)
        assert (await client.ask(request)).topics[0].partitions[0].error_code == 0
        rest = await shown.all_records(name="orders", limit=2, cursor=told["cursor"])
        assert sorted(map(int, texts(rest))) == list(range(10, 20 if where == "oldest" else 18))


async def test_as_many_partitions_as_can_be_merged_are_paged(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("wide", MOST_PARTITIONS)
        for index in range(0, MOST_PARTITIONS, 10):
            await produce_all(client, "wide", [b"%d" % index], index)
        shown = await page(running)
        for where in ("oldest", "newest"):
            rows = await shown.all_records(name="wide", limit=7, **{"from": where})
            assert sorted(map(int, texts(rows))) == list(range(0, MOST_PARTITIONS, 10))
        await client.create_topic("wider", MOST_PARTITIONS + 1)
        assert "choose a partition" in (await shown.get("topic/records", 400, name="wider"))["error"]


async def test_a_search_finds_texts_and_paths_in_all_pages(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("orders")
        for first in range(0, 3000, 500):
            values = [b'{"id": %d, "who": {"name": "n%d"}}' % (n, n % 7) for n in range(first, first + 500)]
            await produce_all(client, "orders", values)
        shown = await page(running)
        found = await shown.all_records(name="orders", search="$.id >= 2990")
        assert len(found) == 10
        assert len(await shown.all_records(name="orders", search='$.who.name = "n3"', limit=200)) == len(
            range(3, 3000, 7)
        )
        assert [row["offset"] for row in await shown.all_records(name="orders", search='"ID": 17,')] == [17]
        assert [
            row["offset"] for row in await shown.all_records(name="orders", search="$.id = 17", **{"from": "oldest"})
        ] == [17]
        assert "the search" in (await shown.get("topic/records", 400, name="orders", search="$.a ?"))["error"]


async def test_compressed_bombs_and_damage_are_told_and_passed_over(start: Start) -> None:
    async with start(more={**HTTP, "message.max.bytes": "10000000"}) as running, await running.client() as client:
        await client.create_topic("bombs")
        # The broker accepts it, because it is small when compressed. It is larger than the console examines.
        big = [Record(b"k", bytes(1 << 20), 1_700_000_000_000) for _ in range(40)]
        batch = build_batch(big, compression=CompressionType.ZSTD)
        assert (await client.produce("bombs", batch)).error_code == 0
        await produce_all(client, "bombs", [b"after"])
        shown = await page(running)
        rows = await shown.all_records(name="bombs")
        assert rows[0]["value"] == {"text": "after", "size": 5, "cut": False}
        assert "problem" in rows[-1]
        assert len(rows) == 2


async def test_values_are_cut_and_whole_ones_can_be_had(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("big")
        await produce_all(client, "big", [b"x" * 900_000, b"\xff\x00", "é".encode() * 1500])
        shown = await page(running)
        rows = {row["offset"]: row for row in await shown.all_records(name="big")}
        assert len(rows[0]["value"]["text"]) == 2048
        assert rows[0]["value"]["cut"]
        assert rows[0]["value"]["size"] == 900_000
        assert rows[1]["value"] == {"hex": "ff00", "size": 2, "cut": False}
        assert rows[2]["value"]["text"] == "é" * 1024
        whole = await shown.get("topic/record", name="big", partition=0, offset=0)
        assert len(whole["value"]["text"]) == 256 << 10
        assert running.node.http is not None
        browser = await browse(running.node.http.port)
        got = await browser.ask("GET", "/api/topic/download?name=big&partition=0&offset=0")
        assert got.body == b"x" * 900_000
        assert got.headers["content-disposition"].startswith("attachment")
        assert (await shown.get("topic/record", 404, name="big", partition=0, offset=9))["error"]


@pytest.mark.parametrize(
    "cursor", ["{}", "f~", "x~0.1.2", "f~0.1", "f~0.1.2.3", "f~0.-5.5", "f~0.9e99x.5", "f~0.1.ffffffffffffffff"]
)
async def test_a_cursor_that_is_none_is_refused(start: Start, cursor: str) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("orders")
        told = await (await page(running)).get("topic/records", 400, name="orders", cursor=cursor)
        assert "cursor" in told["error"]


@pytest.mark.parametrize("way", ["b", "f"])
async def test_a_cursor_far_from_the_log_ends(start: Start, way: str) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("orders")
        await produce_all(client, "orders", [b"a"])
        cursor = str(Cursor({0: 0}, {0: 2**62}, way == "b"))
        told = await (await page(running)).get("topic/records", name="orders", cursor=cursor)
        assert len(told["records"]) <= 1


async def producer_id(client: Client, transactional_id: str) -> InitProducerIdResponse:
    """A new epoch, once the previous transaction is complete."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    with trio.fail_after(60):
        while True:
            answer: InitProducerIdResponse = await client.ask(request)
            if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                assert answer.error_code == 0
                return answer


async def test_records_of_aborted_transactions_are_shown_only_when_asked_for(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("orders")
        await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]))
        for is_committed in (False, True):
            given = await producer_id(client, "tx")
            word = b"kept" if is_committed else b"gone"
            who: dict[str, Any] = {
                "producer_id": given.producer_id,
                "producer_epoch": given.producer_epoch,
                "base_sequence": 0,
            }
            request = produce_request("orders", batch_of(word, is_transactional=True, **who))
            answer = await client.ask(replace(request, transactional_id="tx"), 12)
            assert answer.responses[0].partition_responses[0].error_code == 0
            if not is_committed:
                (open_,) = (await (await page(running)).get("transactions"))["transactions"]
                assert (open_["id"], open_["state"]) == ("tx", "Ongoing")
                assert open_["partitions"] == [{"topic": "orders", "partitions": [0]}]
                # The end of the log is after an open transaction, so the page ends before it.
                assert await (await page(running)).all_records(name="orders", **{"from": "oldest"}) == []
            ended = EndTxnRequest("tx", given.producer_id, given.producer_epoch, is_committed)
            assert (await client.ask(ended)).error_code == 0
        shown = await page(running)
        with trio.fail_after(60):
            while texts(await shown.all_records(name="orders")) != ["kept"]:
                await trio.lowlevel.checkpoint()
        assert texts(await shown.all_records(name="orders", committed="false")) == ["kept", "gone"]


async def test_who_is_over_a_quota_gets_the_answer_later(start: Start, mock_clock: MockClock) -> None:
    """The quota is that of clients. The record is appended, and the answer is delayed by the throttle time."""
    async with start(more=WRITES) as running, await running.client() as client:
        await client.create_topic("orders")
        quota = EntryData([EntityData("client-id", CLIENT_ID)], [OpData("producer_byte_rate", 1000.0)])
        assert (await client.ask(AlterClientQuotasRequest([quota]))).entries[0].error_code == 0
        assert running.node.http is not None
        asker = Asker(running.node.http._console._broker, Visitor(ANONYMOUS, "127.0.0.1", ""))
        answered = trio.Event()

        async def ask() -> None:
            await asker.ask(produce_request("orders", batch_of(bytes(12_000))), 12)
            answered.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            while running.node.vnodes["orders", 0].high_watermark == 0:
                await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked()
            assert not answered.is_set()
            mock_clock.jump(30)
            await answered.wait()


async def test_the_tail_tells_of_records_as_they_come(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("orders")
        await produce_all(client, "orders", [b"before"])
        assert running.node.http is not None
        stream = await trio.open_tcp_stream("127.0.0.1", running.node.http.port)
        async with stream:
            await stream.send_all(b"GET /api/topic/tail?name=orders HTTP/1.1\r\nHost: localhost\r\n\r\n")
            got = b""
            with trio.fail_after(60):
                while b"retry:" not in got:
                    got += await stream.receive_some(65536)
                await produce_all(client, "orders", [b"now"])
                while b'"text":"now"' not in got:
                    got += await stream.receive_some(65536)
        assert b"before" not in got


async def test_a_page_that_is_gone_while_it_listens_is_no_error(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("orders")
        assert running.node.http is not None
        server = running.node.http._server
        stream = await trio.open_tcp_stream("127.0.0.1", running.node.http.port)
        await stream.send_all(b"GET /api/topic/tail?name=orders HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with trio.fail_after(60):
            await stream.receive_some(65536)
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await stream.aclose()  # a reset, as browsers close such a connection
        await until(lambda: len(server) == 0)
        assert "http.failed" not in running.log


async def test_a_group_that_there_is_not_is_told_as_such_before_the_first_one_too(start: Start) -> None:
    async with start(more=WRITES) as running, await running.client() as client:
        shown = await page(running)
        assert (await shown.get("group", 404, id="nobody"))["error"] == "nobody: GROUP_ID_NOT_FOUND"
        await client.ask(FindCoordinatorRequest(coordinator_keys=["some"]))  # now there is a topic of committed offsets
        assert "nobody: GROUP_ID_NOT_FOUND" in (await shown.get("group", 404, id="nobody"))["error"]


async def test_groups_are_shown_moved_and_deleted(start: Start) -> None:
    async with start(more=WRITES) as running, await running.client() as client:
        await client.create_topic("orders")
        await produce_all(client, "orders", [b"%d" % n for n in range(10)])
        await commit(client, "billing", "orders", 4)
        shown = await page(running)
        (listed,) = (await shown.get("groups"))["groups"]
        assert (listed["id"], listed["state"], listed["lag"], listed["members"]) == ("billing", "Empty", 6, 0)
        told = await shown.get("group", id="billing")
        row = told["offsets"][0]
        assert (row["topic"], row["partition"], row["committed"], row["end"], row["lag"]) == ("orders", 0, 4, 10, 6)
        assert (await shown.get("topic/groups", name="orders"))["groups"][0]["lag"] == 6
        preview = await shown.post("group/reset", id="billing", to="shift", value=3)
        assert (preview["applied"], preview["moves"][0]["to"]) == (False, 7)
        assert (await shown.get("group", id="billing"))["offsets"][0]["committed"] == 4
        await shown.post("group/reset", id="billing", to="earliest", apply=True)
        assert (await shown.get("group", id="billing"))["offsets"][0]["committed"] == 0
        await shown.post("group/delete", id="billing")
        assert (await shown.get("groups"))["groups"] == []


async def test_a_record_is_produced(start: Start) -> None:
    async with start(more=WRITES) as running, await running.client() as client:
        await client.create_topic("orders", 3)
        shown = await page(running)
        told = await shown.post("topic/records", topic="orders", key="k", value="v", headers=[["h", "1"]])
        (row,) = await shown.all_records(name="orders")
        assert (row["partition"], row["offset"]) == (told["partition"], told["offset"])
        assert row["headers"] == [["h", {"text": "1", "size": 1, "cut": False}]]
        await shown.post("topic/records", 404, topic="orders", value="v", partition=9)
        await shown.post("topic/records", 400, topic="orders", colour="red")
        await shown.post("topic/records", 400, topic="orders", value="v", headers=[["a", 1]])
        many = await shown.post("topic/records", 400, topic="orders", value="v", headers=[["", ""]] * 100_000)
        assert "headers" in many["error"]


async def test_a_long_key_is_hashed_in_a_thread(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def noted(key: bytes) -> int:
        threads.append(threading.get_ident())
        return murmur2(key)

    monkeypatch.setattr(topic_changes, "murmur2", noted)
    async with start(more=WRITES) as running, await running.client() as client:
        await client.create_topic("orders", 3)
        shown = await page(running)
        key = "k" * 900_000
        told = await shown.post("topic/records", topic="orders", key=key, value="v")
        assert told["partition"] == murmur2(key.encode()) % 3
    assert threads
    assert threading.get_ident() not in threads


async def test_a_topic_is_made_changed_and_deleted(start: Start) -> None:
    async with start(more=WRITES) as running:
        shown = await page(running)
        made: dict[str, Any] = {"name": "orders", "partitions": 3, "settings": {"retention.ms": "1000"}}
        assert await shown.post("topic/create", **made) == {"name": "orders", "partitions": 3}
        assert "TOPIC_ALREADY_EXISTS" in (await shown.post("topic/create", 400, **made))["error"]
        wrong = await shown.post("topic/create", 400, name="other", settings={"retention.ms": "long"})
        assert "retention.ms" in wrong["error"]
        (row,) = (await shown.get("topics"))["topics"]
        assert (row["partitions"], row["retention_ms"]) == (3, "1000")
        await shown.post("topic/alter", name="orders", settings={"retention.ms": None, "cleanup.policy": "compact"})
        (row,) = (await shown.get("topics"))["topics"]
        assert (row["retention_ms"], row["cleanup_policy"]) == ("604800000", "compact")
        assert "INVALID_CONFIG" in (await shown.post("topic/alter", 400, name="orders", settings={"a.b": "c"}))["error"]
        await shown.post("topic/delete", name="orders")
        assert (await shown.get("topics"))["topics"] == []
        await shown.post("topic/delete", 404, name="orders")


async def test_nothing_is_changed_where_it_is_not_allowed(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("orders")
        shown = await page(running)
        told = await shown.post("topic/records", 403, topic="orders", value="v")
        assert "barnabas.http.console.writes=true" in told["error"]
        for path in ("group/delete", "group/reset", "topic/create", "topic/alter", "topic/delete"):
            assert "writes=true" in (await shown.post(path, 403))["error"]
        assert await shown.get("console") == {"writes": False}


async def allow(
    client: Client,
    principal: str,
    name: str,
    operation: Operation = Operation.READ,
    kind: ResourceType = ResourceType.TOPIC,
) -> None:
    acl = AclCreation(
        resource_type=kind,
        resource_name=name,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=Permission.ALLOW,
    )
    assert (await client.ask(CreateAclsRequest(creations=[acl]))).results[0].error_code == 0


async def test_the_lag_of_the_last_hour_is_there_when_a_page_opens(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        assert running.node.metrics is not None
        watch = running.node.metrics.watch
        await client.create_topic("orders")
        await produce_all(client, "orders", [b"%d" % n for n in range(10)])
        await commit(client, "billing", "orders", 4)
        shown = await page(running)
        await watch.note_lags()
        await produce_all(client, "orders", [b"more"])
        await watch.note_lags()
        told = await shown.get("group/lags", id="billing")
        assert told["records"][-2:] == [6, 7]
        assert told["at"] == sorted(told["at"])
        assert "GROUP_ID_NOT_FOUND" in (await shown.get("group/lags", 404, id="nobody"))["error"]
        watch.lag_history = LagHistory()
        assert "begins here within a minute" in (await shown.get("group/lags", id="billing"))["why"]
        watch.lag_history.is_full = True
        assert "kept for 1,000 groups" in (await shown.get("group/lags", id="billing"))["why"]


async def test_the_lag_of_the_last_hour_is_for_who_may_describe_its_topics(start: Start) -> None:
    async with start(more=LOCKED) as running, await running.client() as client:
        assert running.node.metrics is not None
        for topic in ("hers", "others"):
            await client.create_topic(topic)
            await commit(client, "g", topic, 0)
        await running.node.metrics.watch.note_lags()
        await allow(client, "User:ann", "hers", Operation.DESCRIBE)
        ann = await page(running, basic("ann", "secret"))
        assert "AUTHORIZATION_FAILED" in (await ann.get("group/lags", 403, id="g"))["error"]
        await allow(client, "User:ann", "g", Operation.DESCRIBE, ResourceType.GROUP)
        assert "topics that you may not describe" in (await ann.get("group/lags", id="g"))["why"]
        await allow(client, "User:ann", "others", Operation.DESCRIBE)
        assert (await ann.get("group/lags", id="g"))["records"][-1] == 0


async def test_a_user_sees_and_changes_what_acls_allow(start: Start) -> None:
    async with start(more=LOCKED) as running, await running.client() as client:
        await client.create_topic("hers")
        await client.create_topic("others")
        await produce_all(client, "hers", [b"a"])
        await allow(client, "User:ann", "hers")
        shown = await page(running, basic("ann", "secret"))
        assert [each["name"] for each in (await shown.get("topics"))["topics"]] == ["hers"]
        assert "disks" not in await shown.get("overview")
        assert (await shown.get("topic", name="hers"))["partitions"][0]["bytes"] is None
        # The visitor has not asked for the parts that a view leaves out, so no refusal is logged.
        assert "denied" not in running.log
        assert texts(await shown.all_records(name="hers")) == ["a"]
        assert "TOPIC_AUTHORIZATION_FAILED" in (await shown.get("topic/records", 403, name="others"))["error"]
        assert "TOPIC_AUTHORIZATION_FAILED" in (await shown.get("topic", 403, name="others"))["error"]
        assert (
            "TOPIC_AUTHORIZATION_FAILED" in (await shown.post("topic/records", 403, topic="hers", value="v"))["error"]
        )
        for path in ("acls", "users", "broker/settings"):
            assert "AUTHORIZATION_FAILED" in (await shown.get(path, 403))["error"]
        root = await page(running, basic("root", "other"))
        assert (await root.get("acls"))["matched"] >= 1
        assert "disks" in await root.get("overview")


async def test_settings_come_with_their_documentation(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("orders", retention_ms="60000")
        shown = await page(running)
        by_name = {each["name"]: each for each in (await shown.get("topic/settings", name="orders"))["settings"]}
        assert by_name["retention.ms"]["value"] == "60000"
        assert by_name["retention.ms"]["source"] == "topic"
        assert by_name["retention.ms"]["doc"]
        names = {each["name"] for each in (await shown.get("broker/settings"))["settings"]}
        assert "barnabas.http.console.writes" in names
        assert (await shown.get("transactions"))["transactions"] == []
        assert (await shown.get("users"))["users"] == []
        assert (await shown.get("acls"))["enforced"] is False
        assert (await shown.get("jobs"))["jobs"] == []


NASTY = [
    "",
    "x",
    "a/b",
    "..",
    "\x00",
    "é" * 200,
    "x" * 4000,
    "<script>",
    "-1",
    "9" * 19,
    "1e5",
    "[",
    "$.a = ",
    "{}",
    "\ud7ff",
]
GIVEN = (
    "name",
    "id",
    "filter",
    "search",
    "cursor",
    "partition",
    "offset",
    "at",
    "limit",
    "start",
    "sort",
    "from",
    "kind",
)
READS = (
    *("overview", "topics", "topic", "topic/settings", "topic/groups", "topic/records", "topic/record"),
    *("topic/download", "groups", "group", "jobs", "transactions", "users", "acls", "broker/settings"),
)
CHANGES = ("topic/create", "topic/alter", "topic/delete", "topic/records", "group/reset", "group/delete")


async def test_whatever_is_asked_is_answered(start: Start) -> None:
    """With 200 or with an error in the request: no view fails, and the connection stays open."""
    async with start(more=WRITES) as running, await running.client() as client:
        await client.create_topic("orders")
        shown = await page(running)
        token = {"x-csrf-token": (await shown.get("session"))["csrf"]}
        browser = shown._browser
        for path in READS:
            queries = [dict.fromkeys(GIVEN, nasty) for nasty in NASTY]
            queries += [{"name": "orders", "id": "billing", name: nasty} for name in GIVEN for nasty in NASTY[-5:]]
            for query in queries:
                got = await browser.ask("GET", f"/api/{path}?{urlencode(query)}")
                assert got.status in (200, 400, 404), (path, query, got)
        bodies: list[Any] = [[], 1, "x", None, {}, {"name": 1}]
        bodies += [{"name": nasty} for nasty in NASTY] + [{"id": nasty} for nasty in NASTY]
        bodies += [{"id": nasty, "to": "time", "value": 2**62} for nasty in NASTY]
        bodies += [{"topic": nasty, "value": None, "partition": -(2**40)} for nasty in NASTY]
        bodies += [{"topic": "orders", "value": nasty, "partition": 2**40} for nasty in NASTY]
        bodies += [{"name": "orders", "settings": {nasty: nasty}} for nasty in NASTY]
        bodies += [{"name": "new", "partitions": count} for count in (0, -2, 2**31, 2**70, 1.5)]
        for path in CHANGES:
            for body in bodies:
                got = await browser.ask("POST", f"/api/{path}", token, json.dumps(body).encode())
                assert got.status in (200, 400, 404), (path, body, got)
        assert (await browser.ask("POST", "/api/topic/create", token, b"[" * 15_000)).status == 400
        assert "http.failed" not in running.log
