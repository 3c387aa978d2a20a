"""The events about the topics of a pattern, and their order."""

from __future__ import annotations

import msgspec

from barnabas.streams.query.definitions import Source
from barnabas.streams.query.events import decode_event, event_of

SOURCE = Source("plant-a", "id-1", 2, format="json", schema="temp DOUBLE")


def test_a_topic_is_told_of_once_and_again_when_it_changes() -> None:
    created = event_of(SOURCE, None)
    assert created is not None
    assert (created.event, created.partitions) == ("created", 2)
    assert event_of(SOURCE, created.state) is None
    for change in ({"partitions": 3}, {"schema": "temp DOUBLE, hum DOUBLE"}, {"format": "csv"}):
        altered = event_of(msgspec.structs.replace(SOURCE, **change), created.state)
        assert altered is not None
        assert altered.event == "altered"
    again = event_of(msgspec.structs.replace(SOURCE, topic_id="id-2"), created.state)
    assert again is not None
    assert again.event == "created"


def test_the_record_says_all_and_is_understood_again() -> None:
    event = event_of(SOURCE, None)
    assert event is not None
    record = event.record(7)
    assert (record.key, record.timestamp, dict(record.headers)) == (b"plant-a", 7, {"barnabas.event": b"created"})
    assert decode_event(record.value or b"").state == event.state
