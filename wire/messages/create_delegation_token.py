"""CreateDelegationToken (API key 38): create a delegation token (KIP-48)."""

from typing import Annotated

from barnabas.wire.types import Bytes, Int16, Int32, Int64, Message, String, Struct, message, v


class CreatableRenewers(Struct):
    principal_type: String = ""
    principal_name: String = ""


@message(key=38, versions=v[1:3], flexible=v[2:])
class CreateDelegationTokenRequest(Message):
    owner_principal_type: Annotated[String | None, v[3]] = ""
    owner_principal_name: Annotated[String | None, v[3]] = ""
    renewers: list[CreatableRenewers] = []
    max_lifetime_ms: Int64 = 0


@message(key=38, versions=v[1:3], flexible=v[2:])
class CreateDelegationTokenResponse(Message):
    error_code: Int16 = 0
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: Annotated[String, v[3]] = ""
    token_requester_principal_name: Annotated[String, v[3]] = ""
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0
