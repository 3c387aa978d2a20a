"""The client's side of SASL: the tokens of one login, for each mechanism. No I/O.

Source: RFC 4616 (PLAIN), RFC 5802 and RFC 7677 (SCRAM), RFC 7628 (OAUTHBEARER).
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Generator

from barnabas.client.errors import ClientError
from barnabas.wire import driver_login, scram
from barnabas.wire.scram import ScramError

#: Yields what to send, and receives the broker's answers.
Tokens = Generator[bytes, bytes, None]
#: Begins a login.
Begin = Callable[[], Tokens]


class LoginError(ClientError):
    """The broker refuses the login, or does not know our password itself. Asking again does not help."""


def plain(name: str, password: str) -> Tokens:
    """Name and password in clear text."""
    yield f"\0{name}\0{password}".encode()


def scram_login(mechanism: str, name: str, password: str, *, by_token: bool = False) -> Tokens:
    """SCRAM, which also verifies that the broker knows the password. Raises LoginError."""
    mine = secrets.token_urlsafe(24)
    first = scram.client_first(name, mine, {scram.TOKEN_AUTH: "true"} if by_token else {})
    answer = yield (first.gs2 + first.bare).encode()
    try:
        told = scram.parse_server_first(answer)
        if not told.nonce.startswith(mine) or told.nonce == mine:
            raise ScramError("the nonce is not ours and the broker's")
        if not scram.MIN_ITERATIONS <= told.iterations <= scram.MAX_ASKED_ITERATIONS:
            raise ScramError(f"{told.iterations} iterations are asked for")
        salted = scram.salted_password(mechanism, password, told.salt, told.iterations)
        bare = scram.client_final_bare(first.gs2, told.nonce)
        signed = scram.auth_message(first.bare, told.text, bare)
        last = yield scram.client_final(bare, scram.proof(mechanism, salted, signed)).encode()
        server_key = scram.credential(mechanism, salted, told.salt, told.iterations).server_key
        expected = scram.server_signature(mechanism, server_key, signed)
        if not hmac.compare_digest(scram.parse_server_final(last), expected):
            raise ScramError("the broker does not know the password")
    except ScramError as error:
        raise LoginError(f"Login by {mechanism} failed: {error}") from None


def driver(secret: str) -> Tokens:
    """The streams driver's login."""
    yield from scram_login(driver_login.SCRAM, driver_login.NAME, secret)


def oauthbearer(token: str) -> Tokens:
    """A token that was issued to us. Raises LoginError."""
    answer = yield b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"
    if answer:
        yield b"\x01"  # the broker has sent its reason, and refuses now
        try:
            status = str(json.loads(answer).get("status", ""))
        except (ValueError, AttributeError):
            status = ""
        raise LoginError(f"Login by OAUTHBEARER failed: the broker refuses the token {status}".rstrip())
