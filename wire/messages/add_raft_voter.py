"""AddRaftVoter (API key 80): add a voter to the metadata quorum (KIP-853)."""

from typing import Annotated

from barnabas.wire.types import ZERO_UUID, Bool, Int16, Int32, Message, String, Struct, UInt16, Uuid, message, v


class Listener(Struct):
    name: String = ""
    host: String = ""
    port: UInt16 = 0


@message(key=80, versions=v[0:1], flexible=v[0:])
class AddRaftVoterRequest(Message):
    cluster_id: String | None = ""
    timeout_ms: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    listeners: list[Listener] = []
    ack_when_committed: Annotated[Bool, v[1]] = True


@message(key=80, versions=v[0:1], flexible=v[0:])
class AddRaftVoterResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
