"""The client's side of SASL, one message at a time, on top of the test client for single messages."""

from __future__ import annotations

from typing import Any

from barnabas.broker.tests.client import Client
from barnabas.wire import scram
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest

SALT = b"0123456789abcdefghijklmnop"


def upsertion(user: str, password: str, mechanism: str = "SCRAM-SHA-256", iterations: int = 4096) -> Any:
    salted = scram.salted_password(mechanism, password, SALT, iterations)
    return ScramCredentialUpsertion(user, scram.CODES[mechanism], iterations, SALT, salted)


async def add_user(client: Client, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion(user, password, mechanism)])
    answer = await client.ask(request)
    assert answer.results[0].error_code == 0, answer


async def choose(client: Client, mechanism: str, version: int = 1) -> Any:
    return await client.ask(SaslHandshakeRequest(mechanism), version)


async def token(client: Client, data: bytes) -> Any:
    return await client.ask(SaslAuthenticateRequest(data))


async def log_in_plain(client: Client, user: str, password: str, authzid: str = "") -> Any:
    """Log in with PLAIN. Returns the last answer."""
    assert (await choose(client, "PLAIN")).error_code == 0
    return await token(client, f"{authzid}\0{user}\0{password}".encode())


class ScramClient:
    """One login with SCRAM. `first` and `final` are its messages, and tests may change them before they are sent."""

    def __init__(self, user: str, password: str, mechanism: str = "SCRAM-SHA-256", **extensions: str) -> None:
        self.mechanism, self._password = mechanism, password
        self._first = scram.client_first(user, "client-nonce", extensions)
        self.salted = self.signed = b""

    @property
    def first(self) -> bytes:
        return (self._first.gs2 + self._first.bare).encode()

    def final(self, answer: bytes, gs2: str = "n,,") -> bytes:
        told = scram.parse_server_first(answer)
        assert told.nonce.startswith("client-nonce")
        assert len(told.nonce) > len("client-nonce") + 20
        self.salted = scram.salted_password(self.mechanism, self._password, told.salt, told.iterations)
        bare = scram.client_final_bare(gs2, told.nonce)
        self.signed = scram.auth_message(self._first.bare, told.text, bare)
        return scram.client_final(bare, scram.proof(self.mechanism, self.salted, self.signed)).encode()

    def trusts(self, last: bytes) -> bool:
        """Whether the server has proved that it knows the credential."""
        server_key = scram.credential(self.mechanism, self.salted, b"", 0).server_key
        return scram.parse_server_final(last) == scram.server_signature(self.mechanism, server_key, self.signed)

    async def log_in(self, client: Client, mechanism: str | None = None) -> Any:
        """Log in. Returns the last answer, which may be the refusal."""
        assert (await choose(client, mechanism or self.mechanism)).error_code == 0
        answer = await token(client, self.first)
        if answer.error_code:
            return answer
        answer = await token(client, self.final(answer.auth_bytes))
        if answer.error_code == ErrorCode.NONE:
            assert self.trusts(answer.auth_bytes)
        return answer
