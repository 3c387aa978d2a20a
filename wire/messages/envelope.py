"""Envelope (API key 58): a broker hands a client's request on to the controller (KIP-590)."""

from barnabas.wire.types import Bytes, Int16, Message, message, v


@message(key=58, versions=v[0], flexible=v[0:])
class EnvelopeRequest(Message):
    request_data: Bytes = b""
    request_principal: Bytes | None = b""
    client_host_address: Bytes = b""


@message(key=58, versions=v[0], flexible=v[0:])
class EnvelopeResponse(Message):
    response_data: Bytes | None = None
    error_code: Int16 = 0
