"""OffsetFetch (9), versions 1-10: of one group, from version 8 of several."""

from __future__ import annotations

from barnabas.broker.groups import Groups
from barnabas.broker.order import GROUPS, METADATA, OFFSETS
from barnabas.broker.registry import Context, api
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse


@api(OffsetFetchRequest, OffsetFetchResponse, uses=METADATA | GROUPS | OFFSETS)
def handle(context: Context, request: OffsetFetchRequest, groups: Groups) -> OffsetFetchResponse:
    return groups.coordinator.fetch_offsets(request, context.version)
