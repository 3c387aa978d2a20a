"""UpdateFeatures (API key 57): change finalized features (KIP-584)."""

from typing import Annotated

from barnabas.wire.types import Bool, Int8, Int16, Int32, Message, String, Struct, ignorable, message, v


class FeatureUpdateKey(Struct):
    feature: String = ""
    max_version_level: Int16 = 0
    allow_downgrade: Annotated[Bool, v[0]] = False
    upgrade_type: Annotated[Int8, v[1:]] = 1


@message(key=57, versions=v[0:2], flexible=v[0:])
class UpdateFeaturesRequest(Message):
    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey] = []
    validate_only: Annotated[Bool, v[1:]] = False


class UpdatableFeatureResult(Struct):
    feature: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""


@message(key=57, versions=v[0:2], flexible=v[0:])
class UpdateFeaturesResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    results: Annotated[list[UpdatableFeatureResult], v[:1], ignorable] = []
