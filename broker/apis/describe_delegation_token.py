"""DescribeDelegationToken (41), versions 1-3 (KIP-48): the tokens that a client may see, with their HMACs.

Version 1: all fields. Version 2: only the encoding is new (flexible). Version 3: who asked for a token (KIP-373).
"""

from __future__ import annotations

from barnabas.broker.clock import Clock
from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.metadata.tokens import Token, token_hmac
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.principals import parse_principal
from barnabas.broker.security.token_rights import may_ask, may_see
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.workers import Yielder
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


@api(DescribeDelegationTokenRequest, DescribeDelegationTokenResponse, uses=METADATA)
async def handle(
    context: Context,
    request: DescribeDelegationTokenRequest,
    metadata: MetadataImage,
    config: BrokerConfig,
    clock: Clock,
) -> DescribeDelegationTokenResponse:
    if not may_ask(context):
        return DescribeDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    secret = config["delegation.token.secret.key"]
    if secret is None:
        return DescribeDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = {f"{each.principal_type}:{each.principal_name}" for each in request.owners}
    breathe, now, found = Yielder(), clock.wall_ms(), []
    for token in list(metadata.tokens.by_id.values()):
        await breathe()
        is_asked = owners is None or token.owner in owners or not owners.isdisjoint(token.renewers)
        if is_asked and not token.is_expired(now) and may_see(context, token):
            found.append(_described(token, secret, context.version))
    return DescribeDelegationTokenResponse(tokens=found)


def _described(token: Token, secret: str, version: int) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        *parse_principal(token.owner),
        *(parse_principal(token.requester) if version >= 3 else ("", "")),
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=token_hmac(token.id, secret),
        renewers=[DescribedDelegationTokenRenewer(*parse_principal(each)) for each in token.renewers],
    )
