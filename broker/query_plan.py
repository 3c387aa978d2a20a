"""What the broker fixes when a query topic is made: where the query reads, from which offsets on, and as what.

It stands in the topic's own configuration (`barnabas.query.plan`, JSON), so the metadata log is its only home and any
admin client can read it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from barnabas.wire.errors import ErrorCode, KafkaError

QUERY, PLAN, START, ON_ERROR, EVENTS = (
    "barnabas.query",
    "barnabas.query.plan",
    "barnabas.query.start",
    "barnabas.query.on.error",
    "barnabas.query.events",
)
DEAD_LETTER_OF = "barnabas.query.dead.letter.of"
FORMAT, SCHEMA = "barnabas.value.format", "barnabas.value.schema"
#: All that says what a topic's values are.
VALUES = (
    FORMAT,
    SCHEMA,
    "barnabas.value.avro.schema",
    "barnabas.value.avro.framing",
    "barnabas.value.csv.separator",
    "barnabas.value.csv.null",
)
DEAD_LETTER_SUFFIX = ".dead-letter"
#: The driver refuses longer ones too; here they cost no question.
MAX_QUERY_CHARS = 16 << 10


class Reads(msgspec.Struct, frozen=True, kw_only=True):
    """What a query reads: a topic with its id, or all topics whose names match a pattern; and what their values are."""

    source: str = ""
    source_id: str = ""
    pattern: str = ""
    format: str = "raw"
    schema: str = ""
    avro_schema: str = ""
    avro_framing: str = "none"
    csv_separator: str = ","
    csv_null: str = ""


class QueryPlan(Reads, frozen=True, omit_defaults=True):
    """The fixed part of a query topic.

    `offsets` are those of the output's first records, partition by partition: a topic over one source keeps its
    source's offsets. `schema` (DDL), `format` and how Avro and CSV values are written are the source's as of the
    query's making. A topic over a pattern merges the logs of all topics whose names match: it has offsets of its own,
    and `starts` are those at which the topics of the time are read. A dead-letter topic has `dead_letter_of`, the id of
    its query topic, and `offsets`.
    """

    offsets: list[int] = []
    dead_letter_of: str = ""
    starts: dict[str, list[int]] = {}

    def encode(self) -> str:
        """As the value of `barnabas.query.plan`."""
        return msgspec.json.encode(self).decode()


def plan_of(configs: Mapping[str, str]) -> QueryPlan | None:
    """The plan in a topic's configuration; None for an ordinary topic. Raises KafkaError INVALID_CONFIG."""
    text = configs.get(PLAN)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=QueryPlan)
    except msgspec.DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{PLAN} is damaged: {error}") from None


def first_offset(configs: Mapping[str, str], partition: int) -> int:
    """The offset with which a new partition begins: of a query topic the source's, else 0."""
    plan = plan_of(configs)
    return plan.offsets[partition] if plan is not None and partition < len(plan.offsets) else 0
