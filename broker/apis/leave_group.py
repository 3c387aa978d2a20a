"""LeaveGroup (13), versions 0-5: one member, from version 3 several.

Version 0: one member by its id. Versions 1-2: throttle time.
Version 3: several members, each by id or group.instance.id, with an error code each (KIP-345).
Version 4: only the encoding is new (flexible). Version 5: the reason to leave, which is logged (KIP-800).
"""

from __future__ import annotations

from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.net.order import GROUPS, MEMBERS
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import READ_GROUP
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


@api(LeaveGroupRequest, LeaveGroupResponse, uses=GROUPS, changes=MEMBERS)
def handle(context: Context, request: LeaveGroupRequest, groups: Groups) -> LeaveGroupResponse:
    if not context.may(READ_GROUP, request.group_id):
        return LeaveGroupResponse(error_code=READ_GROUP.refusal)
    return groups.coordinator.leave(request, context.version)
