"""Events of a query over a pattern: records among its results that say which topics it reads, and how these change.

An event's key is the topic's name, its value describes the whole topic, and a header says whether it is new. A digest
of the last event is kept with the positions of the query, so each change is written only once.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from barnabas.streams.query.definitions import Source
from barnabas.wire.batch import Record
from barnabas.wire.queries.plan import Values

EVENT_HEADER = "barnabas.event"
CREATED, ALTERED = "created", "altered"


class TopicState(NamedTuple):
    """What the last event said about a topic: its id, and a digest of the rest."""

    topic_id: str
    digest: str


class Event(Values, frozen=True):
    """The value of an event: the topic, and the form of its values."""

    event: str
    topic: str
    topic_id: str
    partitions: int

    @property
    def state(self) -> TopicState:
        """The topic's state after this event."""
        written = msgspec.json.encode(msgspec.structs.replace(self, event=""))
        return TopicState(self.topic_id, hashlib.sha256(written).hexdigest())

    def record(self, now_ms: int) -> Record:
        """The event as a record of the results."""
        return Record(self.topic.encode(), msgspec.json.encode(self), now_ms, ((EVENT_HEADER, self.event.encode()),))


def event_of(source: Source, last: TopicState | None) -> Event | None:
    """The event that says how a topic has changed since its `last` state; None if it has not."""
    is_new = last is None or last.topic_id != source.topic_id
    event = Event(
        CREATED if is_new else ALTERED,
        source.name,
        source.topic_id,
        source.partitions,
        **msgspec.structs.asdict(source.values),
    )
    return None if event.state == last else event


def decode_event(value: bytes) -> Event:
    """The value of a record with `EVENT_HEADER`."""
    return msgspec.json.decode(value, type=Event)
