"""DescribeAcls (29), versions 1-3: the ACLs that a filter finds (KIP-140).

Version 1: pattern types (KIP-290). Version 2: flexible. Version 3: the resource type user. Without an authorizer all
are refused alike.
"""

from __future__ import annotations

from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.net.large import LargeResponse
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.acls import check_question
from barnabas.broker.security.authorizer import NO_AUTHORIZER
from barnabas.broker.security.operations import DESCRIBE_CLUSTER
from barnabas.broker.workers import Yielder
from barnabas.wire.acls import AclFilter
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


@api(DescribeAclsRequest, DescribeAclsResponse, uses=METADATA)
async def handle(context: Context, request: DescribeAclsRequest, metadata: MetadataImage) -> LargeResponse:
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    try:
        context.check(DESCRIBE_CLUSTER)
        if context.connection.authorizer is None:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        check_question(wanted)
    except KafkaError as error:
        return LargeResponse(DescribeAclsResponse(error_code=error.code, error_message=error.message))
    yielder = Yielder()
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for found in metadata.acls.matching(wanted):
        if found is not None:
            acl, _ = found
            key = acl.type, acl.name, acl.pattern
            if key not in resources:
                resources[key] = DescribeAclsResource(*key, acls=[])
            resources[key].acls.append(AclDescription(acl.principal, acl.host, acl.operation, acl.permission))
        await yielder()
    return LargeResponse(DescribeAclsResponse(error_message=None, resources=list(resources.values())))
