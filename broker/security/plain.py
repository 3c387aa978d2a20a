"""PLAIN: a name and a password in the clear, compared with those in the listener's JAAS text.

Source: RFC 4616; Kafka's documentation, "Authentication using SASL/PLAIN" (`user_NAME="PASSWORD"`).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping

from barnabas.broker.security.principals import Principal
from barnabas.broker.security.sasl import AuthenticationFailed, Identified, Step

_USER = "user_"
# The password to compare with for an unknown name, so that it takes as long.
_NOBODY = secrets.token_bytes(16)


def users_of(options: Mapping[str, str]) -> dict[str, bytes]:
    """Passwords by name, from the options of a JAAS text."""
    return {key.removeprefix(_USER): value.encode() for key, value in options.items() if key.startswith(_USER)}


class PlainExchange:
    """One login."""

    def __init__(self, users: Mapping[str, bytes]) -> None:
        self._users = users

    def step(self, data: bytes) -> Step:
        try:
            authzid, name, password = data.decode().split("\0")
        except ValueError:
            raise AuthenticationFailed("Authentication failed: the message is not name and password") from None
        if not name:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified", name)
        is_right = hmac.compare_digest(self._users.get(name, _NOBODY), password.encode())
        if not is_right:
            raise AuthenticationFailed("Authentication failed: Invalid username or password", name)
        if authzid and authzid != name:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username", name
            )
        return Step(b"", Identified(Principal("User", name)))
