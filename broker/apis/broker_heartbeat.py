"""BrokerHeartbeat (63), versions 0-2: a node reports up to which offset it has cleaned up after removed topics.

The other fields of Kafka's brokers (KIP-631) are not needed here: a node's lock shows whether it lives.

Version 0: the offset. Version 1: folders that are offline. Version 2: folders that take no new partitions.
"""

from __future__ import annotations

from barnabas.broker.between.followers import Followers
from barnabas.broker.between.membership import check_node
from barnabas.broker.net.order import NOTHING
from barnabas.broker.registry import Context, api
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


@api(BrokerHeartbeatRequest, BrokerHeartbeatResponse, uses=NOTHING, for_nodes=True)
def handle(context: Context, request: BrokerHeartbeatRequest, followers: Followers) -> BrokerHeartbeatResponse:
    check_node(context)
    followers.cleaned(request.broker_id, request.current_metadata_offset)
    return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)
