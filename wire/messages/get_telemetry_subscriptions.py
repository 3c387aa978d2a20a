"""GetTelemetrySubscriptions (API key 71): which client metrics the broker wants (KIP-714)."""

from barnabas.wire.types import ZERO_UUID, Bool, Int8, Int16, Int32, Message, String, Uuid, message, v


@message(key=71, versions=v[0], flexible=v[0:])
class GetTelemetrySubscriptionsRequest(Message):
    client_instance_id: Uuid = ZERO_UUID


@message(key=71, versions=v[0], flexible=v[0:])
class GetTelemetrySubscriptionsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: list[Int8] = []
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Bool = False
    requested_metrics: list[String] = []
