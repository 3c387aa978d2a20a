"""DeleteAcls (31), versions 1-3: there is no authorizer, so there are no ACLs."""

from __future__ import annotations

from broker.operations import NO_AUTHORIZER
from broker.order import NOTHING
from broker.registry import Context, api
from wire.errors import ErrorCode
from wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


@api(DeleteAclsRequest, DeleteAclsResponse, uses=NOTHING)
def handle(context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
