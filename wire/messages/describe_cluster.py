"""DescribeCluster (API key 60): cluster id, controller and brokers (KIP-700)."""

from typing import Annotated

from barnabas.wire.types import Bool, Int8, Int16, Int32, Message, String, Struct, message, v


@message(key=60, versions=v[0:2], flexible=v[0:])
class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, v[1:]] = 1
    include_fenced_brokers: Annotated[Bool, v[2]] = False


class DescribeClusterBroker(Struct):
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
    is_fenced: Annotated[Bool, v[2]] = False


@message(key=60, versions=v[0:2], flexible=v[0:])
class DescribeClusterResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Annotated[Int8, v[1:]] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -(2**31)
