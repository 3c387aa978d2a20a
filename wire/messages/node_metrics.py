"""NodeMetrics (API key 32000): a node asks another one of its broker for its metrics as text.

Kafka has no API for this; the key is far above Kafka's own.
"""

from barnabas.wire.types import Bytes, Int16, Message, String, message, v


@message(key=32000, versions=v[0], flexible=v[0:])
class NodeMetricsRequest(Message):
    #: The content type that is wanted: Prometheus' text format, or OpenMetrics'.
    accept: String = ""


@message(key=32000, versions=v[0], flexible=v[0:])
class NodeMetricsResponse(Message):
    text: Bytes = b""
    error_code: Int16 = 0
