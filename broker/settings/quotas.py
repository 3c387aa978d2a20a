"""Client quotas (KIP-13, KIP-546): the quotas of each entity. `broker.quotas` enforces them.

An entity is a user, a client id, both, or an address; the name None means all without a quota of their own.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.records.cluster_metadata import ClientQuotaRecord, QuotaEntity

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = 0, 1, 2
LONG, DOUBLE, INT = 2**63, math.inf, 2**31
PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
REQUESTS, MUTATIONS = "request_percentage", "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"
#: The keys of each kind of entity, and the upper bound of their values. Only a double may have a fraction.
OF_CLIENTS = {PRODUCER: LONG, CONSUMER: LONG, REQUESTS: DOUBLE, MUTATIONS: DOUBLE}
OF_ADDRESSES: dict[str, float] = {CONNECTIONS: INT}
#: The most entities kept, as clients can make up any number of names.
MAX_ENTITIES = 10_000
MAX_NAME = 1000

Entity = tuple[tuple[str, str | None], ...]


class Component(NamedTuple):
    """A part of a filter: entities with a name of this type, which `match` restricts."""

    type: str
    how: int
    match: str | None


class ClientQuotas:
    """All quotas of the cluster, as the metadata log has them."""

    def __init__(self) -> None:
        self.of: dict[Entity, dict[str, float]] = {}
        #: A number that changes when quotas do.
        self.version = 0
        self._of_clients = self._of_addresses = 0
        #: Whether there is any quota of users or client ids, and of addresses.
        self.limits_clients = self.limits_addresses = False

    def apply(self, record: ClientQuotaRecord) -> None:
        """Change the image by one record."""
        entity = entity_of((each.entity_type, each.entity_name) for each in record.entity)
        values = self.of.setdefault(entity, {})
        before = len(values)
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if record.key in OF_CLIENTS:
            self._of_clients += len(values) - before
        else:
            self._of_addresses += len(values) - before
        self.limits_clients, self.limits_addresses = self._of_clients > 0, self._of_addresses > 0
        self.version += 1
        if not values:
            del self.of[entity]

    def records(self) -> Iterator[ClientQuotaRecord]:
        """The records of all quotas."""
        for entity, values in self.of.items():
            for key, value in values.items():
                yield record(list(entity), key, value)

    def matching(
        self, components: list[Component], strict: bool
    ) -> Iterator[tuple[Entity, Mapping[str, float]] | None]:
        """The entities that a filter finds; None for each other one, so that callers can count steps."""
        for entity, values in list(self.of.items()):
            names = dict(entity)
            found = all(c.type in names and _matches(c, names[c.type]) for c in components)
            yield (entity, values) if found and not (strict and len(names) > len(components)) else None


def entity_of(names: Iterable[tuple[str, str | None]]) -> Entity:
    """An entity with its names in a fixed order."""
    return tuple(sorted(names))


def _matches(component: Component, name: str | None) -> bool:
    if component.how == EXACT:
        return name == component.match
    return component.how == ANY or name is None


def check_filter(components: list[Component]) -> None:
    """Raises KafkaError for an invalid filter."""
    types = [component.type for component in components]
    for component in components:
        if not component.type:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if component.type not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {component.type}")
        if types.count(component.type) > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Entity type {component.type} stands twice in the filter.")
        if component.how not in (EXACT, DEFAULT, ANY):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.how}")
        if (component.match is None) == (component.how == EXACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A name is allowed only with an exact match.")
    _check_combination(types)


def check_entity(names: list[tuple[str, str | None]]) -> None:
    """Raises KafkaError for an entity that cannot have quotas."""
    if not names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    types = [kind for kind, _ in names]
    for kind, name in names:
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if types.count(kind) > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"An entity can have only one {kind}")
        if name == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
        if name is not None and len(name) > MAX_NAME:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The name of a {kind} has at most {MAX_NAME} characters")
        if kind == IP and name is not None:
            _check_address(name)
    _check_combination(types)


def _check_combination(types: list[str]) -> None:
    if IP in types and len(types) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "An address cannot be combined with a user or a client id.")


def _check_address(name: str) -> None:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is not a valid IP address.") from None


def check_value(names: list[tuple[str, str | None]], key: str, value: float) -> None:
    """Raises KafkaError for a key or a value that this entity cannot have."""
    limit = (OF_ADDRESSES if names[0][0] == IP else OF_CLIENTS).get(key)
    if limit is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
    if not math.isfinite(value) or value <= 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    if value >= limit:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Proposed value for {key} is too large.")
    if limit != DOUBLE and not value.is_integer():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} cannot be a fractional value.")


def record(names: list[tuple[str, str | None]], key: str, value: float | None) -> ClientQuotaRecord:
    """The record that changes one quota; None removes it."""
    entity = [QuotaEntity(*each) for each in names]
    return ClientQuotaRecord(entity, key, 0.0 if value is None else value, value is None)
