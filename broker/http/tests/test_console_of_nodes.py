"""The console of each node shows the data of all nodes."""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.broker.http.asking import Asker
from barnabas.broker.http.routing import Routing
from barnabas.broker.http.tests.client import browse
from barnabas.broker.http.tests.test_console import page, texts
from barnabas.broker.registry import Endpoint
from barnabas.broker.tests.client import NOW, batch_of
from barnabas.broker.tests.conftest import until
from barnabas.broker.tests.several import Several, several
from barnabas.broker.tests.test_queries import create, driver_of
from barnabas.groupcoord.timers import load_partition
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.fetch import FetchRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.list_groups import ListGroupsRequest
from barnabas.wire.messages.list_transactions import ListTransactionsRequest
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.types import Message

NODES = (1, 2, 3)
GROUPS = [f"g{number}" for number in range(6)]


def three(path: Path) -> AbstractAsyncContextManager[Several]:
    return several(
        path,
        barnabas_streams_driver="none",
        barnabas_http_listen="127.0.0.1:0",
        barnabas_http_console_writes="true",
        offsets_topic_num_partitions="6",
        transaction_state_log_num_partitions="6",
    )


async def filled(nodes: Several) -> None:
    """Create a topic with a record in each partition, and groups on all nodes that have read the first one."""
    client = await nodes.client(1)
    await client.create_topic("t", 6)
    for index, leader in (await nodes.leaders("t")).items():
        told = await (await nodes.client(leader)).produce("t", batch_of(b"a%d" % index, b"b%d" % index), index)
        assert told.error_code == 0
    answer = await client.ask(FindCoordinatorRequest(coordinator_keys=GROUPS))
    assert {each.node_id for each in answer.coordinators} == set(NODES)
    for each in answer.coordinators:
        parts = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in range(6)]
        asked = OffsetCommitRequest(group_id=each.key, topics=[OffsetCommitRequestTopic(name="t", partitions=parts)])
        told = await (await nodes.client(each.node_id)).ask(asked, 9)
        assert [part.error_code for part in told.topics[0].partitions] == [0] * 6


@pytest.mark.parametrize("node", NODES)
async def test_topics_records_and_groups_of_all_nodes_are_shown_by_each(tmp_path: Path, node: int) -> None:
    async with three(tmp_path) as nodes:
        await filled(nodes)
        shown = await page(nodes[node])
        (topic,) = (await shown.get("topics"))["topics"]
        assert (topic["records"], topic["partitions"]) == (12, 6)
        one = await shown.get("topic", name="t")
        assert [part["end"] for part in one["partitions"]] == [2] * 6
        assert all(part["bytes"] for part in one["partitions"])
        expected = sorted(f"{letter}{index}" for letter in "ab" for index in range(6))
        assert sorted(texts(await shown.all_records(name="t", limit=5))) == expected
        groups = (await shown.get("groups"))["groups"]
        assert [(group["id"], group["lag"]) for group in groups] == [(name, 6) for name in GROUPS]
        for name in GROUPS:
            group = await shown.get("group", id=name)
            assert [row["lag"] for row in group["offsets"]] == [1] * 6
        assert [row["lag"] for row in (await shown.get("topic/groups", name="t"))["groups"]] == [6] * 6
        (disk,) = (await shown.get("overview"))["disks"]
        assert disk["logs"] > 0
        nodes.no_errors()


@pytest.mark.parametrize("node", NODES)
async def test_what_other_nodes_have_is_changed_from_any(tmp_path: Path, node: int) -> None:
    async with three(tmp_path) as nodes:
        await filled(nodes)
        shown = await page(nodes[node])
        for name in GROUPS:
            told = await shown.post("group/reset", id=name, to="latest", apply=True)
            assert [move["to"] for move in told["moves"]] == [2] * 6
        assert [group["lag"] for group in (await shown.get("groups"))["groups"]] == [0] * 6
        for index in range(6):
            await shown.post("topic/records", topic="t", partition=index, value=f"new{index}")
        rows = await shown.all_records(name="t", limit=100)
        assert sorted(text for text in texts(rows) if text.startswith("new")) == [f"new{index}" for index in range(6)]
        for name in GROUPS:
            await shown.post("group/delete", id=name)
        assert (await shown.get("groups"))["groups"] == []
        await shown.post("topic/create", name="made", partitions=3)
        assert len((await shown.get("topic", name="made"))["partitions"]) == 3
        nodes.no_errors()


async def test_the_lag_of_the_last_hour_is_at_the_coordinator(tmp_path: Path) -> None:
    async with three(tmp_path) as nodes:
        await filled(nodes)
        for node in NODES:
            metrics = nodes[node].node.metrics
            assert metrics is not None
            await metrics.watch.note_ends()
            await metrics.watch.note_lags()
        for name in GROUPS:
            told = [await (await page(nodes[node])).get("group/lags", id=name) for node in NODES]
            assert sorted(each["records"][-1:] for each in told) == [[], [], [6]]
            (here,) = [node for node, each in zip(NODES, told, strict=True) if not each["why"]]
            assert all(f"node {here}" in each["why"] for each in told if each["why"])


async def test_records_of_all_nodes_are_told_as_they_come_and_no_other_node_is_kept_waiting(tmp_path: Path) -> None:
    async with three(tmp_path) as nodes:
        await filled(nodes)
        http = nodes[1].node.http
        assert http is not None
        waits: list[int] = []
        split = Routing.split

        def noted(self: Routing, request: Message) -> dict[int, Message]:
            parts = split(self, request)
            waits.extend(
                each.max_wait_ms for node, each in parts.items() if node != 1 and isinstance(each, FetchRequest)
            )
            return parts

        with pytest.MonkeyPatch.context() as patched, trio.fail_after(60):
            patched.setattr(Routing, "split", noted)
            async with await trio.open_tcp_stream("127.0.0.1", http.port) as stream:
                await stream.send_all(b"GET /api/topic/tail?name=t HTTP/1.1\r\nHost: localhost\r\n\r\n")
                seen = b""
                while b"retry:" not in seen:
                    seen += await stream.receive_some(65536)
                await until(lambda: len(waits) >= 2)
                for index, leader in (await nodes.leaders("t")).items():
                    await (await nodes.client(leader)).produce("t", batch_of(b"late%d" % index), index)
                while not all(b"late%d" % index in seen for index in range(6)):
                    seen += await stream.receive_some(65536)
        assert set(waits) == {0}


async def test_transactions_of_all_nodes_are_shown(tmp_path: Path) -> None:
    async with three(tmp_path) as nodes:
        names = [f"tx{number}" for number in range(6)]
        client = await nodes.client(1)
        found = (await client.ask(FindCoordinatorRequest(coordinator_keys=names, key_type=1))).coordinators
        assert {each.node_id for each in found} == set(NODES)
        for each in found:
            told = await (await nodes.client(each.node_id)).ask(
                InitProducerIdRequest(transactional_id=each.key, transaction_timeout_ms=60_000)
            )
            assert told.error_code == 0
        shown = await page(nodes[2])
        assert sorted(each["id"] for each in (await shown.get("transactions"))["transactions"]) == names


async def test_a_node_that_is_away_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    async with three(tmp_path) as nodes:
        await filled(nodes)
        shown = await page(nodes[1])
        await nodes.cut_off(3)
        told = await shown.get("groups", status=503)
        assert "node 3, which has part of the data, does not answer" in str(told)
        (topic,) = (await shown.get("topics"))["topics"]
        assert (topic["partitions"], topic["records"]) == (6, None)
        await nodes.start(3)
        assert len((await shown.get("groups"))["groups"]) == 6


async def test_a_node_that_still_reads_its_groups_and_transactions_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_load, ask_there = trio.Event(), Asker._ask_there
    asked: list[tuple[type[Message], int]] = []

    async def late(*args: Any, **options: Any) -> None:
        await may_load.wait()
        await load_partition(*args, **options)

    async def noted(self: Asker, endpoint: Endpoint, node: int, request: Message) -> Message:
        asked.append((type(request), node))
        return await ask_there(self, endpoint, node, request)

    async with three(tmp_path) as nodes:
        await filled(nodes)
        ids = [f"tx{number}" for number in range(6)]
        client = await nodes.client(1)
        found = (await client.ask(FindCoordinatorRequest(coordinator_keys=ids, key_type=1))).coordinators
        for each in found:
            begun = InitProducerIdRequest(transactional_id=each.key, transaction_timeout_ms=60_000)
            assert (await (await nodes.client(each.node_id)).ask(begun)).error_code == 0
        found = (await client.ask(FindCoordinatorRequest(coordinator_keys=GROUPS))).coordinators
        of_node_3 = next(each.key for each in found if each.node_id == 3)
        pages = {path: await page(nodes[1]) for path in ("groups", "transactions", "group", "overview")}
        await nodes.cut_off(3)
        monkeypatch.setattr("barnabas.broker.coordinators.loading.load_partition", late)
        monkeypatch.setattr(Asker, "_ask_there", noted)
        await nodes.start(3)
        assert (await pages["overview"].get("overview"))["counts"]["groups"] is None, "it waits for nobody"
        with monkeypatch.context() as hurried:
            hurried.setattr("barnabas.broker.http.asking.LOADING_SECONDS", 0.0)
            late_one = (await pages["overview"].get("groups", 503))["error"]
        assert late_one.endswith("a node has just started and still reads this: try again")
        asked.clear()
        told: dict[str, Any] = {}

        async def get(path: str, **query: Any) -> None:
            told[path] = await pages[path].get(path, **query)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(get, "groups")
                nursery.start_soon(get, "transactions")
                nursery.start_soon(partial(get, "group", id=of_node_3))
                waited = (ListGroupsRequest, ListTransactionsRequest, DescribeGroupsRequest)
                await until(lambda: all(asked.count((kind, 3)) >= 3 for kind in waited))
                assert not told
                assert asked.count((ListGroupsRequest, 2)) == 1, "only who is loading is asked again"
                may_load.set()
        assert [each["id"] for each in told["groups"]["groups"]] == GROUPS
        assert [each["id"] for each in told["transactions"]["transactions"]] == ids
        assert len(told["group"]["offsets"]) == 6
        assert (await pages["overview"].get("overview"))["counts"]["groups"] == 6


async def test_other_nodes_are_asked_in_the_name_of_the_visitor(tmp_path: Path) -> None:
    async with three(tmp_path) as nodes:
        await filled(nodes)
        visits: list[Any] = []

        def noted(node: int) -> None:
            desk = nodes[node].node.together._desk  # type: ignore[union-attr]
            carry_out = desk.carry_out

            async def carried(data: bytes, who: Any, host: str) -> bytes:
                visits.append((node, who.type, who.name, host))
                return await carry_out(data, who, host)

            desk.carry_out = carried  # type: ignore[method-assign]

        for node in NODES:
            noted(node)
        shown = await page(nodes[1])
        await shown.get("groups")
        assert {visit[0] for visit in visits} == {2, 3}
        assert {visit[1:] for visit in visits} == {("User", "ANONYMOUS", "127.0.0.1")}


@pytest.mark.parametrize("node", NODES)
async def test_how_a_query_goes_is_shown_by_each(tmp_path: Path, node: int) -> None:
    async with three(tmp_path) as nodes:
        shown = await page(nodes[node])
        assert (await shown.get("jobs"))["driver"]["told_ms_ago"] is None
        async with driver_of(nodes[1]) as driver:
            client = await nodes.client(node)
            await client.create_topic("src", 3)
            assert (await create(client, "hot", barnabas_query="SELECT a FROM src")).error_code == 0
            for lag in (8, 7):
                figures = {"topic": "hot", "source": "src", "state": "RUNNING", "lag": lag}
                await driver.say({"type": "status", "at_ms": NOW, "queries": [figures]})
            with trio.fail_after(60):
                while (job := (await shown.get("jobs"))["jobs"][0])["lag"] != 7:
                    await trio.lowlevel.checkpoint()
        assert (job["topic"], job["kind"], job["state"]) == ("hot", "query", "RUNNING")
        assert (nodes[node].node.queries.status is None) == (node != 1), "which metrics would take for what it hears"


async def test_each_node_tells_its_own_figures_whose_sums_are_the_brokers(tmp_path: Path) -> None:
    async with three(tmp_path) as nodes:
        await filled(nodes)
        told = [await metrics(nodes, node) for node in NODES]
        led = [each["kafka_server_replicamanager_leadercount", ()] for each in told]
        everything = sum(len(topic.partitions) for topic in nodes.owner.metadata.topics.values())
        assert sum(led) == everything
        assert max(led) < everything
        assert [each["kafka_controller_kafkacontroller_activecontrollercount", ()] for each in told] == [1, 0, 0]
        assert {each["kafka_controller_kafkacontroller_activebrokercount", ()] for each in told} == {3}
        lags: dict[tuple[str, str], list[float]] = {}
        for each in told:
            for (name, labels), value in each.items():
                if name == "kafka_consumergroup_lag":
                    group, index = dict(labels)["consumergroup"], dict(labels)["partition"]
                    lags.setdefault((group, index), []).append(value)
        assert lags == {(group, str(index)): [1] for group in GROUPS for index in range(6)}
        assert sum(each["kafka_server_brokertopicmetrics_messagesin_total", (("topic", "t"),)] for each in told) == 12


@pytest.mark.parametrize("node", NODES)
async def test_any_node_has_one_page_with_the_metrics_of_all(tmp_path: Path, node: int) -> None:
    name = "kafka_server_replicamanager_leadercount"
    async with three(tmp_path) as nodes:
        await filled(nodes)
        alone = {each: (await metrics(nodes, each))[name, ()] for each in NODES}
        told = await metrics(nodes, node, "/metrics?nodes=all")
        assert {each: told[name, (("node", str(each)),)] for each in NODES} == alone
        assert {each: told["barnabas_node_up", (("node", str(each)),)] for each in NODES} == dict.fromkeys(NODES, 1)
        shown = await browse(nodes[node].node.http.port)  # type: ignore[union-attr]
        text = (await shown.ask("GET", "/metrics?nodes=all", {"Accept": "application/openmetrics-text"})).body
        assert text.endswith(b"\n# EOF\n")
        assert text.count(b"# EOF") == 1
        assert (await shown.ask("GET", "/metrics?nodes=2")).status == 400


async def test_the_page_of_all_says_which_node_is_away(tmp_path: Path) -> None:
    async with three(tmp_path) as nodes:
        await nodes.cut_off(3)
        told = await metrics(nodes, 2, "/metrics?nodes=all")
        assert [told["barnabas_node_up", (("node", str(each)),)] for each in NODES] == [1, 1, 0]
        assert {dict(labels)["node"] for name, labels in told if name.startswith("kafka_")} == {"1", "2"}


async def metrics(
    nodes: Several, node: int, path: str = "/metrics"
) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The metrics of a node, after it has asked for the ends of partitions."""
    http = nodes[node].node.http
    assert http is not None
    collector: Any = http._metrics._collector
    await collector._watch.note_ends()
    text = (await (await browse(http.port)).ask("GET", path)).body.decode()
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            name, _, labels = name.partition("{")
            pairs = tuple(sorted(re.findall(r'(\w+)="([^"]*)"', labels)))
            found[name, pairs] = float(value)
    return found
