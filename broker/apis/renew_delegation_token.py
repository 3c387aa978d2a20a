"""RenewDelegationToken (39), versions 1-2 (KIP-48): extends a token's validity, up to its maximum lifetime.

Version 1: all fields. Version 2: only the encoding is new (flexible).
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
from barnabas.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from barnabas.wire.types import replace


@api(RenewDelegationTokenRequest, RenewDelegationTokenResponse, uses=METADATA, changes=METADATA)
async def handle(
    context: Context, request: RenewDelegationTokenRequest, topics: TopicManager, config: BrokerConfig, clock: Clock
) -> RenewDelegationTokenResponse:
    try:
        with trio.CancelScope(shield=True):
            async with topics.changes:
                now = clock.wall_ms()
                token = await token_to_change(context, topics.metadata.tokens, request.hmac, config, now)
                period = config["delegation.token.expiry.time.ms"]
                if request.renew_period_ms > 0:
                    period = min(period, request.renew_period_ms)
                expires = min(token.max_ms, now + period)
                await topics.commit([replace(token.record(), expiration_timestamp=expires)])
    except KafkaError as error:
        return RenewDelegationTokenResponse(error.code, -1)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires)
