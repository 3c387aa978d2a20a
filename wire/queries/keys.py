"""Configuration keys of query topics, and of topics whose values a query can read. Their types and defaults are the
broker's (`broker.settings.config`)."""

from __future__ import annotations

#: The SELECT whose results the topic holds, and what the broker has fixed of it (`wire.queries.plan`).
QUERY, PLAN = "barnabas.query", "barnabas.query.plan"
START, ON_ERROR, EVENTS = "barnabas.query.start", "barnabas.query.on.error", "barnabas.query.events"
#: Who has made the query or stream that writes a topic, and what that one may not do now.
OWNER, DENIED = "barnabas.owner", "barnabas.denied"
#: A topic that other nodes lead partitions of takes no records while it becomes a query topic. Shown to nobody.
CLOSING = "barnabas.query.closing"
#: Of the topic of the driver's conversation, where there are several nodes: the producer id of the driver.
WRITER = "barnabas.query.writer"
DEAD_LETTER_OF = "barnabas.query.dead.letter.of"
FORMAT, SCHEMA = "barnabas.value.format", "barnabas.value.schema"
AVRO_SCHEMA, AVRO_FRAMING = "barnabas.value.avro.schema", "barnabas.value.avro.framing"
CSV_SEPARATOR, CSV_NULL = "barnabas.value.csv.separator", "barnabas.value.csv.null"
#: All that says what a topic's values are.
VALUES = (FORMAT, SCHEMA, AVRO_SCHEMA, AVRO_FRAMING, CSV_SEPARATOR, CSV_NULL)

#: A longer SELECT is refused before it is looked at.
MAX_QUERY_CHARS = 16 << 10
#: What becomes of a record that a query cannot read.
DEAD_LETTER, SKIP, FAIL = "dead-letter", "skip", "fail"
_DEAD_LETTER_SUFFIX = ".dead-letter"


def dead_letters_of(topic: str) -> str:
    """The topic for what the query of `topic` cannot read."""
    return topic + _DEAD_LETTER_SUFFIX
