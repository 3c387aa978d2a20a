"""CreateDelegationToken (38), versions 1-3 (KIP-48): a client that has logged in gets a token, which it can pass on.

Version 1: all fields. Version 2: only the encoding is new (flexible). Version 3: for another owner (KIP-373).
"""

from __future__ import annotations

import secrets

import trio

from barnabas.broker.clock import Clock
from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.metadata.tokens import MAX_RENEWERS, MAX_TOKENS, Token, token_hmac
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import CREATE_TOKENS
from barnabas.broker.security.principals import Principal
from barnabas.broker.security.token_rights import may_ask
from barnabas.broker.settings.config import BrokerConfig
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

_MAX_NAME = 1000


@api(CreateDelegationTokenRequest, CreateDelegationTokenResponse, uses=METADATA, changes=METADATA)
async def handle(
    context: Context,
    request: CreateDelegationTokenRequest,
    topics: TopicManager,
    metadata: MetadataImage,
    config: BrokerConfig,
    clock: Clock,
) -> CreateDelegationTokenResponse:
    owner = context.principal
    requester = context.principal if context.version >= 3 else ("", "")
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    try:
        token = _token(context, request, owner, config, clock.wall_ms())
        with trio.CancelScope(shield=True):
            async with topics.changes:
                if len(metadata.tokens.by_id) >= MAX_TOKENS:
                    raise KafkaError(ErrorCode.POLICY_VIOLATION, f"At most {MAX_TOKENS} delegation tokens are kept.")
                await topics.commit([token.record()])
    except KafkaError as error:
        return CreateDelegationTokenResponse(
            error.code, *owner, *requester, issue_timestamp_ms=-1, expiry_timestamp_ms=-1, max_timestamp_ms=-1
        )
    return CreateDelegationTokenResponse(
        ErrorCode.NONE,
        *owner,
        *requester,
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.id,
        hmac=token_hmac(token.id, config["delegation.token.secret.key"]),
    )


def _token(
    context: Context, request: CreateDelegationTokenRequest, owner: Principal, config: BrokerConfig, now_ms: int
) -> Token:
    """A new token as requested. Raises KafkaError."""
    if not may_ask(context):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if owner != context.principal:
        context.check(CREATE_TOKENS, str(owner))
    if config["delegation.token.secret.key"] is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    renewers = [f"{each.principal_type}:{each.principal_name}" for each in request.renewers]
    kinds = {owner.type, *(each.principal_type for each in request.renewers)}
    names = [owner.name, *(each.principal_name for each in request.renewers)]
    if kinds != {"User"} or len(renewers) > MAX_RENEWERS or not all(0 < len(name) <= _MAX_NAME for name in names):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    lifetime = config["delegation.token.max.lifetime.ms"]
    if request.max_lifetime_ms > 0:
        lifetime = min(lifetime, request.max_lifetime_ms)
    expires = now_ms + min(lifetime, config["delegation.token.expiry.time.ms"])
    return Token(
        *(secrets.token_urlsafe(16), str(owner), str(context.principal), renewers),
        *(now_ms, now_ms + lifetime, expires),
    )
