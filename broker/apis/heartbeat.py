"""Heartbeat (12), versions 0-4: a member is alive; it learns of a rebalance from the answer.

Version 0: all fields. Versions 1-2: throttle time. Version 3: the group.instance.id, by which a static member that was
replaced is fenced (KIP-345). Version 4: only the encoding is new (flexible).
"""

from __future__ import annotations

from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.net.order import GROUPS
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import READ_GROUP
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@api(HeartbeatRequest, HeartbeatResponse, uses=GROUPS)
def handle(context: Context, request: HeartbeatRequest, groups: Groups) -> HeartbeatResponse:
    if not context.may(READ_GROUP, request.group_id):
        return HeartbeatResponse(error_code=READ_GROUP.refusal)
    return groups.coordinator.heartbeat(request)
