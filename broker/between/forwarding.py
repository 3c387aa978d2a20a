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

from barnabas.broker.between.channels import Channels, Taken, reached
from barnabas.broker.between.envelopes import Sender, answer_in, envelope_of
from barnabas.broker.between.membership import Membership
from barnabas.broker.between.owned import OWNERS
from barnabas.broker.between.peers import Unreachable
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import RESOURCE_BROKER_LOGGER
from barnabas.broker.net.errors import Disconnected
from barnabas.broker.registry import Answer, Api, Context
from barnabas.broker.security.principals import NODE
from barnabas.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.wire.principal_data import PrincipalData
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import Message, replace


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
            return await reached(lambda: self._channels.take(self._membership.owner, request), self._tell_away)

    def _tell_away(self, error: Unreachable) -> None:
        self._log.warning("metadata.owner.away", reason=error, effect="changes wait")

    def hand_on(self, api: Api, handle: Callable[[Context, Any], Answer]) -> Callable[[Context, Any], Answer]:
        """What serves an API on this node, where `handle` would on the owner."""
        if api.name not in OWNERS:
            return handle

        def serve(context: Context, request: Any) -> Answer:
            if context.principal == NODE:  # the owner asks what this node has to say against a change
                return handle(context, request)
            if isinstance(request, IncrementalAlterConfigsRequest):
                return self._alter(context, request, handle)
            return self._forward(context, request)

        return serve

    def _alter(
        self, context: Context, request: IncrementalAlterConfigsRequest, handle: Callable[[Context, Any], Answer]
    ) -> Answer:
        """The levels of its loggers each node has for itself (KIP-412); all else the owner alters."""
        own = [each for each in request.resources if each.resource_type == RESOURCE_BROKER_LOGGER]
        if not own:
            return self._forward(context, request)
        if len(own) == len(request.resources):
            return handle(context, request)
        return self._alter_both(context, request, handle)

    async def _alter_both(
        self, context: Context, request: IncrementalAlterConfigsRequest, handle: Callable[[Context, Any], Answer]
    ) -> Message:
        """Java's admin client asks a broker for both in one request."""
        by_owner: list[AlterConfigsResource] = []
        own: list[AlterConfigsResource] = []
        for each in request.resources:
            (own if each.resource_type == RESOURCE_BROKER_LOGGER else by_owner).append(each)
        theirs = iter((await self._forward(context, replace(request, resources=by_owner))).responses)  # type: ignore[attr-defined]
        ours = iter((await handle(context, replace(request, resources=own))).responses)  # type: ignore[misc]
        return IncrementalAlterConfigsResponse(
            responses=[
                next(ours if each.resource_type == RESOURCE_BROKER_LOGGER else theirs) for each in request.resources
            ]
        )

    async def _forward(self, context: Context, request: Message) -> Message:
        api, version, login = context.api, context.version, context.connection.login
        who = PrincipalData(*context.principal, token_authenticated=login is not None and login.by_token)
        sender = Sender(who, context.connection.host, context.client_id)
        try:
            told = await self.ask(envelope_of(api, version, request, sender, context.correlation_id))
            answer = answer_in(told, api, version)
        except Unreachable:
            raise Disconnected("the owner of the metadata went away with the request") from None
        except ProtocolError as error:
            raise Disconnected(f"the owner of the metadata does not answer this: {error}") from None
        throttle_ms: int = getattr(answer, "throttle_time_ms", 0)
        if throttle_ms:
            context.throttle(throttle_ms / 1000)
        return answer
