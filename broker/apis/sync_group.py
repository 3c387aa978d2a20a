"""SyncGroup (14), versions 0-5: hand out and receive the assignment; answered when it is durable.

Version 0: all fields. Versions 1-2: throttle time. Version 3: the group.instance.id of static members (KIP-345).
Version 4: only the encoding is new (flexible). Version 5: protocol type and name must be there, and be the group's; the
answer has them too (KIP-559).
"""

from __future__ import annotations

from barnabas.broker.coordinators.groups import Groups, Reply
from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.order import GROUPS, MEMBERS
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import READ_GROUP
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


@api(SyncGroupRequest, SyncGroupResponse, uses=GROUPS, changes=MEMBERS)
def handle(context: Context, request: SyncGroupRequest, groups: Groups) -> SyncGroupResponse | DelayedResponse:
    if not context.may(READ_GROUP, request.group_id):
        return SyncGroupResponse(error_code=READ_GROUP.refusal)
    reply: Reply[SyncGroupResponse] = Reply()
    groups.coordinator.sync(request, version=context.version, reply=reply)
    return reply.now_or_later()
