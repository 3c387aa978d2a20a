"""BrokerRegistration (API key 62): a broker tells the controller that it is there, and where it listens (KIP-631)."""

from typing import Annotated

from barnabas.wire.types import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    UInt16,
    Uuid,
    ignorable,
    message,
    v,
)


class Listener(Struct):
    name: String = ""
    host: String = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class Feature(Struct):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@message(key=62, versions=v[0:4], flexible=v[0:])
class BrokerRegistrationRequest(Message):
    broker_id: Int32 = 0
    cluster_id: String = ""
    incarnation_id: Uuid = ZERO_UUID
    listeners: list[Listener] = []
    features: list[Feature] = []
    rack: String | None = ""
    is_migrating_zk_broker: Annotated[Bool, v[1:]] = False
    log_dirs: Annotated[list[Uuid], v[2:], ignorable] = []
    previous_broker_epoch: Annotated[Int64, v[3:], ignorable] = -1


@message(key=62, versions=v[0:4], flexible=v[0:])
class BrokerRegistrationResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1
