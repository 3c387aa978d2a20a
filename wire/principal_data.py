"""A client's principal as one broker tells it to another (KIP-590): `DefaultPrincipalData`, behind its version."""

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
    """As it stands in an Envelope."""
    return _VERSION.to_bytes(2, "big") + message_codec(PrincipalData, _VERSION).build(principal)


def decode_principal(data: bytes | memoryview) -> PrincipalData:
    """Raises ProtocolError for what is none."""
    if int.from_bytes(data[:2], "big") != _VERSION or len(data) < 2:
        raise ProtocolError("a principal of an unknown version")
    found, _ = message_codec(PrincipalData, _VERSION).decode(data, 2)
    return found
