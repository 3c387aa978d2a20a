"""A client's principal as brokers pass it to each other (KIP-590): `DefaultPrincipalData`, after its version."""

from __future__ import annotations

from barnabas.wire.codegen import message_codec
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import Bool, Message, String, message, v

_VERSION = 0


@message(key=0, versions=v[0], flexible=v[0:])
class PrincipalData(Message):
    type: String = ""
    name: String = ""
    token_authenticated: Bool = False


def encode_principal(principal: PrincipalData) -> bytes:
    """The principal in the form that an Envelope carries."""
    return _VERSION.to_bytes(2, "big") + message_codec(PrincipalData, _VERSION).build(principal)


def decode_principal(data: bytes | memoryview) -> PrincipalData:
    """The principal in an Envelope. Raises ProtocolError for invalid data."""
    if int.from_bytes(data[:2], "big") != _VERSION or len(data) < 2:
        raise ProtocolError("a principal of an unknown version")
    found, _ = message_codec(PrincipalData, _VERSION).decode(data, 2)
    return found
