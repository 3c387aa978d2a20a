"""BrokerHeartbeat (API key 63): a broker tells the controller how far it has read the metadata log (KIP-631)."""

from typing import Annotated

from barnabas.wire.types import Bool, Int16, Int32, Int64, Message, Tag, Uuid, message, v


@message(key=63, versions=v[0:2], flexible=v[0:])
class BrokerHeartbeatRequest(Message):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64 = 0
    want_fence: Bool = False
    want_shut_down: Bool = False
    offline_log_dirs: Annotated[list[Uuid], v[1:], Tag(0)] = []
    cordoned_log_dirs: Annotated[list[Uuid] | None, v[2:], Tag(1)] = None


@message(key=63, versions=v[0:2], flexible=v[0:])
class BrokerHeartbeatResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: Bool = False
    is_fenced: Bool = True
    should_shut_down: Bool = False
