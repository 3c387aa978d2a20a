"""UnregisterBroker (64), version 0: refused, because the nodes are those of the last start (`--processes`)."""

from __future__ import annotations

from barnabas.broker.net.order import NOTHING
from barnabas.broker.nodes import Nodes
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import ALTER_CLUSTER
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


@api(UnregisterBrokerRequest, UnregisterBrokerResponse, uses=NOTHING)
def handle(context: Context, request: UnregisterBrokerRequest, nodes: Nodes) -> UnregisterBrokerResponse:
    if not context.may(ALTER_CLUSTER):
        return UnregisterBrokerResponse(error_code=ALTER_CLUSTER.refusal, error_message=None)
    if nodes.has(request.broker_id):
        return UnregisterBrokerResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"Broker {request.broker_id} stays registered: the number of nodes changes only at a start, "
            "with --processes",
        )
    return UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
        error_message=f"Broker ID {request.broker_id} is not currently registered",
    )
