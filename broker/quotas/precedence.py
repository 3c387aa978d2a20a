"""Which of the configured quotas applies to a client, and which clients share it.

For each key by itself, the most specific one counts, in this order:

    user and client id; user and any client id; user;
    any user and client id; any user and any client id; any user;
    client id; any client id

A quota for any user applies to each user separately, a quota for any client id to each id separately. A quota that
names no client id is shared by all ids of a user, and one that names no user is shared by all users of a client id.

Source: KIP-55, and Apache Kafka's documentation of quotas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from barnabas.broker.settings.quotas import CLIENT_ID, USER, Entity


class Limit(NamedTuple):
    """A quota's value, and the user and client id that share it; an empty one means all."""

    value: float
    user: str
    client_id: str


def find_limit(quotas: Mapping[Entity, Mapping[str, float]], key: str, user: str, client_id: str) -> Limit | None:
    """The quota of a client; None if it has none."""
    for entity, of_user, of_client_id in _levels(user, client_id):
        values = quotas.get(entity)
        if values is not None and key in values:
            return Limit(values[key], of_user, of_client_id)
    return None


def _levels(user: str, client_id: str) -> Iterator[tuple[Entity, str, str]]:
    for of_user in (user, None):
        for of_client_id in (client_id, None):
            yield ((CLIENT_ID, of_client_id), (USER, of_user)), user, client_id
        yield ((USER, of_user),), user, ""
    for of_client_id in (client_id, None):
        yield ((CLIENT_ID, of_client_id),), "", client_id
