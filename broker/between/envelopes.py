"""A client's request in an Envelope for another node, and the answer in the Envelope's response (KIP-590).

The other node checks the rights of the client, not those of the node that hands the request on.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.broker.registry import Api
from barnabas.wire.codegen import message_codec
from barnabas.wire.header import write_request_header
from barnabas.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.wire.principal_data import PrincipalData, encode_principal
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import Message


class Sender(NamedTuple):
    """The client that sent a request."""

    who: PrincipalData
    host: str
    client_id: str | None


def envelope_of(api: Api, version: int, request: Message, sender: Sender, correlation_id: int = 0) -> EnvelopeRequest:
    """An envelope with a request."""
    head = write_request_header(api.key, version, correlation_id, sender.client_id, version >= api.flexible_from)
    return EnvelopeRequest(
        request_data=head + message_codec(api.request, version).build(request),
        request_principal=encode_principal(sender.who),
        client_host_address=sender.host.encode(),
    )


def answer_in(told: EnvelopeResponse, api: Api, version: int) -> Message:
    """The answer in an envelope's response. Raises ProtocolError if there is none."""
    if told.error_code or told.response_data is None:
        raise ProtocolError(f"the node does not take the request: error {told.error_code}")
    answer: Message
    position = 5 if version >= api.flexible_from else 4
    answer, _ = message_codec(api.response, version).decode(told.response_data, position)
    return answer
