"""UnregisterBroker (API key 64): remove a broker's registration."""

from barnabas.wire.types import Int16, Int32, Message, String, message, v


@message(key=64, versions=v[0], flexible=v[0:])
class UnregisterBrokerRequest(Message):
    broker_id: Int32 = 0


@message(key=64, versions=v[0], flexible=v[0:])
class UnregisterBrokerResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
