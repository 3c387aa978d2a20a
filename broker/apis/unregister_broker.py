"""UnregisterBroker (64), version 0: the one broker stays, and there is no other."""

from __future__ import annotations

from barnabas.broker.identity import Identity
from barnabas.broker.net.order import NOTHING
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import ALTER_CLUSTER
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


@api(UnregisterBrokerRequest, UnregisterBrokerResponse, uses=NOTHING)
def handle(context: Context, request: UnregisterBrokerRequest, identity: Identity) -> UnregisterBrokerResponse:
    if not context.may(ALTER_CLUSTER):
        return UnregisterBrokerResponse(error_code=ALTER_CLUSTER.refusal, error_message=None)
    if request.broker_id == identity.node_id:
        return UnregisterBrokerResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="The cluster's only broker stays registered.",
        )
    return UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
        error_message=f"Broker ID {request.broker_id} is not currently registered",
    )
