"""AlterUserScramCredentials (51), version 0 (KIP-554): refused, as credentials would protect nothing without SASL."""

from __future__ import annotations

from barnabas.broker.net.order import NOTHING
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import ALTER_CLUSTER
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

MECHANISMS = (1, 2)  # SCRAM-SHA-256 and -512


@api(AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, uses=NOTHING)
def handle(context: Context, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    refused: dict[str, AlterUserScramCredentialsResult] = {}
    if not context.may(ALTER_CLUSTER):
        names = dict.fromkeys([*(each.name for each in request.deletions), *(each.name for each in request.upsertions)])
        results = [AlterUserScramCredentialsResult(name, ALTER_CLUSTER.refusal, None) for name in names]
        return AlterUserScramCredentialsResponse(results=results)
    for gone in request.deletions:
        code, why = ErrorCode.RESOURCE_NOT_FOUND, "The user has no SCRAM credentials"
        if gone.mechanism not in MECHANISMS:
            code, why = ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
        _refuse(refused, gone.name, code, why)
    for wanted in request.upsertions:
        why = "SASL is not served, so credentials would not protect anything"
        _refuse(refused, wanted.name, ErrorCode.UNSUPPORTED_SASL_MECHANISM, why)
    return AlterUserScramCredentialsResponse(results=list(refused.values()))


def _refuse(refused: dict[str, AlterUserScramCredentialsResult], name: str, code: ErrorCode, why: str) -> None:
    if not name:
        code, why = ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    refused.setdefault(name, AlterUserScramCredentialsResult(name, code, why))
