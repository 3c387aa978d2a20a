"""PushTelemetry (72), version 0: a client's metrics about itself (KIP-714).

A thread decompresses and parses it; `broker.metrics.telemetry` keeps the metrics. Version 0: all fields.
"""

from __future__ import annotations

from functools import partial

import trio

from barnabas.broker.metrics.telemetry import ClientTelemetry, parse
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.workers import Workers
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


@api(PushTelemetryRequest, PushTelemetryResponse, uses=METADATA)
async def handle(
    context: Context, request: PushTelemetryRequest, telemetry: ClientTelemetry, workers: Workers
) -> PushTelemetryResponse:
    if not telemetry.is_on:
        return PushTelemetryResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    data = bytes(request.metrics)
    try:
        instance = telemetry.may_push(
            request.client_instance_id,
            request.subscription_id,
            len(data),
            trio.current_time(),
            is_last=request.terminating,
        )
        call = context.paid(partial(parse, request.compression_type, data))
        instance.take(await workers.validate(context.client, call))
    except KafkaError as error:
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse()
