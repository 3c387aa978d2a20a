"""The connections of this node to the others. They are made when needed, and kept for later requests.

A broker answers the requests of one connection in order. So each connection carries one request at a time, and a slow
request delays no other. The number of requests is limited for each API separately, so that requests that wait for the
metadata do not keep markers from being written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import trio

from barnabas.broker.between.channel import Channel
from barnabas.broker.between.membership import Membership
from barnabas.broker.between.peers import Unreachable
from barnabas.broker.between.secret import read_secret
from barnabas.wire.types import Message

T = TypeVar("T")
# Pauses before a node that is down is asked again, and how long it is down before that is logged.
_FIRST_RETRY_SECONDS, _MOST_SECONDS, _TOLD_SECONDS = 0.02, 0.5, 0.3
#: The most requests of one API to one node at a time.
AT_ONCE = 8


async def reached(connect: Callable[[], Awaitable[T]], away: Callable[[Unreachable], None]) -> T:
    """Call `connect` until the node answers; returns its result. If that lasts, calls `away` once with the reason."""
    wait, began, told = _FIRST_RETRY_SECONDS, trio.current_time(), False
    while True:
        try:
            return await connect()
        except Unreachable as error:
            if not told and trio.current_time() - began >= _TOLD_SECONDS:
                told = True
                away(error)
            await trio.sleep(wait)
            wait = min(2 * wait, _MOST_SECONDS)


class Taken:
    """A connection reserved for one request. Used as an async context, which gives the channel."""

    channel: Channel

    def __init__(self, limit: trio.CapacityLimiter, idle: list[Channel]) -> None:
        self._limit, self.idle = limit, idle

    async def __aenter__(self) -> Channel:
        return self.channel

    async def __aexit__(self, *_: object) -> None:
        self._limit.release_on_behalf_of(self)
        if self.channel.is_open:
            self.idle.append(self.channel)


class Channels:
    """See `Peers`."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._who = f"node-{membership.node_id}"
        self._idle: defaultdict[int, list[Channel]] = defaultdict(list)
        self._limits: defaultdict[tuple[int, int], trio.CapacityLimiter] = defaultdict(
            lambda: trio.CapacityLimiter(AT_ONCE)
        )

    async def ask(self, node: int, request: Message, version: int | None = None) -> Any:
        """The answer of another node. Raises Unreachable, also if the connection ends after the request was sent."""
        async with await self.take(node, request) as channel:
            return await channel.ask(request, version)

    async def take(self, node: int, request: Message) -> Taken:
        """Reserve a connection for one request, which is not sent yet. Raises Unreachable."""
        limit = self._limits[node, request.__wire__.key]
        taken = Taken(limit, self._idle[node])
        await limit.acquire_on_behalf_of(taken)
        try:
            while taken.idle:
                channel = taken.idle.pop()
                if not channel.is_gone:
                    break
                await channel.close()
            else:
                channel = await self.open(node)
        except BaseException:
            limit.release_on_behalf_of(taken)
            raise
        taken.channel = channel
        return taken

    async def open(self, node: int) -> Channel:
        """A connection to a node, for a caller that sends many requests one after the other. Raises Unreachable."""
        try:
            port = self._membership.port_of(node)
        except OSError as error:
            raise Unreachable(str(error)) from None
        if port is None:
            raise Unreachable(f"nodes/{node}/address has no port of node {node}")
        return await Channel.open(port, partial(read_secret, self._membership.data_dir), self._who)

    async def close(self) -> None:
        """Close the connections that are not in use."""
        for idle in self._idle.values():
            while idle:
                await idle.pop().close()
