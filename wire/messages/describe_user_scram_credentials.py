"""DescribeUserScramCredentials (API key 50): list SCRAM credentials (KIP-554)."""

from barnabas.wire.types import Int8, Int16, Int32, Message, String, Struct, message, v


class UserName(Struct):
    name: String = ""


@message(key=50, versions=v[0], flexible=v[0:])
class DescribeUserScramCredentialsRequest(Message):
    users: list[UserName] | None = []


class CredentialInfo(Struct):
    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(Struct):
    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""
    credential_infos: list[CredentialInfo] = []


@message(key=50, versions=v[0], flexible=v[0:])
class DescribeUserScramCredentialsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    results: list[DescribeUserScramCredentialsResult] = []
