"""The messages between broker and driver, and the plan of a query topic."""

from __future__ import annotations

import pytest

from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.queries import keys
from barnabas.wire.queries.messages import (
    Changed,
    Check,
    Checked,
    Conversation,
    QueryStatus,
    Status,
    decode,
    encode,
)
from barnabas.wire.queries.plan import QueryPlan, Values, first_offset, plan_of

SAID: list[Conversation] = [
    Check("1", "hot", "SELECT 1"),
    Changed(),
    Checked(id="1", source="readings", source_id="x", format="json", schema="a INT", output_format="json"),
    Checked(id="1", error="there is no column b"),
    Status(5, [QueryStatus(topic="hot", source="readings", state="RUNNING", lag=3, last_error="gone")]),
]


@pytest.mark.parametrize("message", SAID, ids=lambda message: type(message).__name__)
def test_what_is_said_is_heard(message: Conversation) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize("value", [None, b"", b"{}", b"\xff", b'{"type": "sung"}', b'{"type": "check"}', b"[1]"])
def test_what_is_none_of_it_is_passed_over(value: bytes | None) -> None:
    assert decode(value) is None


def test_a_key_of_a_later_version_does_no_harm() -> None:
    assert decode(b'{"type": "changed", "why": "later"}') == Changed()


def test_a_plan_stands_in_the_configuration_of_its_topic() -> None:
    plan = QueryPlan(source="readings", source_id="x", format="json", schema="a INT", offsets=[7, 0])
    configs = {keys.PLAN: plan.encode()}
    assert plan_of(configs) == plan
    assert [first_offset(configs, index) for index in range(3)] == [7, 0, 0]
    assert plan_of({}) is None
    assert first_offset({}, 0) == 0
    with pytest.raises(KafkaError) as caught:
        plan_of({keys.PLAN: "{"})
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_what_the_values_of_a_topic_are() -> None:
    assert Values.of({}) == Values(format="raw")
    assert Values.of({keys.SCHEMA: "a INT"}) == Values(format="json", schema="a INT")
    csv = Values.of({keys.FORMAT: "csv", keys.SCHEMA: "a INT", keys.CSV_SEPARATOR: "\\t", keys.CSV_NULL: "-"})
    assert (csv.separator, csv.csv_null) == ("\t", "-")
    assert QueryPlan(source="s", format="csv", schema="a INT", csv_separator="\\t", csv_null="-").values == csv


def test_the_topic_of_dead_letters_has_its_querys_name() -> None:
    assert keys.dead_letters_of("hot") == "hot.dead-letter"
