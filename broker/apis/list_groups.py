"""ListGroups (16), versions 0-5: filtered by state (KIP-518) and type (KIP-848)."""

from __future__ import annotations

from barnabas.broker.groups import Groups
from barnabas.broker.order import GROUPS, MEMBERS, OFFSETS
from barnabas.broker.registry import Context, api
from barnabas.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


@api(ListGroupsRequest, ListGroupsResponse, uses=GROUPS | MEMBERS | OFFSETS)
def handle(context: Context, request: ListGroupsRequest, groups: Groups) -> ListGroupsResponse:
    return groups.coordinator.list_groups(request)
