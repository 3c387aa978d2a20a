"""ApiVersions (API key 18): the APIs, versions and features that this broker has (KIP-35, KIP-511, KIP-584)."""

from typing import Annotated

from barnabas.wire.types import Bool, Int16, Int32, Int64, Message, String, Struct, Tag, ignorable, message, v


@message(key=18, versions=v[0:4], flexible=v[3:])
class ApiVersionsRequest(Message):
    client_software_name: Annotated[String, v[3:], ignorable] = ""
    client_software_version: Annotated[String, v[3:], ignorable] = ""


class ApiVersion(Struct):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Struct):
    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Struct):
    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


@message(key=18, versions=v[0:4], flexible=v[3:])
class ApiVersionsResponse(Message):
    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Annotated[Int32, v[1:], ignorable] = 0
    supported_features: Annotated[list[SupportedFeatureKey], v[3:], Tag(0), ignorable] = []
    finalized_features_epoch: Annotated[Int64, v[3:], Tag(1), ignorable] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], v[3:], Tag(2), ignorable] = []
    zk_migration_ready: Annotated[Bool, v[3:], Tag(3), ignorable] = False
