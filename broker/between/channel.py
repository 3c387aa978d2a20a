"""A connection to another node, with one request at a time.

Both nodes have the same version, so the versions of the APIs are not negotiated. When the connection ends, so does the
channel.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import trio

from barnabas.broker.between.peers import Unreachable
from barnabas.broker.net.transport import is_closed
from barnabas.broker.registry import APIS
from barnabas.client.sasl import LoginError, scram_login
from barnabas.wire.codegen import message_codec
from barnabas.wire.header import write_request_header
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.wire.node_login import MECHANISM, NAME, SCRAM
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import Message

_LENGTH = struct.Struct(">i")
#: The largest accepted answer of a node, in bytes.
MOST_BYTES = 1 << 30
#: A node answers a login within this time: the supervisor kills one that hangs for longer.
LOGIN_SECONDS = 10.0


class Channel:
    """Made by `open`. After `Unreachable` it cannot be used any more."""

    def __init__(self, stream: trio.SocketStream, who: str) -> None:
        self._stream, self._who = stream, who
        self._correlation = 0
        self.is_open = True

    @classmethod
    async def open(cls, port: int, secret: Callable[[], str], who: str) -> Channel:
        """Connect to a node on this machine, and log in. `who` is sent as client id. Raises Unreachable."""
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", port)
        except (OSError, OverflowError) as error:
            raise Unreachable(f"no node listens on port {port}: {error}") from None
        channel = cls(stream, who)
        try:
            with trio.fail_after(LOGIN_SECONDS):
                await channel._log_in(secret)
        except trio.TooSlowError:
            await channel.close()
            raise Unreachable(f"what listens on port {port} does not answer a login") from None
        except BaseException:
            await channel.close()
            raise
        return channel

    async def _log_in(self, secret: Callable[[], str]) -> None:
        try:
            text = secret()
        except (OSError, ValueError) as error:
            raise Unreachable(f"there is no secret: {error}") from None
        answer = await self.ask(SaslHandshakeRequest(MECHANISM))
        if answer.error_code:
            raise Unreachable("the node does not accept logins of nodes")
        tokens = scram_login(SCRAM, NAME, text)
        try:
            token = next(tokens)
            while True:
                answer = await self.ask(SaslAuthenticateRequest(token))
                if answer.error_code:
                    raise Unreachable(f"the node refuses the login: {answer.error_message}")
                token = tokens.send(answer.auth_bytes)
        except StopIteration:
            pass
        except LoginError as error:
            raise Unreachable(str(error)) from None

    @property
    def is_gone(self) -> bool:
        """Whether the connection was closed, by either side."""
        return not self.is_open or is_closed(self._stream.socket.fileno())

    async def ask(self, request: Message, version: int | None = None) -> Any:
        """Send a request and return the answer. `version` is the API's last one by default. Raises Unreachable."""
        api = APIS[request.__wire__.key]
        version = api.versions.last if version is None else version
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        flexible = version >= api.flexible_from
        head = write_request_header(api.key, version, self._correlation, self._who, flexible)
        body = head + message_codec(type(request), version).build(request)
        try:
            await self._stream.send_all(_LENGTH.pack(len(body)) + body)
            (size,) = _LENGTH.unpack(await self._exactly(4))
            if not 4 <= size <= MOST_BYTES:
                raise Unreachable(f"the node sent an answer of an invalid length: {size} bytes")
            data = await self._exactly(size)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            await self.close()
            raise Unreachable(f"the connection has ended: {error}") from None
        except BaseException:  # cancelled: its answer would be taken for that of the next request
            await self.close()
            raise
        if _LENGTH.unpack_from(data)[0] != self._correlation:
            await self.close()
            raise Unreachable("the node answered another request")
        try:
            answer, _ = message_codec(api.response, version).decode(data, 5 if flexible else 4)
        except ProtocolError as error:
            await self.close()
            raise Unreachable(f"the node's answer cannot be read: {error}") from None
        return answer

    async def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = await self._stream.receive_some(min(size - len(parts), 1 << 20))
            if not part:
                raise Unreachable("the connection has ended")
            parts += part
        return bytes(parts)

    async def close(self) -> None:
        """Close the connection at once."""
        self.is_open = False
        await trio.aclose_forcefully(self._stream)
