"""Names and passwords of the broker's own users: those of PLAIN, and those with a SCRAM credential.

To check a password against a SCRAM credential takes some milliseconds of CPU. So one thread does it, for one client
after the other. The result is a `Proof`, which can later tell whether the user and the password are still valid.
"""

from __future__ import annotations

import hmac
from functools import partial
from typing import NamedTuple

from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.security.plain import users_of
from barnabas.broker.security.principals import Principal
from barnabas.broker.security.scram import decoy
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.workers import Turns
from barnabas.wire import scram
from barnabas.wire.scram import Credential

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PLAIN = "PLAIN"


class Proof(NamedTuple):
    """A user, and what the user has proved to know: the password of PLAIN, or a credential."""

    principal: Principal
    mechanism: str
    what: bytes | Credential


class Passwords:
    """Checks names and passwords."""

    def __init__(self, config: BrokerConfig, metadata: MetadataImage) -> None:
        self._config, self._metadata = config, metadata
        self._thread = Turns(1)

    @property
    def are_asked_for(self) -> bool:
        """Whether clients of this broker have to log in on any listener."""
        return any(each.protocol.has_sasl for each in self._config.listeners)

    async def check(self, client: str, name: str, password: str) -> Proof | None:
        """The user; None if there is no such user, or the password is wrong. Each `client` gets its turn."""
        if not name or not password:
            return None
        known = self._plain().get(name)
        if known is not None and hmac.compare_digest(known, password.encode()):
            return Proof(Principal("User", name), PLAIN, known)
        for mechanism in SCRAM:
            credential = self._metadata.credentials.find(name, mechanism)
            if credential is not None:
                fits = await self._thread.run(client, partial(_fits, mechanism, credential, password))
                return Proof(Principal("User", name), mechanism, credential) if fits else None
        nobody = decoy(SCRAM[0], name, self._metadata.credentials.usual(SCRAM[0]))
        await self._thread.run(client, partial(_fits, SCRAM[0], nobody, password))  # as long as for an existing user
        return None

    def holds(self, proof: Proof) -> bool:
        """Whether the user still exists, with that password."""
        name = proof.principal.name
        if proof.mechanism == PLAIN:
            return self._plain().get(name) == proof.what
        return self._metadata.credentials.find(name, proof.mechanism) == proof.what

    def _plain(self) -> dict[str, bytes]:
        """All users of PLAIN, on all listeners."""
        found: dict[str, bytes] = {}
        for listener in self._config.listeners:
            if listener.protocol.has_sasl and PLAIN in self._config.of(listener.name, "sasl.enabled.mechanisms"):
                entry = self._config.jaas_of(listener.name, PLAIN)
                if entry is not None:
                    found.update(users_of(entry.options))
        return found


def _fits(mechanism: str, credential: Credential, password: str) -> bool:
    salted = scram.salted_password(mechanism, password, credential.salt, credential.iterations)
    made = scram.credential(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(made.stored_key, credential.stored_key)
