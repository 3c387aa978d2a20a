"""A server's address and user: `mysql://USER[:PASSWORD]@HOST[:PORT][?tls=off|require|verify][&ca=FILE]`."""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

_PORT = 3306
_TLS = ("off", "require", "verify")


class SourceError(Exception):
    """A server's address is not valid; the message has the remedy."""


class Source(msgspec.Struct, frozen=True):
    """A server, and the user to log in as. `tls`: `require` encrypts; `verify` also checks the server's certificate."""

    host: str
    port: int
    user: str
    password: str
    tls: str = "off"
    ca: str = ""

    def __str__(self) -> str:
        """The URL without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mysql://{self.user}@{host}:{self.port}"

    __repr__ = __str__


def source_of(url: str) -> Source:
    """Parse a URL. If it has no password, the environment's MYSQL_PWD is used. Raises SourceError."""
    shape = "write mysql://USER@HOST:PORT, and the password into the environment variable MYSQL_PWD"
    try:
        parts = urlsplit(url)
        port = parts.port or _PORT
    except ValueError as error:
        raise SourceError(f"the source is not an address ({error}): {shape}") from None
    if parts.scheme not in ("mysql", "mariadb") or not parts.hostname or not parts.username or parts.path.strip("/"):
        raise SourceError(f"the source is not the address of a server: {shape}")
    options = dict(parse_qsl(parts.query))
    tls, ca = options.pop("tls", "off"), options.pop("ca", "")
    if options:
        raise SourceError(f"the source has an unknown option {min(options)}: there are tls and ca")
    if tls not in _TLS:
        raise SourceError(f"tls={tls} is none of {', '.join(_TLS)}")
    password = unquote(parts.password) if parts.password is not None else os.environ.get("MYSQL_PWD", "")
    return Source(parts.hostname, port, unquote(parts.username), password, tls, ca)
