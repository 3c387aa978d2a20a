"""DescribeAcls (29), versions 1-3: there is no authorizer, so there are no ACLs.

Version 1: pattern types (KIP-290). Version 2: flexible. Version 3: the resource type user. All are refused alike.
"""

from __future__ import annotations

from barnabas.broker.net.order import NOTHING
from barnabas.broker.registry import Context, api
from barnabas.broker.security.authorizer import NO_AUTHORIZER
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


@api(DescribeAclsRequest, DescribeAclsResponse, uses=NOTHING)
def handle(context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
