"""BrokerRegistration (62), versions 0-4: a node announces itself and its addresses (KIP-631). Only nodes send it.

Version 0: the listeners and the rack, which is all that is used here. Version 1: migration from ZooKeeper. Version 2:
folders. Version 3: the epoch before. Version 4: features that begin with level 0.
"""

from __future__ import annotations

from barnabas.broker.between.membership import check_node
from barnabas.broker.between.registration import Registration
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


@api(BrokerRegistrationRequest, BrokerRegistrationResponse, uses=METADATA, changes=METADATA, for_nodes=True)
async def handle(
    context: Context, request: BrokerRegistrationRequest, registration: Registration
) -> BrokerRegistrationResponse:
    check_node(context)
    try:
        addresses = {each.name: (each.host, each.port) for each in request.listeners}
        await registration.register(request.broker_id, addresses, request.rack)
    except KafkaError as error:
        return BrokerRegistrationResponse(error_code=error.code)
    return BrokerRegistrationResponse(error_code=ErrorCode.NONE, broker_epoch=0)
