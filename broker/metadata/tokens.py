"""Delegation tokens in the metadata log: their owners, their renewers, and their expiry.

A token is its id and an HMAC of it under the broker's secret (`delegation.token.secret.key`). The HMAC is not kept:
with another secret, earlier tokens are useless. A client logs in by SCRAM with the id as its name and the HMAC as its
password, so the HMAC is never sent.

Source: KIP-48, KIP-373 (tokens for others), KIP-900 (in the metadata log).
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterator
from dataclasses import dataclass, field

from barnabas.broker.workers import Yielder
from barnabas.wire.records.cluster_metadata import DelegationTokenRecord, RemoveDelegationTokenRecord
from barnabas.wire.scram import MIN_ITERATIONS, Credential, credential, salted_password

#: The most tokens that are kept, and the most renewers of one.
MAX_TOKENS, MAX_RENEWERS = 10_000, 100


@dataclass(slots=True)
class Token:
    """A token. Owner, requester and renewers are principals as texts (`User:alice`); times are in ms since 1970."""

    id: str
    owner: str
    requester: str
    renewers: list[str]
    issued_ms: int
    max_ms: int
    expires_ms: int
    #: Its SCRAM credentials by mechanism, once calculated.
    credentials: dict[str, Credential] = field(default_factory=dict)

    def is_expired(self, now_ms: int) -> bool:
        return now_ms > min(self.max_ms, self.expires_ms)

    def is_of(self, principal: str) -> bool:
        """Whether a principal owns it, asked for it, or may renew it."""
        return principal == self.owner or principal == self.requester or principal in self.renewers

    def record(self) -> DelegationTokenRecord:
        """The record of the token."""
        return DelegationTokenRecord(
            *(self.owner, self.requester, self.renewers, self.issued_ms, self.max_ms, self.expires_ms, self.id)
        )

    def credential(self, mechanism: str, secret: str) -> Credential:
        """Its SCRAM credential. The salt may be public, as the password is as long as a key."""
        if mechanism not in self.credentials:
            password, salt = base64.b64encode(token_hmac(self.id, secret)), self.id.encode()
            salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
            self.credentials[mechanism] = credential(mechanism, salted, salt, MIN_ITERATIONS)
        return self.credentials[mechanism]


def token_hmac(token_id: str, secret: str) -> bytes:
    """The HMAC that a token's owner has besides its id."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


class DelegationTokens:
    """All tokens of the cluster, by their ids."""

    def __init__(self) -> None:
        self.by_id: dict[str, Token] = {}

    def apply(self, record: DelegationTokenRecord | RemoveDelegationTokenRecord) -> None:
        """Change the image by one record."""
        if isinstance(record, RemoveDelegationTokenRecord):
            self.by_id.pop(record.token_id, None)
            return
        token = Token(
            *(record.token_id, record.owner, record.requester, list(record.renewers)),
            *(record.issue_timestamp, record.max_timestamp, record.expiration_timestamp),
        )
        before = self.by_id.get(token.id)
        if before is not None:  # renewed
            token.credentials = before.credentials
        self.by_id[token.id] = token

    def records(self) -> Iterator[DelegationTokenRecord]:
        """The records of all tokens."""
        for token in self.by_id.values():
            yield token.record()

    async def with_hmac(self, given: bytes, secret: str) -> Token | None:
        """The token of an HMAC, which only its owner and renewers know. Takes the same time for every token."""
        found, breathe = None, Yielder()
        for token in list(self.by_id.values()):
            await breathe()
            if hmac.compare_digest(token_hmac(token.id, secret), given):
                found = token
        return found
