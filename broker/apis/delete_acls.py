"""DeleteAcls (31), versions 1-3: removes all ACLs that match the filters, and lists them in the answer (KIP-140).

Answered when the change is durable and in force.

Version 1: pattern types (KIP-290). Version 2: flexible. Version 3: the resource type user. Without an authorizer all
are refused alike.
"""

from __future__ import annotations

import trio

from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.net.large import LargeResponse
from barnabas.broker.net.order import ACLS, METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.acls import MAX_AT_ONCE, Acls, check_filter
from barnabas.broker.security.authorizer import NO_AUTHORIZER
from barnabas.broker.security.operations import ALTER_CLUSTER
from barnabas.broker.workers import Yielder
from barnabas.wire.acls import Acl, AclFilter
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from barnabas.wire.records.cluster_metadata import RemoveAccessControlEntryRecord

#: The most filters of one request; each is compared with all ACLs.
MAX_FILTERS = 1000
Found = dict[Acl, bytes]


@api(DeleteAclsRequest, DeleteAclsResponse, uses=METADATA, changes=ACLS | METADATA)
async def handle(
    context: Context, request: DeleteAclsRequest, topics: TopicManager, metadata: MetadataImage
) -> LargeResponse:
    try:
        context.check(ALTER_CLUSTER)
        if context.connection.authorizer is None:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        if len(request.filters) > MAX_FILTERS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"A request has at most {MAX_FILTERS} filters.")
        with trio.CancelScope(shield=True):
            async with topics.changes:
                results: list[Found | KafkaError] = []
                gone: dict[bytes, None] = {}
                named = 0
                for each in request.filters:
                    found = await _find(metadata.acls, each)
                    results.append(found)
                    if not isinstance(found, KafkaError):
                        gone.update(dict.fromkeys(found.values()))
                        named += len(found)
                    if named > MAX_AT_ONCE:
                        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A request removes at most {MAX_AT_ONCE} ACLs.")
                if gone:
                    await topics.commit([RemoveAccessControlEntryRecord(id=acl_id) for acl_id in gone])
                    topics.log.info("acls.removed", acls=len(gone), by=context.principal, host=context.connection.host)
    except KafkaError as error:
        refused = DeleteAclsFilterResult(error.code, error.message)
        return LargeResponse(DeleteAclsResponse(filter_results=[refused] * len(request.filters)))
    return LargeResponse(DeleteAclsResponse(filter_results=[_shown(found) for found in results]))


async def _find(acls: Acls, asked: DeleteAclsFilter) -> Found | KafkaError:
    """The ACLs that a filter finds, or its error."""
    wanted = AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )
    try:
        check_filter(wanted)
    except KafkaError as error:
        return error
    yielder, matching = Yielder(), {}
    for found in acls.matching(wanted):
        if found is not None:
            acl, acl_id = found
            matching[acl] = acl_id
        await yielder()
    return matching


def _shown(found: Found | KafkaError) -> DeleteAclsFilterResult:
    if isinstance(found, KafkaError):
        return DeleteAclsFilterResult(found.code, found.message)
    return DeleteAclsFilterResult(
        error_message=None, matching_acls=[DeleteAclsMatchingAcl(0, None, *acl) for acl in found]
    )
