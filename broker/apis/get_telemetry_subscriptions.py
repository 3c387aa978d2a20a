"""GetTelemetrySubscriptions (71), version 0: which of its metrics a client is to push, and how often (KIP-714).

It is advertised only with the HTTP listener, where the metrics can be read. Version 0: all fields.
"""

from __future__ import annotations

import trio

from barnabas.broker.metrics.telemetry import COMPRESSION, MOST_BYTES, ClientTelemetry
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


@api(GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse, uses=METADATA)
def handle(
    context: Context, request: GetTelemetrySubscriptionsRequest, telemetry: ClientTelemetry
) -> GetTelemetrySubscriptionsResponse:
    if not telemetry.is_on:
        return GetTelemetrySubscriptionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    connection = context.connection
    name, version = connection.software
    client = {
        "client_id": context.client_id or "",
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": connection.host,
        "client_source_port": str(connection.port),
    }
    try:
        instance_id, wanted = telemetry.asked(request.client_instance_id, context.client, client, trio.current_time())
    except KafkaError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=wanted.id,
        accepted_compression_types=list(COMPRESSION),
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=MOST_BYTES,
        requested_metrics=list(wanted.metrics),
    )
