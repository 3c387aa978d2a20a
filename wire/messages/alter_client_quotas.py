"""AlterClientQuotas (API key 49): change client quotas (KIP-546)."""

from barnabas.wire.types import Bool, Float64, Int16, Int32, Message, String, Struct, message, v


class EntityData(Struct):
    entity_type: String = ""
    entity_name: String | None = ""


class OpData(Struct):
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class EntryData(Struct):
    entity: list[EntityData] = []
    ops: list[OpData] = []


@message(key=49, versions=v[0:1], flexible=v[1:])
class AlterClientQuotasRequest(Message):
    entries: list[EntryData] = []
    validate_only: Bool = False


class EntryDataResponse(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""
    entity: list[EntityData] = []


@message(key=49, versions=v[0:1], flexible=v[1:])
class AlterClientQuotasResponse(Message):
    throttle_time_ms: Int32 = 0
    entries: list[EntryDataResponse] = []
