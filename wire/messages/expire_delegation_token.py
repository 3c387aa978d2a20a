"""ExpireDelegationToken (API key 40): change the expiry of a delegation token."""

from barnabas.wire.types import Bytes, Int16, Int32, Int64, Message, message, v


@message(key=40, versions=v[1:2], flexible=v[2:])
class ExpireDelegationTokenRequest(Message):
    hmac: Bytes = b""
    expiry_time_period_ms: Int64 = 0


@message(key=40, versions=v[1:2], flexible=v[2:])
class ExpireDelegationTokenResponse(Message):
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
