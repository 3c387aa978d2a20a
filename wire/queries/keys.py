"""Configuration keys of query topics, and of topics whose values a query can read.

The broker has their types and defaults (`broker.settings.config`).
"""

from __future__ import annotations

#: The SELECT whose results the topic holds, and what the broker has fixed for it (`wire.queries.plan`).
QUERY, PLAN = "barnabas.query", "barnabas.query.plan"
START, ON_ERROR, EVENTS = "barnabas.query.start", "barnabas.query.on.error", "barnabas.query.events"
#: Who created the query or stream that writes a topic, and what that owner currently may not do.
OWNER, DENIED = "barnabas.owner", "barnabas.denied"
#: Set while a topic with partitions on other nodes becomes a query topic: it then takes no records. Not shown.
CLOSING = "barnabas.query.closing"
#: With several nodes: the driver's producer id. A key of the topic for the messages of broker and driver.
WRITER = "barnabas.query.writer"
DEAD_LETTER_OF = "barnabas.query.dead.letter.of"
FORMAT, SCHEMA = "barnabas.value.format", "barnabas.value.schema"
AVRO_SCHEMA, AVRO_FRAMING = "barnabas.value.avro.schema", "barnabas.value.avro.framing"
CSV_SEPARATOR, CSV_NULL = "barnabas.value.csv.separator", "barnabas.value.csv.null"
#: All keys that describe a topic's values.
VALUES = (FORMAT, SCHEMA, AVRO_SCHEMA, AVRO_FRAMING, CSV_SEPARATOR, CSV_NULL)

#: A longer SELECT is refused without being parsed.
MAX_QUERY_CHARS = 16 << 10
#: What to do with a record that a query cannot read.
DEAD_LETTER, SKIP, FAIL = "dead-letter", "skip", "fail"
_DEAD_LETTER_SUFFIX = ".dead-letter"


def dead_letters_of(topic: str) -> str:
    """The topic for the records that the query of `topic` cannot read."""
    return topic + _DEAD_LETTER_SUFFIX
