"""PushTelemetry (API key 72): client metrics for the broker (KIP-714)."""

from barnabas.wire.types import ZERO_UUID, Bool, Bytes, Int8, Int16, Int32, Message, Uuid, message, v


@message(key=72, versions=v[0], flexible=v[0:])
class PushTelemetryRequest(Message):
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    terminating: Bool = False
    compression_type: Int8 = 0
    metrics: Bytes = b""


@message(key=72, versions=v[0], flexible=v[0:])
class PushTelemetryResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
