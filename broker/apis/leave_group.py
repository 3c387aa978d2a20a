"""LeaveGroup (13), versions 0-5: one member, from version 3 several."""

from __future__ import annotations

from barnabas.broker.groups import Groups
from barnabas.broker.order import GROUPS, MEMBERS
from barnabas.broker.registry import Context, api
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


@api(LeaveGroupRequest, LeaveGroupResponse, uses=GROUPS, changes=MEMBERS)
def handle(context: Context, request: LeaveGroupRequest, groups: Groups) -> LeaveGroupResponse:
    return groups.coordinator.leave(request, context.version)
