"""ListGroups (16), versions 0-5: all groups, or those of some states and types.

Version 0: ids and protocol types. Versions 1-2: throttle time. Version 3: only the encoding is new (flexible).
Version 4: the state, in the answer and as a filter (KIP-518). Version 5: the group type, likewise (KIP-848).
"""

from __future__ import annotations

from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.net.order import GROUPS, MEMBERS, OFFSETS
from barnabas.broker.registry import Context, api
from barnabas.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


@api(ListGroupsRequest, ListGroupsResponse, uses=GROUPS | MEMBERS | OFFSETS)
def handle(context: Context, request: ListGroupsRequest, groups: Groups) -> ListGroupsResponse:
    return groups.coordinator.list_groups(request)
