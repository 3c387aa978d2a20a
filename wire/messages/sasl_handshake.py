"""SaslHandshake (API key 17): choose a SASL mechanism."""

from barnabas.wire.types import Int16, Message, String, message, v


@message(key=17, versions=v[0:1])
class SaslHandshakeRequest(Message):
    mechanism: String = ""


@message(key=17, versions=v[0:1])
class SaslHandshakeResponse(Message):
    error_code: Int16 = 0
    mechanisms: list[String] = []
