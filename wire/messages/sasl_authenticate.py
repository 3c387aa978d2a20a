"""SaslAuthenticate (API key 36): exchange SASL messages."""

from typing import Annotated

from barnabas.wire.types import Bytes, Int16, Int64, Message, String, ignorable, message, v


@message(key=36, versions=v[0:2], flexible=v[2:])
class SaslAuthenticateRequest(Message):
    auth_bytes: Bytes = b""


@message(key=36, versions=v[0:2], flexible=v[2:])
class SaslAuthenticateResponse(Message):
    error_code: Int16 = 0
    error_message: String | None = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, v[1:], ignorable] = 0
