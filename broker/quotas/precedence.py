"""Which of the quotas that are set is a client's, and with whom the client shares it.

The most special one counts, for each key by itself. From the first to the last:

    user and client id; user and any client id; user;
    any user and client id; any user and any client id; any user;
    client id; any client id

A quota for any user is one for each user, and a quota for any client id is one for each id. A quota that names no
client id is for all ids of a user together, and one that names no user is for all users of a client id together.

Source: KIP-55, and Apache Kafka's documentation of quotas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from barnabas.broker.settings.quotas import CLIENT_ID, USER, Entity


class Limit(NamedTuple):
    """A quota's value, and of which user and client id together it is: an empty one stands for all."""

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
