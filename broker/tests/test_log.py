"""The broker's log: one line for each event, whatever names clients use."""

from __future__ import annotations

import io
import json
import logging
import re
import shlex
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.log import BRIDGE_LINES_PER_SECOND, Bridge, EventLog
from barnabas.wire.logfmt import MAX_VALUE_CHARS

HOSTILE = (
    "g\n2026-01-01T00:00:00.000Z error forged",
    "g\r\x1b[2J\x1b]0;owned\x07",
    "g\u2028forged\u2029\x85",
    'g" level=error forged="1',
    "g\u202egnp.exe",
    "\ud800",
    "g\\n",
    "",
)


def lines(said: io.StringIO) -> list[str]:
    return said.getvalue().splitlines()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_line_of_json_is_one_object_with_the_values_that_were_told(name: str) -> None:
    said = io.StringIO()
    EventLog(said, as_json=True).warning("group.odd", group=name, level="mine", after=1, share=float("nan"), none=None)
    (line,) = lines(said)
    assert line.isascii()
    assert line.isprintable()
    found = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("time"))
    assert found == {
        "level": "warning",
        "event": "group.odd",
        "group": name,
        "level_": "mine",
        "after": 1,
        "share": "nan",
        "none": None,
    }


def test_a_long_value_is_cut_in_json_too() -> None:
    said = io.StringIO()
    EventLog(said, as_json=True).warning("group.odd", group="x" * 10 * MAX_VALUE_CHARS)
    assert len(said.getvalue()) < 2 * MAX_VALUE_CHARS


@pytest.mark.parametrize("name", HOSTILE)
def test_a_value_stays_one_value_of_one_line(name: str) -> None:
    said = io.StringIO()
    EventLog(said).warning("group.odd", group=name, after=1)
    (line,) = lines(said)
    line.encode()
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", line)
    _stamp, level, event, *pairs = shlex.split(line)
    assert (level, event, len(pairs), pairs[1]) == ("warning", "group.odd", 2, "after=1")


def test_a_backslash_is_told_from_an_escape() -> None:
    said = io.StringIO()
    EventLog(said).info("e", a="x\\n", b="x\n")
    assert said.getvalue().endswith('info e a="x\\\\n" b="x\\n"\n')


def test_a_very_long_value_is_cut_in_its_middle() -> None:
    said = io.StringIO()
    EventLog(said).info("e", a="b" + "x" * 1_000_000 + "e", b="whole")
    (line,) = lines(said)
    assert len(line) < MAX_VALUE_CHARS + 200
    assert re.search(r'a="b+x+ \.\.\. \d+ characters left out \.\.\. x+e" b=whole$', line)


@given(st.text(), st.text())
def test_any_texts_make_one_line(one: str, other: str) -> None:
    said = io.StringIO()
    EventLog(said).info("e", one=one, other=other)
    (line,) = lines(said)
    line.encode()


# --- messages of logging ----------------------------------------------------------------------------------------------


def bridged(level: str = "info") -> tuple[io.StringIO, logging.Logger]:
    said = io.StringIO()
    logger = logging.Logger("barnabas.groupcoord.group", logging.DEBUG)
    logger.addHandler(Bridge(EventLog(said, level)))
    return said, logger


def test_what_is_told_to_logging_has_the_logs_form() -> None:
    said, logger = bridged()
    logger.info("group %s: %d offsets expired", "billing", 3)
    logger.warning("group %s: %s", "a: rebalance\nforged", "x")
    first, second = lines(said)
    assert re.fullmatch(r'\S+Z info groupcoord\.group message="group billing: 3 offsets expired"', first)
    assert second.endswith('warning groupcoord.group message="group \\"a: rebalance\\\\nforged\\": x"')


def test_an_exception_told_to_logging_is_an_error_with_its_trace_in_one_line() -> None:
    said, logger = bridged()
    try:
        raise ValueError("a\nb")
    except ValueError:
        logger.exception("a reply failed")
    (line,) = lines(said)
    assert re.search(r' error groupcoord\.group message="a reply failed" error="ValueError\(.*trace="Traceback', line)


def test_the_level_of_the_log_holds_for_logging_too() -> None:
    said, logger = bridged("warning")
    logger.info("unheard")
    logger.warning("heard")
    assert [line.split()[-1] for line in lines(said)] == ["message=heard"]


def test_a_flood_of_lines_is_cut_and_counted_and_errors_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    said, logger = bridged()
    now = 1000.0
    monkeypatch.setattr("barnabas.broker.log.time.monotonic", lambda: now)
    for _ in range(10 * BRIDGE_LINES_PER_SECOND):
        logger.info("group %s: rebalance", "g")
    logger.error("heard")
    assert len(lines(said)) == BRIDGE_LINES_PER_SECOND + 1
    now += 1
    logger.info("heard again")
    assert f"log.lines_left_out lines={9 * BRIDGE_LINES_PER_SECOND}" in lines(said)[-2]
    assert "heard again" in lines(said)[-1]


def test_a_message_that_does_not_fit_its_arguments_is_told_all_the_same() -> None:
    said, logger = bridged()
    logger.warning("%d", "x")
    assert "message=" in lines(said)[0]
    assert "x" in lines(said)[0]
    assert sys.exc_info() == (None, None, None)
