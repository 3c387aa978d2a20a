"""ElectLeaders (API key 43): elect leaders of partitions (KIP-183, KIP-460)."""

from typing import Annotated

from barnabas.wire.types import Int8, Int16, Int32, Message, String, Struct, message, v


class TopicPartitions(Struct):
    topic: String = ""
    partitions: list[Int32] = []


@message(key=43, versions=v[0:2], flexible=v[2:])
class ElectLeadersRequest(Message):
    election_type: Annotated[Int8, v[1:]] = 0
    topic_partitions: list[TopicPartitions] | None = []
    timeout_ms: Int32 = 60000


class PartitionResult(Struct):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class ReplicaElectionResult(Struct):
    topic: String = ""
    partition_result: list[PartitionResult] = []


@message(key=43, versions=v[0:2], flexible=v[2:])
class ElectLeadersResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, v[1:]] = 0
    replica_election_results: list[ReplicaElectionResult] = []
