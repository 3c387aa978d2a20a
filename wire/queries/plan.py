"""What the broker fixes when a query topic is created: where the query reads, from which offsets, and in which form.

It is stored in the topic's own configuration (`barnabas.query.plan`, JSON). So it is in the metadata log only, and any
admin client can read it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import msgspec

from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.queries import keys


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The form of a topic's values: their format, their columns (DDL), and the details of Avro and CSV."""

    format: str = "raw"
    schema: str = ""
    avro_schema: str = ""
    avro_framing: str = "none"
    csv_separator: str = ","
    csv_null: str = ""

    @property
    def values(self) -> Values:
        """Only the Values part of a subclass."""
        return Values(**{name: getattr(self, name) for name in Values.__struct_fields__})

    @property
    def separator(self) -> str:
        """The separator of CSV fields."""
        return "\t" if self.csv_separator == "\\t" else self.csv_separator

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> Values:
        """The values of a topic with this configuration."""
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
    """What a query reads: a topic with its id, or all topics with matching names; and the form of their values."""

    source: str = ""
    source_id: str = ""
    pattern: str = ""


class QueryPlan(Reads, frozen=True, omit_defaults=True):
    """The fixed part of a query topic.

    `offsets` are those of the output's first records in each partition: a topic over one source keeps its source's
    offsets. The form of the values is that of the source when the query was created. A topic over a pattern merges the
    logs of all topics with matching names. It has its own offsets, and `starts` are the offsets from which the topics
    existing at that time are read. A dead-letter topic has `dead_letter_of`, the id of its query topic, and `offsets`.
    """

    offsets: list[int] = []
    dead_letter_of: str = ""
    starts: dict[str, list[int]] = {}

    def is_of(self, topic_id: bytes) -> bool:
        """Whether this is the dead-letter topic of the query topic with this id."""
        return self.dead_letter_of == str(uuid.UUID(bytes=topic_id))

    def encode(self) -> str:
        """The value of `barnabas.query.plan`."""
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
    """The first offset of a new partition: the source's for a query topic, otherwise 0."""
    plan = plan_of(configs)
    return plan.offsets[partition] if plan is not None and partition < len(plan.offsets) else 0
