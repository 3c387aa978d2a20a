"""DeleteTopics (API key 20): delete topics by name or id."""

from typing import Annotated

from barnabas.wire.types import ZERO_UUID, Int16, Int32, Message, Nullable, String, Struct, Uuid, ignorable, message, v


class DeleteTopicState(Struct):
    name: String | None = None
    topic_id: Uuid = ZERO_UUID


@message(key=20, versions=v[1:6], flexible=v[4:])
class DeleteTopicsRequest(Message):
    topics: Annotated[list[DeleteTopicState], v[6]] = []
    topic_names: Annotated[list[String], v[:5], ignorable] = []
    timeout_ms: Int32 = 0


class DeletableTopicResult(Struct):
    name: Annotated[String | None, Nullable(v[6])] = ""
    topic_id: Annotated[Uuid, v[6], ignorable] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, v[5:], ignorable] = None


@message(key=20, versions=v[1:6], flexible=v[4:])
class DeleteTopicsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult] = []
