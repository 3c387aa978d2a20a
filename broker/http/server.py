"""HTTP/1.1 on trio, with h11 for the protocol: each connection answers one request after the other.

Clients are not trusted. A head has at most `MOST_HEAD` bytes, a body at most `MOST_BODY`. Bodies larger than a form are
received for at most `BODIES` requests at a time, and only from visitors who may ask at all. There are at most
`MOST_CONNECTIONS` connections. A further one replaces a connection of the address that has the most: the one that has
been idle for longest. So connections that are held open do not keep others out. A client loses its connection only if
it is replaced in this way, or if it stops in the middle of a request.

Source: RFC 9112; decision 57.
"""

from __future__ import annotations

import contextlib
import ssl
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import trio

from barnabas.broker.http.messages import JSON, Refused, Request, Response, Visitor, refusal
from barnabas.broker.log import EventLog

MOST_CONNECTIONS = 128
MOST_HEAD = 16 << 10
#: Enough for a record of the largest usual size, in base64.
MOST_BODY = 2 << 20
SMALL_BODY = 16 << 10
BODIES = 4
# How long a client may pause inside a request, or leave an answer unread.
PATIENCE_SECONDS = 30.0
_RECEIVE = 64 << 10

#: Errors that mean that a client has left, or has paused for too long.
GONE = (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, ssl.SSLError, OSError)

#: Sent with every answer: no page of another site may show, frame or run any of this.
GUARDS = (
    ("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


class Site(Protocol):
    """Answers requests."""

    async def admit(self, head: Head) -> Visitor:
        """The visitor, before the body is read. Raises Refused."""

    async def answer(self, request: Request) -> Response:
        """Answer a complete request. Raises Refused."""


class Head:
    """A request before its body has arrived. `host` is the client's address."""

    __slots__ = ("headers", "host", "is_encrypted", "method", "path", "query")

    def __init__(self, event: h11.Request, host: str, *, is_encrypted: bool) -> None:
        target = urlsplit(event.target.decode("latin-1"))
        self.method = event.method.decode("ascii")
        self.path = unquote(target.path)
        self.query: dict[str, str] = {}
        for name, value in parse_qsl(target.query, keep_blank_values=True, max_num_fields=100):
            self.query.setdefault(name, value)
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        self.host, self.is_encrypted = host, is_encrypted


class Server:
    """All connections of the listener. Each one is a task that calls `serve`."""

    def __init__(self, site: Site, log: EventLog) -> None:
        self._site, self._log = site, log
        self._connections: dict[_Connection, None] = {}  # in the order of use, the longest idle first
        self.bodies = trio.CapacityLimiter(BODIES)

    def __len__(self) -> int:
        return len(self._connections)

    async def serve(self, stream: trio.SocketStream, context: ssl.SSLContext | None) -> None:
        """Answer requests until the client leaves or is disconnected."""
        host = str(stream.socket.getpeername()[0])
        outer: trio.abc.Stream = stream
        if context is not None:
            outer = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        connection = _Connection(self, self._site, outer, host, is_encrypted=context is not None)
        self._make_room()
        self._connections[connection] = None
        try:
            with connection.scope:
                await connection.run()
        except GONE:
            pass  # the client has left, or has paused for too long
        except Exception as error:
            self._log.exception("http.failed", error, client=host)
        finally:
            self._connections.pop(connection, None)
            with trio.move_on_after(1) as scope:
                scope.shield = True
                await trio.aclose_forcefully(outer)

    def used(self, connection: _Connection) -> None:
        """Note that a connection has got a request, so the others have been idle for longer."""
        if connection in self._connections:
            del self._connections[connection]
            self._connections[connection] = None

    def _make_room(self) -> None:
        if len(self._connections) < MOST_CONNECTIONS:
            return
        per_host = Counter(each.host for each in self._connections)
        most = max(per_host.values())
        idle = next(each for each in self._connections if per_host[each.host] == most)
        self._connections.pop(idle)
        idle.scope.cancel()


class _Connection:
    """One connection, with one request after the other."""

    def __init__(self, server: Server, site: Site, stream: trio.abc.Stream, host: str, *, is_encrypted: bool) -> None:
        self.host, self.scope = host, trio.CancelScope()
        self._server, self._site, self._stream, self._is_encrypted = server, site, stream, is_encrypted
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD)

    async def run(self) -> None:
        while True:
            try:
                event = await self._next(patience=float("inf"))
                if not isinstance(event, h11.Request):
                    return
                self._server.used(self)
                head = Head(event, self.host, is_encrypted=self._is_encrypted)
                try:
                    response = await self._answer(head)
                except Refused as error:
                    response = error.response
                    if self._http.their_state is h11.SEND_BODY:
                        self._http.next_event()  # if the request has no body, the next request may follow
                await self._send(response, is_head=head.method == "HEAD")
            except (h11.RemoteProtocolError, ValueError) as error:
                if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    await self._send(refusal(getattr(error, "error_status_hint", 400), "not a request of HTTP/1.1"))
                return
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return  # the rest of a body would be read as the next request
            self._http.start_next_cycle()

    async def _answer(self, head: Head) -> Response:
        who = await self._site.admit(head)
        body = await self._body(head)
        return await self._site.answer(Request(head.method, head.path, head.query, head.headers, body, who))

    async def _body(self, head: Head) -> bytes:
        length = head.headers.get("content-length", "0")
        if head.method in ("GET", "HEAD") or (length.isdigit() and int(length) <= SMALL_BODY):
            return await self._read_body(SMALL_BODY)
        async with self._server.bodies:
            with trio.fail_after(4 * PATIENCE_SECONDS):
                return await self._read_body(MOST_BODY)

    async def _read_body(self, most: int) -> bytes:
        if self._http.they_are_waiting_for_100_continue:
            told = h11.InformationalResponse(status_code=100, headers=[])
            await self._out(self._http.send(told))
        parts, size = [], 0
        while True:
            event = await self._next(PATIENCE_SECONDS)
            if isinstance(event, h11.Data):
                parts.append(bytes(event.data))
                size += len(event.data)
                if size > most:
                    raise Refused(413, f"a body has at most {most:,} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return b"".join(parts)
            else:
                raise trio.BrokenResourceError

    async def _next(self, patience: float) -> Any:
        """The next event. A client may wait without limit between two requests, but not inside one."""
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            with trio.fail_after(PATIENCE_SECONDS if self._http.trailing_data[0] else patience):
                self._http.receive_data(bytes(await self._stream.receive_some(_RECEIVE)))

    async def _send(self, response: Response, *, is_head: bool = False) -> None:
        headers = [*GUARDS, ("Content-Type", response.content_type), *response.headers]
        if response.content_type == JSON:
            headers.append(("Cache-Control", "no-store"))
        is_whole = isinstance(response.body, bytes)
        if not is_whole or self._http.their_state not in (h11.DONE, h11.IDLE, h11.MUST_CLOSE):
            headers.append(("Connection", "close"))
        if is_whole:
            headers.append(("Content-Length", str(len(response.body))))  # type: ignore[arg-type]
        await self._out(self._http.send(h11.Response(status_code=response.status, headers=headers)))
        if not is_head:
            if isinstance(response.body, bytes):
                await self._out(self._http.send(h11.Data(data=response.body)))
            else:
                await self._send_parts(response.body)
        await self._out(self._http.send(h11.EndOfMessage()))

    async def _send_parts(self, parts: AsyncGenerator[bytes, None]) -> None:
        """Send parts as they arrive. Raises BrokenResourceError if the client leaves before the end."""
        has_left = False

        async def watch(scope: trio.CancelScope) -> None:
            nonlocal has_left
            with contextlib.suppress(*GONE):
                await self._stream.receive_some(1)  # the client has left: it sends no further request here
            has_left = True
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, nursery.cancel_scope)
            try:
                async for part in parts:
                    await self._out(self._http.send(h11.Data(data=part)))
            except GONE:
                has_left = True
            finally:
                with trio.CancelScope(shield=True):
                    await parts.aclose()
            nursery.cancel_scope.cancel()
        if has_left:
            raise trio.BrokenResourceError

    async def _out(self, data: bytes | None) -> None:
        if data:
            with trio.fail_after(PATIENCE_SECONDS):
                await self._stream.send_all(data)
