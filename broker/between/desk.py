"""Carries out requests that other nodes forward for their clients. The owner of the metadata carries out changes of it;
any node carries out requests that visitors of another node's console send."""

from __future__ import annotations

import time
from collections.abc import Sequence
from time import thread_time
from typing import TYPE_CHECKING, Any, cast

import trio

from barnabas.broker.net import large
from barnabas.broker.net.metering import Meter
from barnabas.broker.quotas.manager import QuotaManager
from barnabas.broker.registry import Context, Handlers
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.security.principals import Principal, client_of
from barnabas.broker.settings.listeners import NODES, Protocol
from barnabas.wire.header import read_request_header, skip_header_tags
from barnabas.wire.principal_data import PrincipalData

if TYPE_CHECKING:
    from barnabas.broker.net.connection import Connection


BYTES = (bytes, bytearray, memoryview)


class Visitor:
    """Stands for a client of another node while one of its requests is carried out. Handlers use it as a connection.

    The other node has admitted the client: either it has logged in there, or no login is needed.
    """

    def __init__(self, who: PrincipalData, host: str, authorizer: Authorizer | None) -> None:
        self.principal, self.host, self.authorizer = Principal(who.type, who.name), host, authorizer
        self.client = self.origin = client_of(self.principal, host)
        self.by_token = who.token_authenticated
        #: Handlers ask the login whether it was by a token.
        self.login = self
        self.listener, self.protocol, self.port = NODES, Protocol.SASL_PLAINTEXT, 0

    def throttle(self, seconds: float) -> None:
        """Does nothing: the answer carries the time, and the node with the client's connection delays it."""


class Desk:
    """Carries out requests of other nodes, once this node is ready."""

    def __init__(self, quotas: QuotaManager) -> None:
        self._quotas = quotas
        self._handlers: Handlers | None = None
        self._authorizer: Authorizer | None = None
        self._ready = trio.Event()

    def ready(self, handlers: Handlers, authorizer: Authorizer | None) -> None:
        """Carry out requests from now on, and those that wait already."""
        self._handlers, self._authorizer = handlers, authorizer
        self._ready.set()

    async def carry_out(self, data: bytes, who: PrincipalData, host: str) -> bytes:
        """The answer to a whole request, with its header. Raises ProtocolError for a request that cannot be read."""
        await self._ready.wait()
        assert self._handlers is not None
        header = read_request_header(data)
        endpoint = self._handlers.find(header.api_key, header.api_version)
        position = skip_header_tags(data, header.end) if endpoint.flexible else header.end
        request, _ = endpoint.decode(data, position, large.MAX_ELEMENTS)
        visitor = cast("Connection", Visitor(who, host, self._authorizer))
        name, now = header.client_id, time.perf_counter()
        context = Context(visitor, endpoint.api, endpoint.version, header.correlation_id, name, now)
        meter, began = Meter(self._quotas), thread_time()
        bill = meter.bill(context)
        answer = endpoint.handle(context, request)
        if bill is not None:
            meter.handled(bill, context, len(data), thread_time() - began, has_answer=True)
        chunks = endpoint.encode(await large.given(answer), context)
        if all(isinstance(each, BYTES) for each in chunks):
            return b"".join(chunks)[4:]  # type: ignore[arg-type]
        return (await trio.to_thread.run_sync(_read, chunks))[4:]


def _read(chunks: Sequence[Any]) -> bytes:
    """An answer with log data, which may have to be read from disk. For a thread."""
    return b"".join(each if isinstance(each, BYTES) else each.read() for each in chunks)
