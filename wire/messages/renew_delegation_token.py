"""RenewDelegationToken (API key 39): renew a delegation token."""

from barnabas.wire.types import Bytes, Int16, Int32, Int64, Message, message, v


@message(key=39, versions=v[1:2], flexible=v[2:])
class RenewDelegationTokenRequest(Message):
    hmac: Bytes = b""
    renew_period_ms: Int64 = 0


@message(key=39, versions=v[1:2], flexible=v[2:])
class RenewDelegationTokenResponse(Message):
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
