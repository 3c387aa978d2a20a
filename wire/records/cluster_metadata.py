"""Records of `__cluster_metadata`, the log of topics, partitions and configuration (KIP-631)."""

from typing import Annotated

from barnabas.wire.types import (
    ZERO_UUID,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Tag,
    UInt16,
    Uuid,
    message,
    v,
)


class BrokerEndpoint(Struct):
    name: String = ""
    host: String = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class BrokerFeature(Struct):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@message(key=0, versions=v[0:3], flexible=v[0:])
class RegisterBrokerRecord(Message):
    broker_id: Int32 = 0
    is_migrating_zk_broker: Annotated[Bool, v[2:]] = False
    incarnation_id: Uuid = ZERO_UUID
    broker_epoch: Int64 = 0
    end_points: list[BrokerEndpoint] = []
    features: list[BrokerFeature] = []
    rack: String | None = ""
    fenced: Bool = True
    in_controlled_shutdown: Annotated[Bool, v[1:]] = False
    log_dirs: Annotated[list[Uuid], v[3:], Tag(0)] = []


@message(key=1, versions=v[0], flexible=v[0:])
class UnregisterBrokerRecord(Message):
    broker_id: Int32 = 0
    broker_epoch: Int64 = 0


@message(key=12, versions=v[0], flexible=v[0:])
class FeatureLevelRecord(Message):
    name: String = ""
    feature_level: Int16 = 0


@message(key=2, versions=v[0], flexible=v[0:])
class TopicRecord(Message):
    name: String = ""
    topic_id: Uuid = ZERO_UUID


@message(key=3, versions=v[0:2], flexible=v[0:])
class PartitionRecord(Message):
    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    replicas: list[Int32] = []
    isr: list[Int32] = []
    removing_replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    leader: Int32 = -1
    leader_recovery_state: Annotated[Int8, Tag(0)] = 0
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Annotated[list[Uuid], v[1:]] = []
    eligible_leader_replicas: Annotated[list[Int32] | None, v[2], Tag(1)] = None
    last_known_elr: Annotated[list[Int32] | None, v[2], Tag(2)] = None


@message(key=5, versions=v[0:2], flexible=v[0:])
class PartitionChangeRecord(Message):
    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    isr: Annotated[list[Int32] | None, Tag(0)] = None
    leader: Annotated[Int32, Tag(1)] = -2
    replicas: Annotated[list[Int32] | None, Tag(2)] = None
    removing_replicas: Annotated[list[Int32] | None, Tag(3)] = None
    adding_replicas: Annotated[list[Int32] | None, Tag(4)] = None
    leader_recovery_state: Annotated[Int8, Tag(5)] = -1
    directories: Annotated[list[Uuid] | None, v[1:], Tag(8)] = None
    eligible_leader_replicas: Annotated[list[Int32] | None, v[2], Tag(6)] = None
    last_known_elr: Annotated[list[Int32] | None, v[2], Tag(7)] = None


@message(key=9, versions=v[0], flexible=v[0:])
class RemoveTopicRecord(Message):
    topic_id: Uuid = ZERO_UUID


@message(key=4, versions=v[0], flexible=v[0:])
class ConfigRecord(Message):
    resource_type: Int8 = 0
    resource_name: String = ""
    name: String = ""
    value: String | None = ""


@message(key=15, versions=v[0], flexible=v[0:])
class ProducerIdsRecord(Message):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    next_producer_id: Int64 = 0


class QuotaEntity(Struct):
    entity_type: String = ""
    entity_name: String | None = ""


@message(key=14, versions=v[0], flexible=v[0:])
class ClientQuotaRecord(Message):
    entity: list[QuotaEntity] = []
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


@message(key=18, versions=v[0], flexible=v[0:])
class AccessControlEntryRecord(Message):
    id: Uuid = ZERO_UUID
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 0
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@message(key=19, versions=v[0], flexible=v[0:])
class RemoveAccessControlEntryRecord(Message):
    id: Uuid = ZERO_UUID


@message(key=11, versions=v[0], flexible=v[0:])
class UserScramCredentialRecord(Message):
    name: String = ""
    mechanism: Int8 = 0
    salt: Bytes = b""
    stored_key: Bytes = b""
    server_key: Bytes = b""
    iterations: Int32 = 0


@message(key=22, versions=v[0], flexible=v[0:])
class RemoveUserScramCredentialRecord(Message):
    name: String = ""
    mechanism: Int8 = 0


@message(key=10, versions=v[0], flexible=v[0:])
class DelegationTokenRecord(Message):
    owner: String = ""
    requester: String = ""
    renewers: list[String] = []
    issue_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    expiration_timestamp: Int64 = 0
    token_id: String = ""


@message(key=26, versions=v[0], flexible=v[0:])
class RemoveDelegationTokenRecord(Message):
    token_id: String = ""
