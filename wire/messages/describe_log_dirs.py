"""DescribeLogDirs (API key 35): log directories with the size of each replica."""

from typing import Annotated

from barnabas.wire.types import Bool, Int16, Int32, Int64, Message, String, Struct, ignorable, message, v


class DescribableLogDirTopic(Struct):
    topic: String = ""
    partitions: list[Int32] = []


@message(key=35, versions=v[1:5], flexible=v[2:])
class DescribeLogDirsRequest(Message):
    topics: list[DescribableLogDirTopic] | None = []


class DescribeLogDirsPartition(Struct):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Struct):
    name: String = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsResult(Struct):
    error_code: Int16 = 0
    log_dir: String = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Annotated[Int64, v[4:], ignorable] = -1
    usable_bytes: Annotated[Int64, v[4:], ignorable] = -1
    is_cordoned: Annotated[Bool, v[5], ignorable] = False


@message(key=35, versions=v[1:5], flexible=v[2:])
class DescribeLogDirsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, v[3:], ignorable] = 0
    results: list[DescribeLogDirsResult] = []
