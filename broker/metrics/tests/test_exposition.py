"""The metrics of a running broker, read as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from barnabas.broker.metrics import collector
from barnabas.broker.node import Node
from barnabas.broker.tests.client import Client, batch_of, fetch_request, frame_of, produce_request
from barnabas.broker.tests.conftest import Running, Start
from barnabas.broker.tests.test_transactions import Producer
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.wire.messages.fetch import FetchRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

WATCHED = {"barnabas.http.listen": "127.0.0.1:0"}


class Told:
    """All series of one answer, by name and labels."""

    def __init__(self, text: str) -> None:
        self.kinds: dict[str, str] = {}
        self._series: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text):
            self.kinds[family.name] = family.type
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self._series, f"{key} stands twice"
                self._series[key] = sample.value

    def of(self, name: str, **labels: str) -> Any:
        """The value, a float; None if there is no such series."""
        return self._series.get((name, frozenset(labels.items())))

    def labels(self, name: str) -> list[Mapping[str, str]]:
        return [dict(labels) for each, labels in self._series if each == name]


async def told(node: Node) -> Told:
    assert node.metrics is not None
    text, content_type = await node.metrics.render("text/plain")
    assert content_type.startswith("text/plain")
    return Told(text.decode())


async def commit(client: Client, group: str, topic: str, offset: int) -> None:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])])
    await client.ask(FindCoordinatorRequest(key=group), 3)
    with trio.fail_after(60):
        while True:
            answer = await client.ask(request, 8)
            code = answer.topics[0].partitions[0].error_code
            if code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
    assert code == 0


async def test_a_broker_that_nobody_watches_measures_nothing(start: Start) -> None:
    async with start() as running:
        assert running.node.metrics is None
        assert running.node.flusher.observe is None


async def test_records_bytes_and_requests_are_counted(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client:
        await client.create_topic("a")
        await client.create_topic("b", 2)
        data = batch_of(b"one", b"two", b"three")
        for _ in range(4):
            assert (await client.produce("a", data)).error_code == 0
        assert (await client.produce("b", data, partition=1)).error_code == 0
        assert (await client.produce("none", data)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        sent = len((await client.fetch("a")).records)
        found = await told(running.node)
        prefix = "kafka_server_brokertopicmetrics_"
        assert found.of(prefix + "messagesin_total", topic="a") == 12
        assert found.of(prefix + "messagesin_total", topic="b") == 3
        assert found.of(prefix + "messagesin_total", topic="") >= 15  # and records of the broker's own topics
        assert found.of(prefix + "bytesin_total", topic="a") == 4 * len(data) == sent
        assert found.of(prefix + "bytesout_total", topic="a") == sent
        assert found.of(prefix + "bytesout_total", topic="") == sent
        assert found.of(prefix + "totalproducerequests_total") == 6
        assert found.of(prefix + "failedproducerequests_total") == 1
        assert found.of("kafka_network_requestmetrics_requests_total", request="Produce", version="9") == 6
        error = {"request": "Produce", "error": "UNKNOWN_TOPIC_OR_PARTITION"}
        assert found.of("kafka_network_requestmetrics_errors_total", **error) == 1
        assert found.of("barnabas_request_seconds_count", request="Fetch") == 1
        assert found.of("kafka_network_requestmetrics_totaltimems_count_total", request="Fetch") == 1
        assert found.of("kafka_network_requestmetrics_totaltimems", request="Produce", quantile="0.99") > 0
        assert found.of("kafka_log_log_logendoffset", topic="a", partition="0") == 12
        assert found.of("kafka_log_log_size", topic="a", partition="0") == 4 * len(data)
        assert found.of("barnabas_topic_size_bytes", topic="a") == 4 * len(data)
        assert found.of("kafka_server_socketservermetrics_connection_count", listener="PLAINTEXT") == 1
        assert found.of("barnabas_fsync_seconds_count") >= 5
        assert found.of("barnabas_event_loop_hold_seconds_count") > 0
        assert found.kinds["barnabas_request_seconds"] == "histogram"
        assert found.of("process_resident_memory_bytes") > 0


async def test_requests_without_an_answer_are_counted(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client:
        await client.create_topic("a")
        await client.send_bytes(frame_of(produce_request("a", batch_of(b"x"), acks=0), 9))
        await client.produce("a", batch_of(b"y"))
        found = await told(running.node)
        assert found.of("kafka_network_requestmetrics_requests_total", request="Produce", version="9") == 2
        assert found.of("barnabas_request_seconds_count", request="Produce") == 1


async def test_a_fetch_by_topic_id_counts_for_its_topic(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client:
        await client.create_topic("a")
        await client.produce("a", batch_of(b"x"))
        named = fetch_request("a")
        topic = named.topics[0]
        topic_id = running.node.metadata.topics["a"].topic_id
        by_id = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[type(topic)(topic_id=topic_id, partitions=topic.partitions)],
        )
        answer = await client.ask(by_id, 13)
        size = len(answer.responses[0].partitions[0].records)
        assert size > 0
        assert (await told(running.node)).of("kafka_server_brokertopicmetrics_bytesout_total", topic="a") == size


async def test_a_topic_that_is_gone_has_no_series_and_stays_in_the_total(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client:
        await client.create_topic("a")
        await client.produce("a", batch_of(b"x", b"y"))
        await client.fetch("a")
        before = await told(running.node)
        await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="a")]), 6)
        await client.create_topic("a")
        await client.produce("a", batch_of(b"z"))
        after = await told(running.node)
        name = "kafka_server_brokertopicmetrics_messagesin_total"
        assert before.of(name, topic="a") == 2
        assert after.of(name, topic="a") in (1, 3)  # the counter starts again, or continues
        assert after.of(name, topic="") >= 3
        out = "kafka_server_brokertopicmetrics_bytesout_total"
        assert after.of(out, topic="") == before.of(out, topic="")


async def test_the_lag_of_a_group_in_records_and_in_seconds(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client:
        await client.create_topic("a")
        for _ in range(10):
            await client.produce("a", batch_of(b"x"))
        await commit(client, "g", "a", 4)
        assert running.node.metrics is not None
        await running.node.metrics.watch.note_ends()
        await client.produce("a", batch_of(b"x"))
        found = await told(running.node)
        where = {"consumergroup": "g", "topic": "a", "partition": "0"}
        assert found.of("kafka_consumergroup_lag", **where) == 7
        assert found.of("kafka_consumergroup_current_offset", **where) == 4
        assert found.of("kafka_consumergroup_lag_sum", consumergroup="g", topic="a") == 7
        assert found.of("barnabas_consumergroup_lag_seconds", **where) > 0
        assert found.of("kafka_coordinator_group_groupmetadatamanager_numgroupsempty") == 1
        await commit(client, "g", "a", 11)
        found = await told(running.node)
        assert found.of("kafka_consumergroup_lag", **where) == 0
        assert found.of("barnabas_consumergroup_lag_seconds", **where) == 0


async def test_an_open_transaction_has_an_age(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client:
        await client.create_topic("a")
        producer = Producer(client)
        await producer.init()
        await client.ask(producer.request(b"x"), 12)
        found = await told(running.node)
        assert found.of("barnabas_transactions", state="Ongoing") == 1
        assert found.of("barnabas_transaction_oldest_open_seconds") >= 0


async def test_names_that_clients_choose_do_not_break_the_text(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client:
        await client.create_topic("a")
        await client.produce("a", batch_of(b"x"))
        name = 'g"} 1\nbarnabas_uptime_seconds 99\\\u2028'
        await commit(client, name, "a", 0)
        found = await told(running.node)
        assert [each["consumergroup"] for each in found.labels("kafka_consumergroup_lag")] == [name]


async def test_open_metrics_for_who_asks_for_it(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client:
        await client.create_topic("a")
        await client.produce("a", batch_of(b"x"))
        await commit(client, "g", "a", 0)
        assert running.node.metrics is not None
        text, content_type = await running.node.metrics.render("application/openmetrics-text; version=1.0.0")
        assert content_type.startswith("application/openmetrics-text")
        names = {family.name for family in open_metrics(text.decode())}  # type: ignore[no-untyped-call]
        assert "kafka_consumergroup_lag" in names


async def test_no_family_grows_beyond_its_bound(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "MOST_SERIES", 3)
    async with start(more=WATCHED) as running, await running.client() as client:
        await client.create_topic("a")
        await client.produce("a", batch_of(b"x"))
        for number in range(5):
            await commit(client, f"g{number}", "a", 0)
        found = await told(running.node)
        assert len(found.labels("kafka_consumergroup_lag")) == 3
        assert found.of("barnabas_metrics_series_left_out", family="kafka_consumergroup_lag") == 2


async def test_logs_that_nobody_has_used_are_not_opened(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client:
        await client.create_topic("a")
        await client.produce("a", batch_of(b"x"))
        size = running.node.vnodes["a", 0].size_bytes
    async with start(more=WATCHED) as running:
        found = await told(running.node)
        assert not running.node.vnodes["a", 0].loaded
        assert found.of("kafka_log_log_size", topic="a", partition="0") == size
        assert found.of("kafka_log_log_logendoffset", topic="a", partition="0") is None


async def test_an_offline_partition_is_told(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client:
        await client.create_topic("a")
        await client.produce("a", batch_of(b"x"))
        running.node.vnodes["a", 0].fail("flush", OSError(5, "broken"))
        found = await told(running.node)
        assert found.of("kafka_controller_kafkacontroller_offlinepartitionscount") == 1
        assert found.of("kafka_log_log_size", topic="a", partition="0") > 0  # its files are still there
        assert found.of("kafka_log_log_logendoffset", topic="a", partition="0") is None
        events = {each["event"] for each in found.labels("barnabas_log_events_total")}
        assert "partition.offline" in events


async def test_readers_at_the_same_time_get_one_text(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start(more=WATCHED) as running:
        metrics = running.node.metrics
        assert metrics is not None
        made = 0
        collect = metrics._collector.collect

        async def counted() -> list[Metric]:
            nonlocal made
            made += 1
            await trio.testing.wait_all_tasks_blocked()
            return await collect()

        monkeypatch.setattr(metrics._collector, "collect", counted)
        texts: list[bytes] = []

        async def read() -> None:
            texts.append((await metrics.render("text/plain"))[0])

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(read)
        assert made == 1
        assert len(texts) == 20
        assert len(set(texts)) == 1


async def test_a_large_answer_that_a_thread_encodes_is_counted(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client:
        await describe_log_dirs(running, client)
        found = await told(running.node)
        assert found.of("barnabas_request_seconds_count", request="DescribeLogDirs") == 1
        metrics = running.node.metrics
        assert metrics is not None
        assert metrics.requests.by_api[35].answered_in_thread.seconds.count == 1


async def describe_log_dirs(running: Running, client: Client) -> None:
    assert (await client.ask(DescribeLogDirsRequest(topics=None), 4)).error_code == 0
