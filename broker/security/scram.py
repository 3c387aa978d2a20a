"""The server's side of SCRAM, for the credentials of users and of delegation tokens.

For a name without a credential the answer looks like any other, with a salt that stays the same, and the login fails at
the proof. So a client cannot find out which names exist.

Source: RFC 5802, RFC 7677; KIP-84, KIP-48.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import NamedTuple

from barnabas.broker.security.sasl import AuthenticationFailed, Identified, Step
from barnabas.wire import scram
from barnabas.wire.scram import Credential, ScramError

_SECRET = secrets.token_bytes(32)
_NONCE_BYTES = 24


class Found(NamedTuple):
    """The principal of a name, and the credential to prove."""

    credential: Credential
    identified: Identified


#: By name and mechanism.
Find = Callable[[str, str], Found | None]


def decoy(mechanism: str, name: str, like: Credential | None) -> Credential:
    """A credential that looks like another one, but has no known password."""
    digest = hmac.digest(_SECRET, f"{mechanism}\0{name}".encode(), "sha512")
    if like is None:
        return Credential(digest[:24], digest, digest, scram.MIN_ITERATIONS)
    salt = digest * (len(like.salt) // len(digest) + 1)
    if like.salt.isascii():  # Kafka's tools make salts of letters and digits
        salt = salt.hex().encode()
    return Credential(salt[: len(like.salt)], digest, digest, like.iterations)


class ScramExchange:
    """One login: client-first, then client-final."""

    def __init__(
        self,
        mechanism: str,
        find_user: Find,
        find_token: Find,
        usual: Callable[[str], Credential | None] = lambda _: None,
        nonce: Callable[[], str] = lambda: secrets.token_urlsafe(_NONCE_BYTES),
    ) -> None:
        """`usual` gives some credential of a mechanism: decoys for unknown names look like it."""
        self._mechanism, self._find_user, self._find_token, self._make_nonce = mechanism, find_user, find_token, nonce
        self._usual = usual
        self._first: scram.ClientFirst | None = None
        self._credential: Credential | None = None
        self._identified: Identified | None = None
        self._nonce = self._answer = ""

    def step(self, data: bytes) -> Step:
        name = self._first.name if self._first is not None else ""
        try:
            return self._begin(data) if self._first is None else self._end(self._first, data)
        except ScramError as error:
            raise AuthenticationFailed(f"Authentication failed: {error}", name) from None

    def _begin(self, data: bytes) -> Step:
        first = scram.parse_client_first(data)
        if not first.name:
            raise ScramError("username not specified")
        if first.authzid and first.authzid != first.name:
            raise ScramError("Client requested an authorization id that is different from username")
        is_token = first.extensions.get(scram.TOKEN_AUTH, "").lower() == "true"
        found = (self._find_token if is_token else self._find_user)(first.name, self._mechanism)
        self._first = first
        self._nonce = first.nonce + self._make_nonce()
        if found is None:
            self._credential = decoy(self._mechanism, first.name, self._usual(self._mechanism))
        else:
            self._credential, self._identified = found
        self._answer = scram.server_first(self._nonce, self._credential.salt, self._credential.iterations)
        return Step(self._answer.encode())

    def _end(self, first: scram.ClientFirst, data: bytes) -> Step:
        assert self._credential is not None
        final = scram.parse_client_final(data)
        if final.gs2 != first.gs2:
            raise ScramError("the header of the first message was changed")
        if final.nonce != self._nonce:
            raise ScramError("the nonce was changed")
        signed = scram.auth_message(first.bare, self._answer, final.bare)
        is_right = scram.is_proved(self._mechanism, self._credential, signed, final.proof)
        if not is_right or self._identified is None:
            raise AuthenticationFailed(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                + self._mechanism,
                first.name,
            )
        signature = scram.server_signature(self._mechanism, self._credential.server_key, signed)
        return Step(scram.server_final(signature).encode(), self._identified)
