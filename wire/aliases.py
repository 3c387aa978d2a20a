"""Names for the plain types that all packages share."""

from __future__ import annotations

#: Bytes in any form that `memoryview` takes.
BytesLike = bytes | bytearray | memoryview
#: A topic's name and a partition's number, as in Kafka's clients.
TopicPartition = tuple[str, int]
