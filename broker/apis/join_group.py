"""JoinGroup (11), versions 0-9: enter a group's next generation; answered when it begins."""

from __future__ import annotations

from barnabas.broker.groups import Groups, Reply
from barnabas.broker.later import Later
from barnabas.broker.order import GROUPS, MEMBERS
from barnabas.broker.registry import Context, api
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse


@api(JoinGroupRequest, JoinGroupResponse, uses=GROUPS, changes=MEMBERS)
def handle(context: Context, request: JoinGroupRequest, groups: Groups) -> JoinGroupResponse | Later:
    reply: Reply[JoinGroupResponse] = Reply()
    groups.coordinator.join(
        request,
        version=context.version,
        client_id=context.client_id or "",
        client_host=f"/{context.connection.host}",
        reply=reply,
    )
    return reply.now_or_later()
