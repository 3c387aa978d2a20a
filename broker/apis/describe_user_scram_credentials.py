"""DescribeUserScramCredentials (50), version 0 (KIP-554): for which mechanisms users have credentials."""

from __future__ import annotations

from collections import Counter

from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.net.large import LargeResponse
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_CLUSTER
from barnabas.broker.workers import Yielder
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from barnabas.wire.scram import CODES


@api(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, uses=METADATA)
async def handle(
    context: Context, request: DescribeUserScramCredentialsRequest, metadata: MetadataImage
) -> LargeResponse:
    if not context.may(DESCRIBE_CLUSTER):
        refused = DescribeUserScramCredentialsResponse(error_code=DESCRIBE_CLUSTER.refusal, error_message=None)
        return LargeResponse(refused)
    known = metadata.credentials.of
    asked = Counter(user.name for user in request.users) if request.users else Counter(list(known))
    results, breathe = [], Yielder()
    for name, times in asked.items():
        await breathe()
        if times > 1:
            why = "Cannot describe SCRAM credentials for the same user twice in a single request"
            results.append(DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, why))
        elif (mechanisms := known.get(name)) is None:
            why = "Attempt to describe a user credential that does not exist"
            results.append(DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, why))
        else:
            infos = [CredentialInfo(CODES[mechanism], each.iterations) for mechanism, each in mechanisms.items()]
            results.append(DescribeUserScramCredentialsResult(name, ErrorCode.NONE, None, infos))
    return LargeResponse(DescribeUserScramCredentialsResponse(error_message=None, results=results))
