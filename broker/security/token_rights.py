"""Which clients may ask for delegation tokens, see them and change them.

Source: KIP-48, KIP-373.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.metadata.tokens import DelegationTokens, Token
from barnabas.broker.security.operations import DESCRIBE_TOKEN, DESCRIBE_TOKENS
from barnabas.broker.security.principals import ANONYMOUS
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.listeners import Protocol
from barnabas.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.broker.registry import Context


def may_ask(context: Context) -> bool:
    """Whether a client may ask for a token: it must have logged in, and not by a token."""
    connection = context.connection
    login = connection.login
    if login is not None and login.by_token:
        return False
    return connection.protocol is not Protocol.PLAINTEXT and connection.principal != ANONYMOUS


def may_see(context: Context, token: Token) -> bool:
    """Whether a client may see a token: its owner, its requester, its renewers, and clients allowed by ACLs."""
    return (
        token.is_of(str(context.principal))
        or context.may(DESCRIBE_TOKEN, token.id, quiet=True)
        or context.may(DESCRIBE_TOKENS, token.owner, quiet=True)
    )


async def token_to_change(
    context: Context,
    tokens: DelegationTokens,
    given: bytes,
    config: BrokerConfig,
    now_ms: int,
    *,
    removes: bool = False,
) -> Token:
    """The token of an HMAC, if the client may renew or end it. Raises KafkaError.

    An expired token can only be removed (`removes`).
    """
    if not may_ask(context):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    secret = config["delegation.token.secret.key"]
    if secret is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    token = await tokens.with_hmac(given, secret)
    if token is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if not token.is_of(str(context.principal)):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    if token.is_expired(now_ms) and not removes:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return token
