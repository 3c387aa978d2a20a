"""SaslAuthenticate (36), versions 0-2: the tokens of a login (KIP-152).

Version 0: all other fields. Version 1: the answer says how long the login lasts (KIP-368).
Version 2: only the encoding is new (flexible).
"""

from __future__ import annotations

from collections.abc import Awaitable

import trio

from barnabas.broker.clock import Clock
from barnabas.broker.net.order import EVERYTHING
from barnabas.broker.registry import Context, api
from barnabas.broker.security.authentication import Authentication
from barnabas.broker.security.sasl import AuthenticationFailed, Login, NotYet, State
from barnabas.broker.settings.config import BrokerConfig
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


@api(SaslAuthenticateRequest, SaslAuthenticateResponse, uses=EVERYTHING, changes=EVERYTHING)
def handle(
    context: Context,
    request: SaslAuthenticateRequest,
    authentication: Authentication,
    config: BrokerConfig,
    clock: Clock,
) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
    login = context.connection.login
    if login is None or login.state is not State.EXCHANGE:
        return SaslAuthenticateResponse(
            ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
        )
    try:
        return _step(context, login, request.auth_bytes, authentication, clock)
    except NotYet as later:
        return _again(context, login, request.auth_bytes, authentication, clock, config, later)
    except AuthenticationFailed as failure:
        return _refused(context, login, failure, authentication, config)


def _step(
    context: Context, login: Login, data: bytes, authentication: Authentication, clock: Clock
) -> SaslAuthenticateResponse:
    is_new = login.is_new
    answer = login.step(data, trio.current_time(), clock.wall_ms())
    if answer.is_known:
        context.connection.known_as(login.principal)
        authentication.accepted(context, login, is_new=is_new)
    return SaslAuthenticateResponse(auth_bytes=answer.data, session_lifetime_ms=answer.lifetime_ms)


async def _again(
    context: Context,
    login: Login,
    data: bytes,
    authentication: Authentication,
    clock: Clock,
    config: BrokerConfig,
    later: NotYet,
) -> SaslAuthenticateResponse:
    """Wait until the token can be judged, and judge it once more."""
    await later.happens.wait()
    try:
        return _step(context, login, data, authentication, clock)
    except NotYet:
        login.fail()
        failure = AuthenticationFailed("Authentication failed: the keys could not be read")
    except AuthenticationFailed as error:
        failure = error
    return await _refused(context, login, failure, authentication, config)


async def _refused(
    context: Context, login: Login, failure: AuthenticationFailed, authentication: Authentication, config: BrokerConfig
) -> SaslAuthenticateResponse:
    """Delay the answer, so that guessing takes long. It is the connection's last one."""
    authentication.refused(context, login.mechanism, str(failure), failure.who)
    await trio.sleep(config["connection.failed.authentication.delay.ms"] / 1000)
    context.connection.end()
    return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, str(failure))
