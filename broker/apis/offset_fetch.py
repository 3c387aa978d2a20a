"""OffsetFetch (9), versions 1-10: of one group, from version 8 of several.

Version 1: errors stand at the partitions. Versions 2-4: null topics mean all; an error code for the whole group.
Versions 5-6: the leader epoch (KIP-320). Version 7: `require_stable`: UNSTABLE_OFFSET_COMMIT while a transaction that
commits the offset is open (KIP-447). Version 8: several groups, each with an error code (KIP-709).
Version 9: member id and epoch (KIP-848), for the newer group protocol, which is not served.
Version 10: topics by id; an unknown one is UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.net.order import GROUPS, METADATA, OFFSETS
from barnabas.broker.registry import Context, api
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse


@api(OffsetFetchRequest, OffsetFetchResponse, uses=METADATA | GROUPS | OFFSETS)
def handle(
    context: Context, request: OffsetFetchRequest, groups: Groups
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    if groups.elsewhere is not None:
        return groups.elsewhere.fetch(request, context.version)
    return groups.coordinator.fetch_offsets(request, context.version)
