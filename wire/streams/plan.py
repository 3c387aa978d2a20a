"""What the broker fixes when a stream is created: what it reads, and from which offsets.

It is stored in the configuration of the topic that the stream writes to (`barnabas.stream.plan`, JSON). The broker
knows no SQL: the plan, except for the offsets, is the streams driver's answer.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.queries.plan import Values
from barnabas.wire.streams.keys import STREAM_PLAN

EARLIEST, LATEST = "earliest", "latest"


class JoinedReads(Values, frozen=True, kw_only=True):
    """The topic that a stream joins with its source.

    A table is read from its beginning, another stream from `starts`, its offsets in each partition.
    """

    source: str
    source_id: str
    is_table: bool
    starts: tuple[int, ...] = ()


class StreamReads(Values, frozen=True, kw_only=True):
    """The topic that a stream reads, the form of its values at the stream's creation, and where the stream begins."""

    source: str = ""
    source_id: str = ""
    begins: str = LATEST
    joined: JoinedReads | None = None

    @property
    def sources(self) -> dict[str, str]:
        """The topics that the stream reads, with their ids."""
        found = {self.source: self.source_id}
        return found if self.joined is None else {**found, self.joined.source: self.joined.source_id}


class StreamPlan(StreamReads, frozen=True, omit_defaults=True):
    """The fixed part of a stream. `starts` are the source's offsets from which it reads, for each partition."""

    starts: tuple[int, ...] = ()

    @property
    def begins_at(self) -> dict[TopicPartition, int]:
        """The first offset of each partition whose records it takes. A table's rows do not count as records."""
        found = {(self.source, number): start for number, start in enumerate(self.starts)}
        if self.joined is not None:
            found |= {(self.joined.source, number): start for number, start in enumerate(self.joined.starts)}
        return found

    def encode(self) -> str:
        """The value of `barnabas.stream.plan`."""
        return msgspec.json.encode(self).decode()


def stream_plan_of(configs: Mapping[str, str]) -> StreamPlan | None:
    """The plan in a topic's configuration; None if no stream writes to it. Raises KafkaError INVALID_CONFIG."""
    text = configs.get(STREAM_PLAN)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=StreamPlan)
    except msgspec.DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{STREAM_PLAN} is damaged: {error}") from None
