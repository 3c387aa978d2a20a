"""A client's request that only the owner of the metadata may carry out, handed on to it in an Envelope (KIP-590).

    a node: request -> Envelope with who asked -> the owner's answer -> the client
    the owner: Envelope -> the request's own handler, for the client it is from -> every node has applied the change

The owner judges the rights: of the client, not of the node. While the owner is away, the request waits. If it went away
with the request, nobody knows whether that was carried out: the client's connection ends, as if its broker had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from barnabas.broker.between.channels import Channels, Taken
from barnabas.broker.between.membership import Membership
from barnabas.broker.between.owned import OWNERS
from barnabas.broker.between.peers import Unreachable
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import RESOURCE_BROKER_LOGGER
from barnabas.broker.net.errors import Disconnected
from barnabas.broker.registry import Answer, Api, Context
from barnabas.wire.codegen import message_codec
from barnabas.wire.header import write_request_header
from barnabas.wire.messages.envelope import EnvelopeRequest
from barnabas.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.wire.principal_data import PrincipalData, encode_principal
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import Message

# How soon the owner is tried again: it takes this long, or longer, to come back.
_FIRST_RETRY_SECONDS, _TOLD_SECONDS, _MOST_SECONDS = 0.02, 0.32, 0.5


class Owner:
    """The node that owns the metadata, as the others ask it."""

    def __init__(self, membership: Membership, channels: Channels, log: EventLog) -> None:
        self._membership, self._channels, self._log = membership, channels, log
        self._away = trio.Lock()

    async def ask(self, request: Message) -> Any:
        """The owner's answer; waits while it is away. Raises Unreachable if it went away when it had been asked."""
        async with await self._reached(request) as channel:
            return await channel.ask(request)

    async def _reached(self, request: Message) -> Taken:
        """A connection to the owner. While it is away, one of those who wait looks whether it is back, for all."""
        if not self._away.locked():
            try:
                return await self._channels.take(self._membership.owner, request)
            except Unreachable:
                pass
        async with self._away:
            wait = _FIRST_RETRY_SECONDS
            while True:
                try:
                    return await self._channels.take(self._membership.owner, request)
                except Unreachable as error:
                    if wait == _TOLD_SECONDS:
                        self._log.warning("metadata.owner.away", reason=error, effect="changes wait")
                    await trio.sleep(wait)
                    wait = min(2 * wait, _MOST_SECONDS)

    def hand_on(self, api: Api, handle: Callable[[Context, Any], Answer]) -> Callable[[Context, Any], Answer]:
        """What serves an API on this node, where `handle` would on the owner."""
        if api.name not in OWNERS:
            return handle

        def serve(context: Context, request: Any) -> Answer:
            return handle(context, request) if _is_of_this_node(request) else self._forward(context, request)

        return serve

    async def _forward(self, context: Context, request: Message) -> Message:
        api, version = context.api, context.version
        is_flexible = version >= api.flexible_from
        head = write_request_header(api.key, version, context.correlation_id, context.client_id, is_flexible)
        login = context.connection.login
        who = PrincipalData(*context.principal, token_authenticated=login is not None and login.by_token)
        envelope = EnvelopeRequest(
            request_data=head + message_codec(api.request, version).build(request),
            request_principal=encode_principal(who),
            client_host_address=context.connection.host.encode(),
        )
        try:
            told = await self.ask(envelope)
        except Unreachable:
            raise Disconnected("the owner of the metadata went away with the request") from None
        if told.error_code:
            raise Disconnected(f"the owner of the metadata does not take the request: error {told.error_code}")
        try:
            answer: Message
            answer, _ = message_codec(api.response, version).decode(told.response_data, 5 if is_flexible else 4)
        except ProtocolError as error:
            raise Disconnected(f"the owner of the metadata answers what cannot be read: {error}") from None
        throttle_ms: int = getattr(answer, "throttle_time_ms", 0)
        if throttle_ms:
            context.throttle(throttle_ms / 1000)
        return answer


def _is_of_this_node(request: Message) -> bool:
    """Whether it is of what each node has for itself: the levels of its loggers (KIP-412)."""
    return (
        isinstance(request, IncrementalAlterConfigsRequest)
        and bool(request.resources)
        and all(each.resource_type == RESOURCE_BROKER_LOGGER for each in request.resources)
    )
