"""JoinGroup (11), versions 0-9: enter a group's next generation; answered when it begins.

Version 0: one timeout for session and rebalance. Version 1: a rebalance timeout of its own (KIP-62).
Versions 2-3: throttle time. Version 4: a new member gets its id, and joins again with it (KIP-394).
Version 5: the group.instance.id of static members (KIP-345). Version 6: only the encoding is new (flexible).
Version 7: the answer has the protocol type (KIP-559). Version 8: the reason to join, which is logged (KIP-800).
Version 9: a static leader that comes back can be told to skip the assignment (KIP-814).
"""

from __future__ import annotations

from barnabas.broker.coordinators.groups import Groups, Reply
from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.order import GROUPS, MEMBERS
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import READ_GROUP
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.streams.keys import is_stream


@api(JoinGroupRequest, JoinGroupResponse, uses=GROUPS, changes=MEMBERS)
def handle(context: Context, request: JoinGroupRequest, groups: Groups) -> JoinGroupResponse | DelayedResponse:
    if is_stream(request.group_id):
        return JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not context.may(READ_GROUP, request.group_id):
        return JoinGroupResponse(error_code=READ_GROUP.refusal)
    reply: Reply[JoinGroupResponse] = Reply()
    groups.coordinator.join(
        request,
        version=context.version,
        client_id=context.client_id or "",
        client_host=f"/{context.connection.host}",
        reply=reply,
    )
    return reply.now_or_later()
