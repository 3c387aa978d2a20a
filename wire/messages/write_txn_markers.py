"""WriteTxnMarkers (API key 27): write commit or abort markers to partitions."""

from typing import Annotated

from barnabas.wire.types import Bool, Int8, Int16, Int32, Int64, Message, String, Struct, ignorable, message, v


class WritableTxnMarkerTopic(Struct):
    name: String = ""
    partition_indexes: list[Int32] = []


class WritableTxnMarker(Struct):
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: Int32 = 0
    transaction_version: Annotated[Int8, v[2], ignorable] = 0


@message(key=27, versions=v[1:2], flexible=v[1:])
class WriteTxnMarkersRequest(Message):
    markers: list[WritableTxnMarker] = []


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Struct):
    name: String = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


class WritableTxnMarkerResult(Struct):
    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = []


@message(key=27, versions=v[1:2], flexible=v[1:])
class WriteTxnMarkersResponse(Message):
    markers: list[WritableTxnMarkerResult] = []
