"""The SCRAM credentials of users in the metadata log: never a password.

Source: KIP-554; RFC 5802.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.wire.records.cluster_metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from barnabas.wire.scram import CODES, MECHANISMS, Credential

#: The most users that are kept.
MAX_USERS = 10_000


class ScramCredentials:
    """Credentials by user, and by mechanism. Names are compared unchanged, without Unicode normalization."""

    def __init__(self) -> None:
        self.of: dict[str, dict[str, Credential]] = {}

    def find(self, user: str, mechanism: str) -> Credential | None:
        return self.of.get(user, {}).get(mechanism)

    def usual(self, mechanism: str) -> Credential | None:
        """The newest credential of any user for this mechanism."""
        for known in reversed(self.of.values()):
            if mechanism in known:
                return known[mechanism]
        return None

    def apply(self, record: UserScramCredentialRecord | RemoveUserScramCredentialRecord) -> None:
        """Change the image by one record. An unknown mechanism is skipped."""
        mechanism = MECHANISMS.get(record.mechanism)
        if mechanism is None:
            return
        if isinstance(record, UserScramCredentialRecord):
            known = Credential(record.salt, record.stored_key, record.server_key, record.iterations)
            self.of.setdefault(record.name, {})[mechanism] = known
            return
        mechanisms = self.of.get(record.name, {})
        mechanisms.pop(mechanism, None)
        if not mechanisms:
            self.of.pop(record.name, None)

    def records(self) -> Iterator[UserScramCredentialRecord]:
        """The records of all credentials."""
        for user, mechanisms in self.of.items():
            for mechanism, known in mechanisms.items():
                yield credential_record(user, mechanism, known)


def credential_record(user: str, mechanism: str, known: Credential) -> UserScramCredentialRecord:
    """The record that gives a user a credential, in place of an earlier one for this mechanism."""
    return UserScramCredentialRecord(
        user, CODES[mechanism], known.salt, known.stored_key, known.server_key, known.iterations
    )
