"""The broker's listeners: names, addresses and security protocols, and the keys of a single listener.

Source: KIP-103 (names of listeners), KIP-226 (`listener.name.NAME.KEY`, `listener.name.NAME.MECHANISM.KEY`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from barnabas.broker.settings.keys import ConfigError, ConfigKey


class Protocol(StrEnum):
    """Whether a listener's connections are encrypted, and whether clients log in."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        return self in (Protocol.SSL, Protocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL)


@dataclass(frozen=True)
class Listener:
    """An address to listen on or to advertise. An empty host means all interfaces."""

    name: str
    host: str
    port: int
    protocol: Protocol = Protocol.PLAINTEXT

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


#: The listener for requests between nodes. No configured listener can have this name.
NODES = "(nodes)"
#: The name of the HTTP listener in settings of its own.
HTTP = "HTTP"
_URL = re.compile(r"(?:(?P<scheme>https?)://)?(?P<host>\[[0-9a-fA-F:.%]*\]|[^\[\]:/]*):(?P<port>\d{1,5})/?$")


def parse_http(text: str) -> Listener:
    """Parse [http://|https://]HOST:PORT. Raises ConfigError with the expected form."""
    found = _URL.match(text)
    if not found or int(found["port"]) > 65535:
        expected = "expected HOST:PORT or https://HOST:PORT, as in 127.0.0.1:9644"
        raise ConfigError(f"Invalid value {text!r} for barnabas.http.listen: {expected}")
    protocol = Protocol.SSL if found["scheme"] == "https" else Protocol.PLAINTEXT
    return Listener(HTTP, found["host"].strip("[]"), int(found["port"]), protocol)


_LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)://(?P<host>\[[0-9a-fA-F:.%]*\]|[^\[\]:/]*):(?P<port>\d{1,5})$")


def parse_listener(text: str, key: str) -> Listener:
    """Parse NAME://HOST:PORT of any protocol. Raises ConfigError with the expected form."""
    found = _LISTENER.match(text)
    if not found or int(found["port"]) > 65535:
        raise ConfigError(f"Invalid value {text!r} for {key}: expected NAME://HOST:PORT")
    host = found["host"]
    return Listener(found["name"].upper(), host[1:-1] if host.startswith("[") else host, int(found["port"]))


def parse_protocols(text: str) -> dict[str, Protocol]:
    """`listener.security.protocol.map`: NAME:PROTOCOL, ... Raises ConfigError for a protocol that Kafka does not have.

    A name that is itself a protocol needs no entry.
    """
    found = {protocol.value: protocol for protocol in Protocol}
    for pair in filter(None, (each.strip() for each in text.split(","))):
        name, _, protocol = pair.upper().partition(":")
        if protocol not in Protocol.__members__:
            expected = f"expected NAME:PROTOCOL, with one of {', '.join(Protocol)}"
            raise ConfigError(f"Invalid value {pair!r} in listener.security.protocol.map: {expected}")
        found[name] = Protocol(protocol)
    return found


class Scoped(NamedTuple):
    """A key of a single listener, perhaps of one of its SASL mechanisms."""

    listener: str
    mechanism: str
    key: ConfigKey


def scoped(name: str, keys: Mapping[str, ConfigKey]) -> Scoped | None:
    """Parse `listener.name.NAME.KEY` or `listener.name.NAME.MECHANISM.KEY`; None for any other key.

    A listener's name may have dots: the longest key that matches is taken.
    """
    if not name.startswith("listener.name."):
        return None
    words = name.removeprefix("listener.name.").split(".")
    for i in range(1, len(words)):
        key = keys.get(".".join(words[i:]))
        if key is None or not key.of_listener:
            continue
        *of, last = words[:i]
        if of and (key.name.startswith("sasl.") or key.name == "connections.max.reauth.ms"):
            return Scoped(".".join(of).upper(), last.upper(), key)
        return Scoped(".".join(words[:i]).upper(), "", key)
    return None


def scoped_name(listener: str, name: str, mechanism: str = "") -> str:
    """The full name of a key of one listener; Kafka writes the listener and the mechanism in small letters."""
    of = f"{mechanism.lower()}." if mechanism else ""
    return f"listener.name.{listener.lower()}.{of}{name}"
