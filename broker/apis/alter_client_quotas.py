"""AlterClientQuotas (49), versions 0-1 (KIP-546): quotas, in force when they are answered (`broker.quotas`).

Version 0: all fields. Version 1: only the encoding is new (flexible).
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import ALTER_CLUSTER_CONFIGS
from barnabas.broker.settings import quotas
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryDataResponse,
)
from barnabas.wire.types import Message

# There are four keys; a tool may also remove other keys that it knows.
MAX_OPS = 50


@api(AlterClientQuotasRequest, AlterClientQuotasResponse, uses=METADATA, changes=METADATA)
async def handle(
    context: Context, request: AlterClientQuotasRequest, topics: TopicManager, metadata: MetadataImage
) -> AlterClientQuotasResponse:
    refusal = context.refusal(ALTER_CLUSTER_CONFIGS)
    if refusal:
        return AlterClientQuotasResponse(
            entries=[EntryDataResponse(refusal, None, _entity(e)) for e in request.entries]
        )
    with trio.CancelScope(shield=True):
        async with topics.changes:
            failures, records = _checked(metadata.quotas, request)
            if records and not request.validate_only:
                try:
                    await topics.commit(records)
                except KafkaError as error:
                    failures = [failure or error for failure in failures]
    return AlterClientQuotasResponse(
        entries=[
            EntryDataResponse(
                failure.code if failure else ErrorCode.NONE, str(failure) if failure else None, _entity(e)
            )
            for e, failure in zip(request.entries, failures, strict=True)
        ]
    )


def _entity(entry: EntryData) -> list[EntityData]:
    """The entity of an entry for the answer: the client id before the user, as in Kafka."""
    return sorted(entry.entity, key=lambda each: each.entity_type)


def _checked(
    known_quotas: quotas.ClientQuotas, request: AlterClientQuotasRequest
) -> tuple[list[KafkaError | None], list[Message]]:
    """The error of each wrong entry, and the changes of the others."""
    failures: list[KafkaError | None] = []
    records: list[Message] = []
    known = set(known_quotas.of)
    seen: set[quotas.Entity] = set()
    for entry in request.entries:
        names = [(each.entity_type, each.entity_name) for each in entry.entity]
        try:
            quotas.check_entity(names)
            entity = quotas.entity_of(names)
            if entity in seen:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "An entity may appear only once in a request.")
            seen.add(entity)
            changes = _changes(names, entry, known_quotas.of.get(entity, {}))
            if any(not each.remove for each in entry.ops):
                known.add(entity)
                if len(known) > quotas.MAX_ENTITIES:
                    known.discard(entity)
                    raise KafkaError(ErrorCode.POLICY_VIOLATION, f"At most {quotas.MAX_ENTITIES} entities have quotas.")
        except KafkaError as error:
            failures.append(error)
        else:
            failures.append(None)
            records += changes
    return failures, records


def _changes(names: list[tuple[str, str | None]], entry: EntryData, current: Mapping[str, float]) -> list[Message]:
    """The records of an entry; a value that is already set makes none. Raises KafkaError."""
    if len(entry.ops) > MAX_OPS or len({each.key for each in entry.ops}) != len(entry.ops):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A quota may appear only once in an entry.")
    wanted = {each.key: None if each.remove else each.value for each in entry.ops}
    for key, value in wanted.items():
        if value is not None:
            quotas.check_value(names, key, value)
    return [quotas.record(names, key, value) for key, value in wanted.items() if current.get(key) != value]
