"""An HTTP client that sends single requests, valid and invalid ones."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

import h11
import msgspec
import trio


class Got(NamedTuple):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


def basic(name: str, password: str) -> dict[str, str]:
    """The header for HTTP Basic."""
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


class Browser:
    """One connection."""

    def __init__(self, stream: trio.abc.Stream, host: str) -> None:
        self.stream, self.host = stream, host
        self._http = h11.Connection(h11.CLIENT)

    async def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        host: str | None = None,
    ) -> Got:
        """Send a request, and return its answer."""
        sent = {"Host": self.host if host is None else host, "Content-Length": str(len(body)), **(headers or {})}
        request = h11.Request(method=method, target=path, headers=list(sent.items()))
        await self.stream.send_all(self._http.send(request) or b"")
        await self.stream.send_all((self._http.send(h11.Data(data=body)) or b"") + self._http.send(h11.EndOfMessage()))
        got: Got | None = None
        parts = bytearray()
        with trio.fail_after(60):
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    self._http.receive_data(bytes(await self.stream.receive_some(65536)))
                elif isinstance(event, h11.Response):
                    told = {name.decode(): value.decode() for name, value in event.headers}
                    got = Got(event.status_code, told, b"")
                elif isinstance(event, h11.Data):
                    parts += event.data
                elif isinstance(event, h11.EndOfMessage):
                    break
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        assert got is not None
        return got._replace(body=bytes(parts))

    async def is_closed(self) -> bool:
        """Wait for the server to close the connection."""
        with trio.fail_after(60):
            try:
                while await self.stream.receive_some(65536):
                    pass
            except trio.BrokenResourceError:
                pass
        return True


async def browse(port: int, host: str | None = None) -> Browser:
    """A new connection to a listener on this machine."""
    return Browser(await trio.open_tcp_stream("127.0.0.1", port), host or f"127.0.0.1:{port}")
