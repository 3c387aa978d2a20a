"""RemoveRaftVoter (API key 81): remove a voter from the metadata quorum (KIP-853)."""

from barnabas.wire.types import ZERO_UUID, Int16, Int32, Message, String, Uuid, message, v


@message(key=81, versions=v[0], flexible=v[0:])
class RemoveRaftVoterRequest(Message):
    cluster_id: String | None = ""
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID


@message(key=81, versions=v[0], flexible=v[0:])
class RemoveRaftVoterResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
