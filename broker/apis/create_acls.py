"""CreateAcls (30), versions 1-3: each one is added or refused independently (KIP-140).

An ACL that exists already is not an error. Answered when the change is durable and in force.

Version 1: pattern types (KIP-290). Version 2: flexible. Version 3: the resource type user. Without an authorizer all
are refused alike.
"""

from __future__ import annotations

import trio

from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.metadata.topic_manager import TopicManager, new_topic_id
from barnabas.broker.net.order import ACLS, METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.acls import MAX_ACLS, MAX_AT_ONCE, Acls, check_new, record_of
from barnabas.broker.security.authorizer import NO_AUTHORIZER
from barnabas.broker.security.operations import ALTER_CLUSTER
from barnabas.wire.acls import Acl
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse


@api(CreateAclsRequest, CreateAclsResponse, uses=METADATA, changes=ACLS | METADATA)
async def handle(
    context: Context, request: CreateAclsRequest, topics: TopicManager, metadata: MetadataImage
) -> CreateAclsResponse:
    asked = [_acl_of(creation) for creation in request.creations]
    try:
        context.check(ALTER_CLUSTER)
        if context.connection.authorizer is None:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        if len(asked) > MAX_AT_ONCE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"A request adds at most {MAX_AT_ONCE} ACLs.")
    except KafkaError as error:
        return _answer([error] * len(asked))
    with trio.CancelScope(shield=True):
        async with topics.changes:
            failures = _check(asked, metadata.acls)
            new = {
                acl: None
                for acl, failure in zip(asked, failures, strict=True)
                if failure is None and acl not in metadata.acls
            }
            if new:
                try:
                    await topics.commit([record_of(new_topic_id(), acl) for acl in new])
                except KafkaError as error:
                    failures = [failure or error for failure in failures]
                else:
                    topics.log.info("acls.added", acls=len(new), by=context.principal, host=context.connection.host)
    return _answer(failures)


def _acl_of(creation: AclCreation) -> Acl:
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _check(asked: list[Acl], known: Acls) -> list[KafkaError | None]:
    """The error of each ACL, if any."""
    failures: list[KafkaError | None] = []
    added: set[Acl] = set()
    for acl in asked:
        failure = None
        try:
            check_new(acl)
            if acl not in known and acl not in added:
                if len(known) + len(added) >= MAX_ACLS:
                    raise KafkaError(ErrorCode.POLICY_VIOLATION, f"There are at most {MAX_ACLS} ACLs.")
                added.add(acl)
        except KafkaError as error:
            failure = error
        failures.append(failure)
    return failures


def _answer(failures: list[KafkaError] | list[KafkaError | None]) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_message=None) if each is None else AclCreationResult(each.code, each.message)
            for each in failures
        ]
    )
