"""Hands a client's request on to the owner of the metadata, in an Envelope, if only the owner may carry it out
(KIP-590).

    a node:    request -> Envelope with the client's identity -> the owner's answer -> the client
    the owner: Envelope -> the handler of the request, for that client -> every node has applied the change

The owner checks the rights of the client, not of the node. While the owner is down, the request waits. If the owner
ends after it got the request, nobody knows whether it was carried out. Then the client's connection is closed, as if
its broker had ended.
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
    """The node that owns the metadata, for the other nodes to ask."""

    def __init__(self, membership: Membership, channels: Channels, log: EventLog) -> None:
        self._membership, self._channels, self._log = membership, channels, log
        self._away = trio.Lock()

    async def ask(self, request: Message) -> Any:
        """The owner's answer; waits while the owner is down. Raises Unreachable if it ends after it got the request."""
        async with await self._reached(request) as channel:
            return await channel.ask(request)

    async def _reached(self, request: Message) -> Taken:
        """A connection to the owner. While it is down, one of the waiting requests tries to connect, for all."""
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
        """The handler to use on this node instead of `handle`, which the owner uses."""
        if api.name not in OWNERS:
            return handle

        def serve(context: Context, request: Any) -> Answer:
            if context.principal == NODE:  # the owner asks whether this node has objections to a change
                return handle(context, request)
            if isinstance(request, IncrementalAlterConfigsRequest):
                return self._alter(context, request, handle)
            return self._forward(context, request)

        return serve

    def _alter(
        self, context: Context, request: IncrementalAlterConfigsRequest, handle: Callable[[Context, Any], Answer]
    ) -> Answer:
        """Each node has its own levels of loggers (KIP-412); all other configuration is changed by the owner."""
        own = [each for each in request.resources if each.resource_type == RESOURCE_BROKER_LOGGER]
        if not own:
            return self._forward(context, request)
        if len(own) == len(request.resources):
            return handle(context, request)
        return self._alter_both(context, request, handle)

    async def _alter_both(
        self, context: Context, request: IncrementalAlterConfigsRequest, handle: Callable[[Context, Any], Answer]
    ) -> Message:
        """Java's admin client sends both kinds to a broker in one request."""
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
            raise Disconnected("the owner of the metadata ended after it got the request") from None
        except ProtocolError as error:
            raise Disconnected(f"the owner of the metadata does not answer this: {error}") from None
        throttle_ms: int = getattr(answer, "throttle_time_ms", 0)
        if throttle_ms:
            context.throttle(throttle_ms / 1000)
        return answer
