"""The HTTP API of InfluxDB 1 and 2 as far as writers use it: `/write`, `/api/v2/write`, `/ping`, `/health`.

204 means that all points are written, on all replicas. 400 lists the lines that were left out; the others are written.
After 503 the outcome is unknown: the writer sends everything again, so a point may come twice.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import zlib
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import h11
import msgspec
import trio

from barnabas.client.errors import ClientError
from barnabas.connect.influx.lines import BadPointError
from barnabas.connect.influx.sink import Written

#: InfluxDB's default (`max-body-size`), applied to a body both as sent and unpacked.
MAX_BODY = 25_000_000
MAX_CONNECTIONS = 200
#: Bodies held at a time; further requests wait.
MAX_BODIES = 4
IDLE_SECONDS = 60.0
_RECEIVE = 64 << 10
_TOLD = 5  # how many bad lines the answer explains
_VERSION = b"barnabas"

#: From lines, database and precision to what became of them.
Write = Callable[[bytes, str, str], Awaitable[Written]]


class Answer(NamedTuple):
    """A response. It has no body if there is nothing to say."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


class _RefusedError(Exception):
    def __init__(self, status: int, why: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(why)
        self.answer = Answer(status, msgspec.json.encode({"error": why}), headers)


class Gateway:
    """Serves connections. `token` is what a writer must present; empty for none."""

    def __init__(self, write: Write, token: str = "", *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._write, self._token, self._idle = write, token.encode(), idle_seconds
        self._bodies = trio.CapacityLimiter(MAX_BODIES)
        self._connections = trio.CapacityLimiter(MAX_CONNECTIONS)

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until it ends."""
        async with stream:
            try:
                self._connections.acquire_nowait()
            except trio.WouldBlock:
                return
            try:
                await _Connection(stream, self._answer, self._idle).run()
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
                pass
            finally:
                self._connections.release()

    async def _answer(self, connection: _Connection, request: h11.Request) -> Answer:
        target = urlsplit(request.target.decode("ascii", "replace"))
        path, method = target.path.rstrip("/"), request.method
        try:
            query = {name: values[-1] for name, values in parse_qs(target.query, max_num_fields=50).items()}
        except ValueError:
            raise _RefusedError(400, "the query of the address does not parse") from None
        if path == "/ping":
            return Answer(204, headers=((b"X-Influxdb-Version", _VERSION),))
        if path == "/health":
            return Answer(200, msgspec.json.encode({"name": "barnabas", "status": "pass"}))
        headers = dict(request.headers)
        if path in ("/write", "/api/v2/write") and method == b"POST":
            self._check(headers, query)
            async with self._bodies:
                data = _unpacked(await connection.body(), headers.get(b"content-encoding", b"identity"))
                return await self._written(data, query)
        if path == "/query" and method == b"POST":
            self._check(headers, query)
            asked = query.get("q") or _form(await connection.body()).get("q", "")
            if (
                asked.strip().upper().startswith("CREATE DATABASE")
            ):  # Telegraf begins with this query; a topic needs no database
                return Answer(200, msgspec.json.encode({"results": [{"statement_id": 0}]}))
        raise _RefusedError(404, "there is POST /write, POST /api/v2/write, /ping and /health")

    async def _written(self, data: bytes, query: dict[str, str]) -> Answer:
        database = query.get("db") or query.get("bucket") or ""
        try:
            written = await self._write(data, database, query.get("precision", ""))
        except BadPointError as error:
            raise _RefusedError(400, str(error)) from None
        except ClientError as error:
            raise _RefusedError(503, str(error), (b"Retry-After", b"1")) from None
        if not written.bad:
            return Answer(204)
        told = "; ".join(f"line {number}: {why}" for number, why in written.bad[:_TOLD])
        more = f"; and {len(written.bad) - _TOLD} more" if len(written.bad) > _TOLD else ""
        raise _RefusedError(400, f"partial write: {told}{more}; {written.points} points are written")

    def _check(self, headers: dict[bytes, bytes], query: dict[str, str]) -> None:
        """Check the token, which is sent in a header, as Basic's password, or as the address's password."""
        if not self._token:
            return
        scheme, _, shown = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"basic":
            try:
                shown = base64.b64decode(shown, validate=True).partition(b":")[2]
            except binascii.Error:
                shown = b""
        elif scheme.lower() not in (b"token", b"bearer"):
            shown = query.get("p", "").encode()
        if not hmac.compare_digest(shown.strip(), self._token):
            raise _RefusedError(401, "unauthorized", (b"WWW-Authenticate", b"Token"))


class _Connection:
    """HTTP/1.1 on one stream (RFC 9112)."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        answer: Callable[[_Connection, h11.Request], Awaitable[Answer]],
        idle_seconds: float,
    ) -> None:
        self._stream, self._make, self._idle = stream, answer, idle_seconds
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=16 << 10)

    async def run(self) -> None:
        """Serve one request after another."""
        while True:
            try:
                event = await self._next()
                if not isinstance(event, h11.Request):
                    return
                try:
                    answer = await self._make(self, event)
                except _RefusedError as error:
                    answer = error.answer
                self._end_of_request()
                await self._send(answer, is_head=event.method == b"HEAD")
            except h11.RemoteProtocolError as error:
                if self._http.our_state is h11.SEND_RESPONSE or self._http.our_state is h11.IDLE:
                    body = msgspec.json.encode({"error": str(error)})
                    await self._send(Answer(error.error_status_hint, body))
                return
            # The unread rest of a body would be taken for the next request.
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    def _end_of_request(self) -> None:
        """If nobody read the body and it is empty, let the next request follow."""
        if self._http.their_state is h11.SEND_BODY:
            self._http.next_event()

    async def body(self) -> bytes:
        """The body of the current request."""
        await self._continue()
        parts, size = [], 0
        while True:
            event = await self._next()
            if isinstance(event, h11.Data):
                parts.append(bytes(event.data))
                size += len(event.data)
                if size > MAX_BODY:
                    raise _RefusedError(413, f"a body has at most {MAX_BODY:,} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return b"".join(parts)
            else:
                raise trio.BrokenResourceError

    async def _continue(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            told = self._http.send(h11.InformationalResponse(status_code=100, headers=[]))
            await self._out(told)

    async def _next(self) -> object:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            with trio.fail_after(self._idle):
                self._http.receive_data(bytes(await self._stream.receive_some(_RECEIVE)))

    async def _send(self, answer: Answer, *, is_head: bool = False) -> None:
        headers = [*answer.headers]
        if answer.status != 204:
            headers += [(b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(answer.body))]
        if self._http.their_state is not h11.DONE and self._http.their_state is not h11.IDLE:
            headers.append((b"Connection", b"close"))
        data = self._http.send(h11.Response(status_code=answer.status, headers=headers)) or b""
        if answer.body and not is_head:
            data += self._http.send(h11.Data(data=answer.body)) or b""
        data += self._http.send(h11.EndOfMessage()) or b""
        await self._out(data)

    async def _out(self, data: bytes | None) -> None:
        with trio.fail_after(self._idle):
            await self._stream.send_all(data or b"")


def _unpacked(body: bytes, encoding: bytes) -> bytes:
    """The unpacked body. Raises _RefusedError if it is not gzip or would become too large."""
    if encoding.lower() == b"identity":
        return body
    if encoding.lower() != b"gzip":
        raise _RefusedError(415, "a body may be compressed with gzip")
    unpacker = zlib.decompressobj(wbits=31)
    try:
        data = unpacker.decompress(body, MAX_BODY + 1)
    except zlib.error:
        raise _RefusedError(400, "the body is not gzip") from None
    if len(data) > MAX_BODY:
        raise _RefusedError(413, f"a body has at most {MAX_BODY:,} bytes when it is unpacked")
    if not unpacker.eof:
        raise _RefusedError(400, "the body is cut off")
    return data


def _form(body: bytes) -> dict[str, str]:
    try:
        return {name: values[-1] for name, values in parse_qs(body[:10_000].decode(), max_num_fields=50).items()}
    except ValueError:
        return {}
