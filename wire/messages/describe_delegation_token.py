"""DescribeDelegationToken (API key 41): list delegation tokens."""

from typing import Annotated

from barnabas.wire.types import Bytes, Int16, Int32, Int64, Message, String, Struct, message, v


class DescribeDelegationTokenOwner(Struct):
    principal_type: String = ""
    principal_name: String = ""


@message(key=41, versions=v[1:3], flexible=v[2:])
class DescribeDelegationTokenRequest(Message):
    owners: list[DescribeDelegationTokenOwner] | None = []


class DescribedDelegationTokenRenewer(Struct):
    principal_type: String = ""
    principal_name: String = ""


class DescribedDelegationToken(Struct):
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: Annotated[String, v[3]] = ""
    token_requester_principal_name: Annotated[String, v[3]] = ""
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    renewers: list[DescribedDelegationTokenRenewer] = []


@message(key=41, versions=v[1:3], flexible=v[2:])
class DescribeDelegationTokenResponse(Message):
    error_code: Int16 = 0
    tokens: list[DescribedDelegationToken] = []
    throttle_time_ms: Int32 = 0
