"""What the broker fixes when a query topic is made: where the query reads, from which offsets on, and as what.

It stands in the topic's own configuration (`barnabas.query.plan`, JSON), so the metadata log is its only home and any
admin client can read it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import msgspec

from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.queries import keys


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """What a topic's values are: their format, the columns in them (DDL), and how Avro and CSV are written."""

    format: str = "raw"
    schema: str = ""
    avro_schema: str = ""
    avro_framing: str = "none"
    csv_separator: str = ","
    csv_null: str = ""

    @property
    def values(self) -> Values:
        """Only that, of whatever has it."""
        return Values(**{name: getattr(self, name) for name in Values.__struct_fields__})

    @property
    def separator(self) -> str:
        """What stands between the fields of CSV."""
        return "\t" if self.csv_separator == "\\t" else self.csv_separator

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> Values:
        """Those of a topic with this configuration."""
        schema = configs.get(keys.SCHEMA, "")
        return Values(
            format=configs.get(keys.FORMAT, "json" if schema else "raw"),
            schema=schema,
            avro_schema=configs.get(keys.AVRO_SCHEMA, ""),
            avro_framing=configs.get(keys.AVRO_FRAMING, "none"),
            csv_separator=configs.get(keys.CSV_SEPARATOR, ","),
            csv_null=configs.get(keys.CSV_NULL, ""),
        )


class Reads(Values, frozen=True, kw_only=True):
    """What a query reads: a topic with its id, or all topics whose names match a pattern; and what their values are."""

    source: str = ""
    source_id: str = ""
    pattern: str = ""


class QueryPlan(Reads, frozen=True, omit_defaults=True):
    """The fixed part of a query topic.

    `offsets` are those of the output's first records, partition by partition: a topic over one source keeps its
    source's offsets. What the values are is the source's as of the query's making. A topic over a pattern merges the
    logs of all topics whose names match: it has offsets of its own, and `starts` are those at which the topics of the
    time are read. A dead-letter topic has `dead_letter_of`, the id of its query topic, and `offsets`.
    """

    offsets: list[int] = []
    dead_letter_of: str = ""
    starts: dict[str, list[int]] = {}

    def is_of(self, topic_id: bytes) -> bool:
        """Whether it is that of the dead letters of the query topic with this id."""
        return self.dead_letter_of == str(uuid.UUID(bytes=topic_id))

    def encode(self) -> str:
        """As the value of `barnabas.query.plan`."""
        return msgspec.json.encode(self).decode()


def plan_of(configs: Mapping[str, str]) -> QueryPlan | None:
    """The plan in a topic's configuration; None for an ordinary topic. Raises KafkaError INVALID_CONFIG."""
    text = configs.get(keys.PLAN)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=QueryPlan)
    except msgspec.DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{keys.PLAN} is damaged: {error}") from None


def first_offset(configs: Mapping[str, str], partition: int) -> int:
    """The offset with which a new partition begins: of a query topic the source's, else 0."""
    plan = plan_of(configs)
    return plan.offsets[partition] if plan is not None and partition < len(plan.offsets) else 0
