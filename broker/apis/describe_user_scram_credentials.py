"""DescribeUserScramCredentials (50), version 0 (KIP-554): nobody has credentials, as SASL is not served."""

from __future__ import annotations

from collections import Counter

from barnabas.broker.net.order import NOTHING
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_CLUSTER
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@api(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, uses=NOTHING)
def handle(context: Context, request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    if not context.may(DESCRIBE_CLUSTER):
        return DescribeUserScramCredentialsResponse(error_code=DESCRIBE_CLUSTER.refusal, error_message=None)
    asked = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            DescribeUserScramCredentialsResult(
                name, ErrorCode.DUPLICATE_RESOURCE, "Cannot describe the credentials of a user twice in one request"
            )
            if times > 1
            else DescribeUserScramCredentialsResult(
                name, ErrorCode.RESOURCE_NOT_FOUND, "The user has no SCRAM credentials"
            )
            for name, times in asked.items()
        ],
    )
