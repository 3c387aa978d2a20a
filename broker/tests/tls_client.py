"""A client that uses TLS, for tests of the wire protocol itself."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

import trio

from barnabas.broker.tests.client import Client
from compat_tests.security.certificates import Authority, Issued

Context = Callable[..., ssl.SSLContext]


def client_context(ca: Authority, own: Issued | None = None, **settings: Any) -> ssl.SSLContext:
    """A context with a trusted authority and the client's own certificate; `settings` are its attributes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=ca.trust_text())
    if own is not None:
        import tempfile
        from pathlib import Path

        with tempfile.TemporaryDirectory() as folder:
            context.load_cert_chain(own.pem(Path(folder) / "own.pem"))
    for name, value in settings.items():
        setattr(context, name, value)
    return context


async def tls_connect(port: int, context: ssl.SSLContext, source: str | None = None) -> Client:
    """A connection after its handshake, as far as the client can tell. Raises trio.BrokenResourceError."""
    plain = await trio.open_tcp_stream("127.0.0.1", port, local_address=source)
    stream = trio.SSLStream(plain, context, server_hostname="localhost")
    await stream.do_handshake()
    return Client(stream)  # type: ignore[arg-type]
