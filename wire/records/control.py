"""Values of control records."""

from typing import Annotated

from barnabas.wire.types import ZERO_UUID, Int16, Int32, Int64, Message, String, Struct, UInt16, Uuid, message, v


@message(versions=v[0])
class EndTxnMarker(Message):
    coordinator_epoch: Int32 = 0


@message(versions=v[0], flexible=v[0:])
class SnapshotHeaderRecord(Message):
    version: Int16 = 0
    last_contained_log_timestamp: Int64 = 0


@message(versions=v[0], flexible=v[0:])
class SnapshotFooterRecord(Message):
    version: Int16 = 0


class Voter(Struct):
    voter_id: Int32 = 0
    voter_directory_id: Annotated[Uuid, v[1]] = ZERO_UUID


@message(versions=v[0:1], flexible=v[0:])
class LeaderChangeMessage(Message):
    version: Int16 = 0
    leader_id: Int32 = 0
    voters: list[Voter] = []
    granting_voters: list[Voter] = []


class VoterEndpoint(Struct):
    name: String = ""
    host: String = ""
    port: UInt16 = 0


class KRaftVersionFeature(Struct):
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class KRaftVoter(Struct):
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    endpoints: list[VoterEndpoint] = []
    k_raft_version_feature: KRaftVersionFeature = KRaftVersionFeature()


@message(versions=v[0], flexible=v[0:])
class VotersRecord(Message):
    version: Int16 = 0
    voters: list[KRaftVoter] = []
