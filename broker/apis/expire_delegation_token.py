"""ExpireDelegationToken (40), versions 1-2 (KIP-48): sets when a token expires, or removes it at once.

A negative period removes it. Version 1: all fields. Version 2: only the encoding is new (flexible).
"""

from __future__ import annotations

import trio

from barnabas.broker.clock import Clock
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.token_rights import token_to_change
from barnabas.broker.settings.config import BrokerConfig
from barnabas.wire.errors import KafkaError
from barnabas.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from barnabas.wire.records.cluster_metadata import RemoveDelegationTokenRecord
from barnabas.wire.types import Message, replace


@api(ExpireDelegationTokenRequest, ExpireDelegationTokenResponse, uses=METADATA, changes=METADATA)
async def handle(
    context: Context, request: ExpireDelegationTokenRequest, topics: TopicManager, config: BrokerConfig, clock: Clock
) -> ExpireDelegationTokenResponse:
    period = request.expiry_time_period_ms
    try:
        with trio.CancelScope(shield=True):
            async with topics.changes:
                now = clock.wall_ms()
                token = await token_to_change(
                    context, topics.metadata.tokens, request.hmac, config, now, removes=period < 0
                )
                expires = now if period < 0 else min(token.max_ms, now + period)
                change: Message = RemoveDelegationTokenRecord(token.id)
                if period >= 0:
                    change = replace(token.record(), expiration_timestamp=expires)
                await topics.commit([change])
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error.code, -1)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires)
