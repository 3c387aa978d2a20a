"""Envelope (58), version 0: a request that another node forwards for its client (KIP-590). Only nodes send it."""

from __future__ import annotations

from barnabas.broker.between.desk import Desk
from barnabas.broker.between.membership import check_node
from barnabas.broker.net.order import NOTHING
from barnabas.broker.registry import Context, api
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.wire.principal_data import decode_principal
from barnabas.wire.schema import ProtocolError


@api(EnvelopeRequest, EnvelopeResponse, uses=NOTHING, for_nodes=True)
async def handle(context: Context, request: EnvelopeRequest, desk: Desk) -> EnvelopeResponse:
    check_node(context)
    try:
        who = decode_principal(request.request_principal or b"")
        host = str(request.client_host_address, "utf-8")
        return EnvelopeResponse(await desk.carry_out(bytes(request.request_data), who, host))
    except (ProtocolError, UnicodeDecodeError):
        return EnvelopeResponse(None, ErrorCode.INVALID_REQUEST)
