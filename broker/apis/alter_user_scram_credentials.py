"""AlterUserScramCredentials (51), version 0 (KIP-554): users get credentials, or lose them, for SCRAM.

The client sends its salted password; the keys that a server keeps are made from that. A user's changes take effect
together: if one is wrong, none takes effect.
"""

from __future__ import annotations

import trio

from barnabas.broker.metadata.credentials import MAX_USERS, credential_record
from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import ALTER_CLUSTER
from barnabas.broker.workers import Yielder
from barnabas.wire import scram
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.wire.records.cluster_metadata import RemoveUserScramCredentialRecord
from barnabas.wire.types import Message

MAX_NAME, MAX_SALT = 1000, 1024


@api(AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, uses=METADATA, changes=METADATA)
async def handle(
    context: Context, request: AlterUserScramCredentialsRequest, topics: TopicManager, metadata: MetadataImage
) -> AlterUserScramCredentialsResponse:
    if not context.may(ALTER_CLUSTER):
        names = dict.fromkeys([*(each.name for each in request.deletions), *(each.name for each in request.upsertions)])
        results = [AlterUserScramCredentialsResult(name, ALTER_CLUSTER.refusal, None) for name in names]
        return AlterUserScramCredentialsResponse(results=results)
    with trio.CancelScope(shield=True):
        async with topics.changes:
            changes, failures = await _checked(request, metadata)
            if changes:
                try:
                    await topics.commit([record for records in changes.values() for record in records])
                except KafkaError as error:
                    failures.update(dict.fromkeys(changes, error))
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(name, failure.code, str(failure))
            if (failure := failures.get(name)) is not None
            else AlterUserScramCredentialsResult(name, ErrorCode.NONE, None)
            for name in dict.fromkeys(
                [*(each.name for each in request.deletions), *(each.name for each in request.upsertions)]
            )
        ]
    )


async def _checked(
    request: AlterUserScramCredentialsRequest, metadata: MetadataImage
) -> tuple[dict[str, list[Message]], dict[str, KafkaError]]:
    """The records of each user, and the errors of the others."""
    changes: dict[str, list[Message]] = {}
    failures: dict[str, KafkaError] = {}
    seen: set[tuple[str, int]] = set()
    known = metadata.credentials
    newcomers, breathe = 0, Yielder()
    wanted: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    for each in wanted:
        await breathe()
        try:
            if (each.name, each.mechanism) in seen:
                message = "A user credential cannot be altered twice in the same request"
                raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
            seen.add((each.name, each.mechanism))
            mechanism = _mechanism(each)
            if isinstance(each, ScramCredentialDeletion):
                if known.find(each.name, mechanism) is None:
                    message = "Attempt to delete a user credential that does not exist"
                    raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)
                record: Message = RemoveUserScramCredentialRecord(each.name, each.mechanism)
            else:
                record = _upsertion(each, mechanism)
                if each.name not in known.of and each.name not in changes:
                    newcomers += 1
                    if len(known.of) + newcomers > MAX_USERS:
                        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"At most {MAX_USERS} users have credentials.")
        except KafkaError as error:
            failures.setdefault(each.name, error)
        else:
            changes.setdefault(each.name, []).append(record)
    for name in failures:
        changes.pop(name, None)
    return changes, failures


def _mechanism(change: ScramCredentialDeletion | ScramCredentialUpsertion) -> str:
    """The mechanism's name. Raises KafkaError for an unknown mechanism, or an impossible user name."""
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(change.name) > MAX_NAME:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Username has more than {MAX_NAME} characters")
    name = scram.MECHANISMS.get(change.mechanism)
    if name is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return name


def _upsertion(change: ScramCredentialUpsertion, mechanism: str) -> Message:
    """The record of a credential. Raises KafkaError if Kafka would refuse it."""
    if change.iterations < scram.MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > scram.MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if len(change.salt) > MAX_SALT or len(change.salted_password) > MAX_SALT:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"The salt has more than {MAX_SALT} bytes")
    known = scram.credential(mechanism, change.salted_password, change.salt, change.iterations)
    return credential_record(change.name, mechanism, known)
