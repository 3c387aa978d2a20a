"""A search with a condition: what it finds, what it refuses, and that its process never outlives its visitor."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import trio

from barnabas.broker.http.tests.client import basic, browse
from barnabas.broker.http.tests.test_console import HTTP, JAAS, LOCKED, WRITES, allow, page, produce_all
from barnabas.broker.http.tests.test_console_of_nodes import NODES, three
from barnabas.broker.http.views import where
from barnabas.broker.jobs import spark_here
from barnabas.broker.tests.client import NOW, Client, batch_of, produce_request
from barnabas.broker.tests.conftest import Running, Start, until
from barnabas.wire.acls import Operation, Permission, ResourceType
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.compression import CompressionType
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.types import replace

pytest.importorskip("pyarrow")

COLUMNS: dict[str, Any] = {"barnabas_value_schema": "device STRING, temp DOUBLE, n INT, `my-col` STRING"}
OLDEST: dict[str, Any] = {"from": "oldest"}


async def found(running: Running, headers: dict[str, str] | None = None, status: int = 200, **query: Any) -> Any:
    """The lines of an answer; for a refusal, its text."""
    assert running.node.http is not None
    browser = await browse(running.node.http.port)
    got = await browser.ask("GET", f"/api/topic/where?{urlencode(query)}", headers or {})
    assert got.status == status, (got.status, got.body)
    return got.json()["error"] if status != 200 else [json.loads(line) for line in got.body.splitlines()]


def offsets(lines: list[dict[str, Any]]) -> list[int]:
    return [row["offset"] for line in lines for row in line["records"]]


def places(lines: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for line in lines for row in line["records"]]


async def sensors(client: Client, count: int = 40, **settings: str) -> None:
    await client.create_topic("sensors", **{**COLUMNS, **settings})
    values = [json.dumps({"device": f"d{n % 4}", "temp": n / 2, "n": n}).encode() for n in range(count)]
    await produce_all(client, "sensors", values)


class Processes:
    """The processes that searches have started; each is stopped (SIGSTOP) at its start if `are_stopped`."""

    def __init__(self) -> None:
        self.are_stopped = False
        self.started: list[trio.Process] = []
        self.commands: list[tuple[list[str], dict[str, str]]] = []
        self._open: Callable[..., Any] = trio.lowlevel.open_process

    async def open(self, command: list[str], **options: Any) -> trio.Process:
        process: trio.Process = await self._open(command, **options)
        if self.are_stopped:
            os.kill(process.pid, signal.SIGSTOP)
        self.commands.append((command, options["env"]))
        self.started.append(process)
        return process

    def proceed(self) -> None:
        for process in self.started:
            os.kill(process.pid, signal.SIGCONT)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    made = Processes()
    monkeypatch.setattr(trio.lowlevel, "open_process", made.open)
    return made


# --- what is found ----------------------------------------------------------------------------------------------------


async def test_records_are_found_by_the_columns_of_a_topic_the_newest_first(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await sensors(client)
        lines = await found(running, name="sensors", search="WHERE device = 'd1' AND temp > 10")
        assert offsets(lines) == [37, 33, 29, 25, 21]
        assert (lines[-1]["end"], lines[-1]["cursor"], lines[-1]["looked_at"]) == ("all", None, 40)
        assert json.loads(lines[0]["records"][0]["value"]["text"])["n"] == 37
        assert offsets(await found(running, name="sensors", search="where\tn IN (3, 4) or _offset = 9")) == [9, 4, 3]
        assert offsets(await found(running, name="sensors", search="n % 10 = 0", **OLDEST)) == [*range(0, 40, 10)]
        at: dict[str, Any] = {"from": "offset", "at": 30}
        assert offsets(await found(running, name="sensors", search="device LIKE 'd%' AND n < 33", **at)) == [30, 31, 32]
        assert offsets(await found(running, name="sensors", search="n > 100")) == []


async def test_a_page_ends_when_it_is_full_and_the_next_one_goes_on(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await sensors(client)
        for way, expected in (("newest", [*range(38, -1, -2)]), ("oldest", [*range(0, 40, 2)])):
            query: dict[str, Any] = {"name": "sensors", "search": "WHERE n % 2 = 0", "limit": 7, "from": way}
            pages, cursor = [], ""
            while cursor is not None:
                lines = await found(running, **query, cursor=cursor)
                pages.append(offsets(lines))
                cursor = lines[-1]["cursor"]
            assert [len(each) for each in pages] == [7, 7, 6]
            assert [offset for each in pages for offset in each] == expected


async def test_partitions_are_merged_by_time(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("t", 3)
        for index in range(30):
            batch = build_batch([Record(b"k", b"%d" % index, NOW + index)])
            assert (await client.produce("t", batch, index % 3)).error_code == 0
        query: dict[str, Any] = {"name": "t", "search": "WHERE _offset >= 0", "limit": 10}
        lines = await found(running, **query)
        assert places(lines) == [(index % 3, index // 3) for index in range(29, 19, -1)]
        assert lines[-1]["end"] == "page"
        after = await found(running, **query, cursor=lines[-1]["cursor"])
        assert places(after) == [(index % 3, index // 3) for index in range(19, 9, -1)]
        one = await found(running, **query, partition=2)
        assert places(one) == [(2, offset) for offset in range(9, -1, -1)]
        since = "WHERE _timestamp >= TIMESTAMP '2023-11-14 22:13:20.027'"
        assert places(await found(running, name="t", search=since)) == [(2, 9), (1, 9), (0, 9)]


async def test_a_topic_without_a_schema_has_the_parts_of_a_record(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("a.b-c_d")
        await client.produce("a.b-c_d", batch_of(b"x", key=b"one"))
        await client.produce("a.b-c_d", batch_of(b"y", key=b"two"))
        assert offsets(await found(running, name="a.b-c_d", search="WHERE _key = 'two' AND _value = 'y'")) == [1]
        assert offsets(await found(running, name="a.b-c_d", search="WHERE `a.b-c_d`._key = 'one'")) == [0]
        (line,) = await found(running, name="a.b-c_d", search="WHERE amount > 1")
        assert "there is no column `amount`: a record of this topic has _key, _value" in line["error"]
        assert "INVALID_TOPIC" in await found(running, status=400, name="`a`", search="WHERE _offset = 1")


async def test_names_in_backquotes_and_texts_with_quotes(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("sensors", **COLUMNS)
        await produce_all(client, "sensors", [b'{"my-col": "it\'s"}', '{"device": "Zürich"}'.encode(), b"no json"])
        assert offsets(await found(running, name="sensors", search="WHERE `my-col` = 'it\\'s'")) == [0]
        assert offsets(await found(running, name="sensors", search="WHERE device = 'Zürich'")) == [1]
        assert offsets(await found(running, name="sensors", search="WHERE device IS NULL")) == [2, 0]
        await client.create_topic("raw")
        await produce_all(client, "raw", [b"a  where  b", b"a where b"])
        assert offsets(await found(running, name="raw", search="'a  where  b' = _value")) == [0]
        assert offsets(await found(running, name="raw", search="WHERE 'a  where  b' = _value")) == [0]


async def test_batches_of_every_size_are_fetched(start: Start) -> None:
    """An answer of Fetch has no room for a large batch of each partition, and small ones come many at a time."""
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("t", 9)
        for index in range(9):
            batch = batch_of(*[b"%d" % n for n in range(10)], b"x" * 900_000, b"last")
            assert (await client.produce("t", batch, index)).error_code == 0
            packed = batch_of(*[b"p%d" % n for n in range(50)], compression=CompressionType.LZ4)
            assert (await client.produce("t", packed, index)).error_code == 0
        lines = await found(running, name="t", search="WHERE _offset IN (3, 10, 11, 12, 61)", limit=200)
        assert sorted(places(lines)) == sorted((p, at) for p in range(9) for at in (3, 10, 11, 12, 61))


async def test_any_node_searches_the_partitions_of_all(tmp_path: Path) -> None:
    async with three(tmp_path) as nodes:
        client = await nodes.client(1)
        await client.create_topic("t", 6)
        for index, leader in (await nodes.leaders("t")).items():
            told = await (await nodes.client(leader)).produce("t", batch_of(b"a%d" % index, b"b%d" % index), index)
            assert told.error_code == 0
        for node in NODES:
            lines = await found(nodes[node], name="t", search="WHERE _value LIKE 'b%'")
            assert sorted(places(lines)) == [(index, 1) for index in range(6)]
        nodes.no_errors()


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", ["secret.n = 1", "n = 1) UNION SELECT 1, 1 FROM secret WHERE (1 = 1"])
async def test_only_one_condition_of_one_topic_is_taken(start: Start, condition: str) -> None:
    """More of them are in streams/tests/test_select_where.py."""
    async with start(more=HTTP) as running, await running.client() as client:
        await sensors(client)
        await client.create_topic("secret", **COLUMNS)
        (line,) = await found(running, name="sensors", search=f"WHERE {condition}")
        assert line["error"].startswith("the condition is not for the console: ")
        assert line["error"].endswith('If it is right, ask Spark: barnabas sql "SELECT * FROM `sensors` WHERE ..."')
        assert "\n" not in line["error"]


async def test_a_search_says_what_is_wrong_with_it(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await sensors(client)
        assert "at most 1,000" in await found(running, status=400, name="sensors", search=f"WHERE n = {'1' * 1000}")
        for empty in ("WHERE", "  where  ", ""):
            assert "expected one" in await found(running, status=400, name="sensors", search=empty)
        assert "UNKNOWN_TOPIC" in await found(running, status=404, name="nowhere", search="WHERE n = 1")
        assert "no partition 7" in await found(running, status=404, name="sensors", search="n = 1", partition=7)
        assert "the cursor" in await found(running, status=400, name="sensors", search="n = 1", cursor="b~zz")
        everywhere = await found(running, name="sensors", search="n > 36", cursor="b~0.0.fffffffffff")
        assert offsets(everywhere) == [39, 38, 37]


async def test_a_visitor_finds_what_a_fetch_would_give(start: Start) -> None:
    async with start(more=LOCKED) as running, await running.client() as client:
        await sensors(client)
        ann = basic("ann", "secret")
        await allow(client, "User:ann", "sensors", Operation.DESCRIBE)
        asked: dict[str, Any] = {"name": "sensors", "search": "WHERE n = 7"}
        assert "TOPIC_AUTHORIZATION_FAILED" in await found(running, ann, 403, **asked)
        await allow(client, "User:ann", "sensors", Operation.READ)
        assert "DESCRIBE_CONFIGS on the topic, to know its columns" in await found(running, ann, 403, **asked)
        await allow(client, "User:ann", "sensors", Operation.DESCRIBE_CONFIGS)
        assert offsets(await found(running, ann, **asked)) == [7]
        assert await found(running, {}, 401, **asked) == "log in first"


async def test_a_right_that_is_taken_away_meanwhile_ends_the_search(start: Start, processes: Processes) -> None:
    async with start(more=LOCKED) as running, await running.client() as client:
        await sensors(client)
        for operation in (Operation.READ, Operation.DESCRIBE_CONFIGS):
            await allow(client, "User:ann", "sensors", operation)
        processes.are_stopped = True
        lines: list[dict[str, Any]] = []

        async def search() -> None:
            lines.extend(await found(running, basic("ann", "secret"), name="sensors", search="WHERE n = 7"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(search)
            await until(lambda: bool(processes.started))
            await deny(client, "User:ann", "sensors")
            processes.proceed()
        assert "TOPIC_AUTHORIZATION_FAILED" in lines[-1]["error"]


async def deny(client: Client, principal: str, topic: str) -> None:
    acl = AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        principal=principal,
        host="*",
        operation=Operation.READ,
        permission_type=Permission.DENY,
    )
    assert (await client.ask(CreateAclsRequest(creations=[acl]))).results[0].error_code == 0


async def test_records_of_an_open_transaction_are_left_out(start: Start) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("t")
        await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]))
        await produce_all(client, "t", [b"before"])
        given = await client.ask(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000))
        who: dict[str, Any] = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
        batch = batch_of(b"open", is_transactional=True, base_sequence=0, **who)
        answer = await client.ask(replace(produce_request("t", batch), transactional_id="tx"), 12)
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert offsets(await found(running, name="t", search="WHERE _offset >= 0")) == [0]


# --- the process ------------------------------------------------------------------------------------------------------


async def test_the_process_ends_when_its_visitor_leaves(start: Start, processes: Processes) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await sensors(client)
        processes.are_stopped = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: found(running, name="sensors", search="WHERE n = 1"))
            await until(lambda: bool(processes.started))
            nursery.cancel_scope.cancel()
        (process,) = processes.started
        await until(lambda: process.returncode == -signal.SIGKILL)
        processes.are_stopped = False
        assert offsets(await found(running, name="sensors", search="WHERE n = 1")) == [1]


async def test_the_process_ends_when_the_broker_stops(start: Start, processes: Processes) -> None:
    async with trio.open_nursery() as nursery:
        async with start(more=HTTP) as running, await running.client() as client:
            await sensors(client)
            processes.are_stopped = True
            nursery.start_soon(left_alone, running)
            await until(lambda: bool(processes.started))
        assert processes.started[0].returncode == -signal.SIGKILL


async def left_alone(running: Running) -> None:
    """Search, and be disconnected."""
    assert running.node.http is not None
    browser = await browse(running.node.http.port)
    await browser.stream.send_all(
        f"GET /api/topic/where?name=sensors&search=n+%3D+1 HTTP/1.1\r\nHost: {browser.host}\r\n\r\n".encode()
    )
    assert await browser.is_closed()


async def test_a_search_ends_at_its_time_and_says_how_far_it_got(
    start: Start, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await sensors(client)
        processes.are_stopped = True
        monkeypatch.setattr(where, "SEARCH_SECONDS", 0.01)
        (line,) = await found(running, name="sensors", search="WHERE n = 1")
        assert (line["end"], line["looked_at"], line["seconds"]) == ("bound", 0, 0.01)
        processes.are_stopped = False
        monkeypatch.undo()
        assert offsets(await found(running, name="sensors", search="WHERE n = 1", cursor=line["cursor"])) == [1]


async def test_lines_that_are_left_do_not_prolong_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A visitor who reads slowly would keep a process from others with them."""
    for seconds, told in ((60.0, {"done": True}), (0.0, None)):
        monkeypatch.setattr(where, "SEARCH_SECONDS", seconds)
        process = where._Process({})
        process._rest = b'{"done": true}\n'
        assert await process.line() == told


async def test_a_search_has_only_so_much_cpu(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("t")
        for _ in range(10):
            await produce_all(client, "t", [b"%d" % n for n in range(20_000)])
        monkeypatch.setattr(where, "SEARCH_CPU_SECONDS", 1)
        search = " AND ".join(f"upper(_value) NOT LIKE '%a{n}%'" for n in range(24)) + " AND upper(_value) = 'NONE'"
        lines = await found(running, name="t", search=search)
        assert lines[-1]["end"] == "bound"
        assert lines[-1]["cursor"] is not None


async def test_a_search_has_only_so_much_memory(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await client.create_topic("t")
        for _ in range(4):
            await produce_all(client, "t", [b"x" * 1_000_000])
        monkeypatch.setattr(where, "SEARCH_MEMORY", 1 << 20)
        lines = await found(running, name="t", search="WHERE _value LIKE '%y%'")
        assert "needs more memory than it may take, 1 MiB" in lines[-1]["error"]


async def test_visitors_take_turns(start: Start, processes: Processes) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await sensors(client)
        processes.are_stopped = True
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(lambda: found(running, name="sensors", search="WHERE n = 1"))
            await until(lambda: len(processes.started) == where.PROCESSES)
            shown = await page(running)
            assert len(await shown.all_records(name="sensors", search="d1")) == 10  # other searches go on
            assert len(processes.started) == where.PROCESSES
            processes.are_stopped = False
            processes.proceed()
        assert len(processes.started) == 3


async def test_a_topic_that_is_deleted_meanwhile(start: Start, processes: Processes) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await sensors(client)
        await client.create_topic("sensor", **COLUMNS)
        for is_made_again, told in ((False, "UNKNOWN_TOPIC_OR_PARTITION"), (True, "cannot be searched now")):
            processes.are_stopped = True
            lines: list[dict[str, Any]] = []

            async def search(lines: list[dict[str, Any]] = lines) -> None:
                lines.extend(await found(running, name="sensors", search="WHERE n = 7"))

            async with trio.open_nursery() as nursery:
                before = len(processes.started)
                nursery.start_soon(search)
                await until(lambda before=before: len(processes.started) > before)  # type: ignore[misc]
                gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="sensors")], timeout_ms=30_000)
                assert (await client.ask(gone)).responses[0].error_code == 0
                if is_made_again:
                    await sensors(client)
                os.kill(processes.started[-1].pid, signal.SIGCONT)
            assert told in lines[-1]["error"]
            assert str(running.node.config.data_dir) not in lines[-1]["error"]
            assert "http.search.failed" in running.log
            if not is_made_again:
                await sensors(client)


async def test_the_process_has_no_secret_and_little_of_the_environment(
    start: Start, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every listener wants a login here; the process needs none, because it reads files only."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "4711")
    only_sasl = {
        **WRITES,
        "listeners": "SAFE://127.0.0.1:0",
        "listener.security.protocol.map": "SAFE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SAFE",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.safe.plain.sasl.jaas.config": JAAS,
        "super.users": "User:root",
    }
    async with start(more=only_sasl) as running:
        root = basic("root", "other")
        shown = await page(running, root)
        await shown.post("topic/create", name="t", partitions=1)
        await shown.post("topic/records", topic="t", value="v")
        assert offsets(await found(running, root, name="t", search="WHERE _value = 'v'")) == [0]
        ((command, environment),) = processes.commands
        assert command[1:] == ["-m", "barnabas.streams.select", "where"]
        assert environment.keys() <= {*where._KEPT, *where._ONE_THREAD}
        secret = running.node.queries.secret.writer_id
        assert secret not in running.log
        assert "WHERE" not in running.log


async def test_without_arrow_the_page_says_what_to_install(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await sensors(client)
        monkeypatch.setattr(spark_here, "_is_installed", lambda name: False)
        told = await found(running, status=501, name="sensors", search="WHERE n = 1")
        assert "pyarrow, which is not installed: run `make setup-all`" in told
        assert len(await (await page(running)).all_records(name="sensors", search="d1")) == 10


async def test_a_process_that_fails_is_told_to_the_operator(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start(more=HTTP) as running, await running.client() as client:
        await sensors(client)
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        (line,) = await found(running, name="sensors", search="WHERE n = 1")
        assert "cannot be searched now" in line["error"]
        assert "/nowhere" not in line["error"]
        assert "/nowhere/python" in running.log
