"""DescribeClientQuotas (API key 48): read client quotas (KIP-546)."""

from barnabas.wire.types import Bool, Float64, Int8, Int16, Int32, Message, String, Struct, message, v


class ComponentData(Struct):
    entity_type: String = ""
    match_type: Int8 = 0
    match: String | None = ""


@message(key=48, versions=v[0:1], flexible=v[1:])
class DescribeClientQuotasRequest(Message):
    components: list[ComponentData] = []
    strict: Bool = False


class EntityData(Struct):
    entity_type: String = ""
    entity_name: String | None = ""


class ValueData(Struct):
    key: String = ""
    value: Float64 = 0.0


class EntryData(Struct):
    entity: list[EntityData] = []
    values: list[ValueData] = []


@message(key=48, versions=v[0:1], flexible=v[1:])
class DescribeClientQuotasResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    entries: list[EntryData] | None = []
