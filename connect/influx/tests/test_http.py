"""The HTTP gateway with correct, slow and hostile clients."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from barnabas.client.errors import ClientError
from barnabas.connect.influx import http
from barnabas.connect.influx.http import Gateway
from barnabas.connect.influx.lines import BadPointError
from barnabas.connect.influx.sink import Written

Asked = tuple[bytes, str, str]
Ask = Callable[[bytes], Awaitable[bytes]]


class Writer:
    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answer: Written | Exception = Written(1, [])

    async def __call__(self, data: bytes, database: str, precision: str) -> Written:
        self.asked.append((data, database, precision))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@asynccontextmanager
async def served(writer: Writer, token: str = "") -> AsyncIterator[trio.abc.Stream]:
    """A stream to a gateway that is serving it."""
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Gateway(writer, token).serve, theirs)
        yield ours
        await ours.aclose()


async def ask(stream: trio.abc.Stream, *request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send one request, and return the answer's status, headers and body."""
    for part in request:
        await stream.send_all(part)
    data = b""
    while b"\r\n\r\n" not in data:
        received = await stream.receive_some(65536)
        assert received, "closed without an answer"
        data += received
    head, body = data.split(b"\r\n\r\n", 1)
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += await stream.receive_some(65536)
    return int(status.split()[1]), headers, body


def post(target: str, body: bytes = b"m f=1", *headers: str) -> bytes:
    lines = [f"POST {target} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def test_writes_one_after_the_other_on_a_connection() -> None:
    writer = Writer()
    async with served(writer) as stream:
        assert (await ask(stream, post("/write?db=telegraf&precision=s", b"a f=1")))[0] == 204
        gzipped = gzip.compress(b"b f=2")
        assert (await ask(stream, post("/api/v2/write?bucket=b&org=o", gzipped, "Content-Encoding: gzip")))[0] == 204
        chunked = (
            b"POST /write HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nc f\r\n2\r\n=3\r\n0\r\n\r\n"
        )
        assert (await ask(stream, chunked))[0] == 204
    assert writer.asked == [(b"a f=1", "telegraf", "s"), (b"b f=2", "b", ""), (b"c f=3", "", "")]


async def test_what_clients_ask_first() -> None:
    async with served(Writer()) as stream:
        status, headers, _ = await ask(stream, b"HEAD /ping HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (status, "x-influxdb-version" in headers) == (204, True)
        assert json.loads((await ask(stream, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"))[2])["status"] == "pass"
        made = await ask(stream, post("/query", b"q=CREATE+DATABASE+%22telegraf%22"))
        assert (made[0], json.loads(made[2])) == (200, {"results": [{"statement_id": 0}]})
        assert (await ask(stream, post("/query?q=SELECT+1", b"")))[0] == 404
        assert (await ask(stream, b"GET /write HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 404


async def test_lines_that_are_left_out_are_told() -> None:
    writer = Writer()
    writer.answer = Written(7, [(number, "there are no fields") for number in range(3, 10)])
    async with served(writer) as stream:
        status, _, body = await ask(stream, post("/write"))
    told = json.loads(body)["error"]
    assert status == 400
    assert told.startswith("partial write: line 3: there are no fields; line 4: ")
    assert told.endswith("; and 2 more; 7 points are written")


@pytest.mark.parametrize(
    ("error", "status"), [(BadPointError("precision 'd': expected"), 400), (ClientError("the broker is away"), 503)]
)
async def test_errors_have_a_status(error: Exception, status: int) -> None:
    writer = Writer()
    writer.answer = error
    async with served(writer) as stream:
        found = await ask(stream, post("/write"))
        assert (found[0], json.loads(found[2])["error"]) == (status, str(error))
        writer.answer = Written(1, [])
        assert (await ask(stream, post("/write")))[0] == 204


@pytest.mark.parametrize(
    "shown",
    [
        ("/write", "Authorization: Token s3cret"),
        ("/write", "Authorization: Bearer s3cret"),
        ("/write", "Authorization: Basic " + base64.b64encode(b"any:s3cret").decode()),
        ("/write?u=any&p=s3cret", "X: y"),
    ],
)
async def test_who_shows_the_token_may_write(shown: tuple[str, str]) -> None:
    writer = Writer()
    async with served(writer, "s3cret") as stream:
        assert (await ask(stream, post(shown[0], b"m f=1", shown[1])))[0] == 204


@pytest.mark.parametrize(
    "shown", ["X: y", "Authorization: Token no", "Authorization: Basic ???", "Authorization: s3cret", "Authorization:"]
)
async def test_who_does_not_may_not(shown: str) -> None:
    writer = Writer()
    async with served(writer, "s3cret") as stream:
        assert (await ask(stream, post("/write", b"", shown)))[0] == 401
    assert writer.asked == []


async def test_large_bodies_are_refused_packed_and_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_BODY", 1000)
    writer = Writer()
    for request in (
        post("/write", b"x" * 2000),
        post("/write", gzip.compress(b"x" * 100_000), "Content-Encoding: gzip"),
    ):
        async with served(writer) as stream:
            assert (await ask(stream, request))[0] == 413
    assert writer.asked == []


@pytest.mark.parametrize(
    ("body", "header", "status"),
    [
        (b"no gzip", "Content-Encoding: gzip", 400),
        (gzip.compress(b"m f=1", mtime=0)[:-9], "Content-Encoding: gzip", 400),
        (b"m f=1", "Content-Encoding: br", 415),
    ],
)
async def test_bodies_that_do_not_unpack_are_refused(body: bytes, header: str, status: int) -> None:
    async with served(Writer()) as stream:
        assert (await ask(stream, post("/write", body, header)))[0] == status
        assert (await ask(stream, post("/write")))[0] == 204


@pytest.mark.parametrize(
    "request_",
    [
        b"no http at all\r\n\r\n",
        b"POST /write HTTP/1.1\r\nHost: x\r\nContent-Length: ten\r\n\r\n",
        b"POST /write HTTP/1.1\r\n" + b"X: y\r\n" * 10_000,
        b"POST /write HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_what_is_no_http_is_answered_and_the_connection_ends(request_: bytes) -> None:
    async with served(Writer()) as stream:
        status, _, _ = await ask(stream, request_)
        assert 400 <= status < 500
        assert await stream.receive_some(10) == b""


async def test_who_goes_away_in_the_middle_writes_nothing() -> None:
    writer = Writer()
    async with served(writer) as stream:
        await stream.send_all(post("/write", b"m f=1\nm f=2")[:-3])
    assert writer.asked == []


async def test_who_says_nothing_is_dropped(autojump_clock: trio.testing.MockClock) -> None:
    async with served(Writer()) as stream:
        await stream.send_all(b"POST /write HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
        assert await stream.receive_some(10) == b""
    assert trio.current_time() >= http.IDLE_SECONDS


async def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 1)
    gateway = Gateway(Writer())
    first, first_end = trio.testing.memory_stream_pair()
    second, second_end = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gateway.serve, first_end)
        assert (await ask(first, post("/write")))[0] == 204
        nursery.start_soon(gateway.serve, second_end)
        assert await second.receive_some(10) == b""
        await first.aclose()
