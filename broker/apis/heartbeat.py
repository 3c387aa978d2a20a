"""Heartbeat (12), versions 0-4."""

from __future__ import annotations

from barnabas.broker.groups import Groups
from barnabas.broker.order import GROUPS
from barnabas.broker.registry import Context, api
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@api(HeartbeatRequest, HeartbeatResponse, uses=GROUPS)
def handle(context: Context, request: HeartbeatRequest, groups: Groups) -> HeartbeatResponse:
    return groups.coordinator.heartbeat(request)
