"""The metrics that clients push about themselves (KIP-714), in OTLP's format: the newest value of each.

A client is a stranger: it may push any names, at any rate, from any number of instances. An instance has at most
`MOST_SERIES` values, and there are at most `MOST_INSTANCES`: at the limit, the client with the most loses the instance
that pushed longest ago. An instance that misses its interval three times is forgotten. A push that comes too soon gets
an error and is not read.

Source: KIP-714; OpenTelemetry's protocol, version 1 of its metrics.
"""

from __future__ import annotations

import uuid
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.settings.client_metrics import SELECTORS, Subscription, subscription
from barnabas.wire.compression import CompressionType, decompress
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.types import ZERO_UUID

MOST_INSTANCES, MOST_SERIES = 300, 300
#: The largest push, as sent and decompressed.
MOST_BYTES, MOST_DECOMPRESSED = 1 << 20, 8 << 20
#: The compression types for pushes, the best first.
COMPRESSION = (CompressionType.ZSTD, CompressionType.LZ4, CompressionType.GZIP, CompressionType.SNAPPY)
_MISSES = 3
_NAME_CHARS = 200
_LABELS = 10
# How much sooner than asked a client may come: its clock and the network are not exact.
_EARLY = 0.8


class Value(NamedTuple):
    """A metric's newest value, with its labels."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Instance:
    """A client that pushes."""

    def __init__(self, owner: str, client: Mapping[str, str]) -> None:
        #: The client whose share of common resources it uses.
        self.owner = owner
        #: Its attributes, by the names of SELECTORS.
        self.client = client
        self.subscription: Subscription | None = None
        self.asked_at = self.pushed_at = float("-inf")
        self.is_over = False
        self.values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def take(self, values: list[Value]) -> None:
        """Keep the newest values; names beyond the bound are left out."""
        for each in values:
            key = each.name, each.labels
            if key in self.values or len(self.values) < MOST_SERIES:
                self.values[key] = each.value


class ClientTelemetry:
    """All clients that push. `is_on` says whether their metrics can be read."""

    def __init__(self, metadata: MetadataImage) -> None:
        self._metadata = metadata
        self.is_on = False
        self._instances: OrderedDict[bytes, Instance] = OrderedDict()  # the one that came longest ago first

    def asked(
        self, instance_id: bytes, owner: str, client: Mapping[str, str], now: float
    ) -> tuple[bytes, Subscription]:
        """A client asks what to push; a new one gets an id. Raises KafkaError THROTTLING_QUOTA_EXCEEDED."""
        if instance_id == ZERO_UUID:
            instance_id = uuid.uuid4().bytes
        instance = self._instances.get(instance_id)
        if instance is None:
            instance = Instance(owner, {})
        elif instance.subscription is not None:
            since, wanted = now - instance.asked_at, instance.subscription.interval_ms / 1000 * _EARLY
            is_same = self._subscription(instance.client) == instance.subscription
            if is_same and since < wanted and instance.pushed_at < instance.asked_at:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the subscription was asked for too recently")
        instance.client = {**client, "client_instance_id": str(uuid.UUID(bytes=instance_id))}
        instance.subscription, instance.asked_at = self._subscription(instance.client), now
        self._keep(instance_id, instance)
        return instance_id, instance.subscription

    def _subscription(self, client: Mapping[str, str]) -> Subscription:
        return subscription(self._metadata.client_metrics.values(), {name: client.get(name, "") for name in SELECTORS})

    def _keep(self, instance_id: bytes, instance: Instance) -> None:
        self._instances[instance_id] = instance
        self._instances.move_to_end(instance_id)
        if len(self._instances) > MOST_INSTANCES:
            of = Counter(each.owner for each in self._instances.values())
            most = max(of.values())
            del self._instances[next(key for key, each in self._instances.items() if of[each.owner] == most)]

    def may_push(self, instance_id: bytes, subscription_id: int, size: int, now: float, *, is_last: bool) -> Instance:
        """The instance that pushes now. Raises KafkaError if it may not push, or not this."""
        instance = self._instances.get(instance_id)
        if instance_id == ZERO_UUID or (instance is not None and instance.is_over):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "no such client instance, or it has announced its end")
        if instance is None or instance.subscription is None or instance.subscription.id != subscription_id:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "ask for the subscription again")
        if self._subscription(instance.client) != instance.subscription:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "the subscription has changed: ask for it again")
        interval = instance.subscription.interval_ms / 1000
        if not is_last and now - instance.pushed_at < interval * _EARLY:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push comes too soon")
        if size > MOST_BYTES:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, f"a push has at most {MOST_BYTES} bytes")
        instance.pushed_at, instance.is_over = now, is_last
        self._keep(instance_id, instance)
        return instance

    def current(self, now: float) -> list[Instance]:
        """The instances that still push; the others are forgotten."""
        for instance_id, instance in list(self._instances.items()):
            interval = 300.0 if instance.subscription is None else instance.subscription.interval_ms / 1000
            last = max(instance.pushed_at, instance.asked_at)
            if now - last > _MISSES * max(interval, 10.0):
                del self._instances[instance_id]
        return [each for each in self._instances.values() if each.values and not each.is_over]


def parse(codec: int, data: bytes) -> list[Value]:
    """The values in a push. For a thread. Raises KafkaError INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    if codec not in (CompressionType.NONE, *COMPRESSION):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "that compression was not offered")
    try:
        told = MetricsData.FromString(decompress(codec, data, MOST_DECOMPRESSED))
    except (DecodeError, KafkaError):
        raise KafkaError(ErrorCode.INVALID_RECORD, "these are no metrics of OTLP") from None
    found = []
    for resource in told.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for value in _values(metric):
                    found.append(value)
                    if len(found) > MOST_SERIES:
                        return found
    return found


def _values(metric: Any) -> Iterator[Value]:
    """The points of a metric: gauges and sums unchanged; the sum and the count of histograms."""
    name = metric.name[:_NAME_CHARS]
    kind = metric.WhichOneof("data")
    if kind in ("gauge", "sum"):
        for point in getattr(metric, kind).data_points:
            value = point.as_double if point.WhichOneof("value") == "as_double" else point.as_int
            yield Value(name, _labels(point), float(value))
    elif kind in ("histogram", "exponential_histogram", "summary"):
        for point in getattr(metric, kind).data_points:
            yield Value(f"{name}.sum", _labels(point), float(point.sum))
            yield Value(f"{name}.count", _labels(point), float(point.count))


def _labels(point: Any) -> tuple[tuple[str, str], ...]:
    return tuple(
        sorted((each.key[:_NAME_CHARS], _text(each.value)) for each in list(point.attributes)[:_LABELS] if each.key)
    )


def _text(value: Any) -> str:
    kind = value.WhichOneof("value")
    return str(getattr(value, kind))[:_NAME_CHARS] if kind is not None else ""
