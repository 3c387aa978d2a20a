"""SaslHandshake (17), versions 0-1: a client chooses the mechanism by which it logs in (KIP-43).

Version 0: the tokens that follow have no requests around them. Version 1: they come in SaslAuthenticate (KIP-152).
"""

from __future__ import annotations

import trio

from barnabas.broker.net.order import EVERYTHING
from barnabas.broker.registry import Context, api
from barnabas.broker.security.authentication import Authentication
from barnabas.wire.driver_login import MECHANISM
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@api(SaslHandshakeRequest, SaslHandshakeResponse, uses=EVERYTHING, changes=EVERYTHING)
def handle(context: Context, request: SaslHandshakeRequest, authentication: Authentication) -> SaslHandshakeResponse:
    connection = context.connection
    login = connection.login
    if login is None:
        if request.mechanism != MECHANISM:
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        login = connection.login = authentication.drivers_login()
    now = trio.current_time()
    if not login.may_begin(now):
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    if not login.begin(request.mechanism, now, raw=context.version == 0):
        authentication.refused(context, request.mechanism, "the mechanism is not served here", "")
        connection.end()
        return SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, login.served)
    return SaslHandshakeResponse(mechanisms=login.served)
