"""Events of a query over a pattern: records among its results that say which topics it reads, and how they change.

An event's key is the topic's name, its value says all of what the topic is, and a header whether it is new. A digest of
what was said last is kept with the places of the query, so that each change is told once.
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


class Told(NamedTuple):
    """What was told of a topic last: which one it was, and a digest of all of it."""

    topic_id: str
    digest: str


class Event(Values, frozen=True):
    """The value of an event: the topic, and what its values are."""

    event: str
    topic: str
    topic_id: str
    partitions: int

    @property
    def told(self) -> Told:
        """What is known of the topic from now on."""
        state = msgspec.json.encode(msgspec.structs.replace(self, event=""))
        return Told(self.topic_id, hashlib.sha256(state).hexdigest())

    def record(self, now_ms: int) -> Record:
        """As a record of the results."""
        return Record(self.topic.encode(), msgspec.json.encode(self), now_ms, ((EVENT_HEADER, self.event.encode()),))


def event_of(source: Source, told: Told | None) -> Event | None:
    """What is to be told of a topic after `told`; None if nothing has changed."""
    is_new = told is None or told.topic_id != source.topic_id
    event = Event(
        CREATED if is_new else ALTERED,
        source.name,
        source.topic_id,
        source.partitions,
        **msgspec.structs.asdict(source.values),
    )
    return None if event.told == told else event


def decode_event(value: bytes) -> Event:
    """The value of a record with `EVENT_HEADER`."""
    return msgspec.json.decode(value, type=Event)
