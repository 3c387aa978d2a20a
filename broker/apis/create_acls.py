"""CreateAcls (30), versions 1-3: there is no authorizer, so there are no ACLs.

Version 1: pattern types (KIP-290). Version 2: flexible. Version 3: the resource type user. All are refused alike.
"""

from __future__ import annotations

from barnabas.broker.net.order import NOTHING
from barnabas.broker.registry import Context, api
from barnabas.broker.security.authorizer import NO_AUTHORIZER
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


@api(CreateAclsRequest, CreateAclsResponse, uses=NOTHING)
def handle(context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))
