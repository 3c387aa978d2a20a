"""The messages of the driver to its broker, or to an operator who runs it by hand."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from barnabas.streams.query.__main__ import _say_in_json, _say_in_words, say_logging


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    own = logging.getLogger("barnabas")
    before = own.handlers, own.propagate
    yield
    own.handlers, own.propagate = before


def test_by_hand_it_has_the_form_of_the_brokers_log(capsys: pytest.CaptureFixture[str]) -> None:
    _say_in_words("error", "query.failed", topic="hot", error='no "x"\nerror forged=1')
    assert capsys.readouterr().err == 'error query.failed topic=hot error="no \\"x\\"\\nerror forged=1"\n'


def test_to_the_broker_it_is_a_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    _say_in_json("warning", "query.retrying", topic="hot", error="a\nb")
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {"level": "warning", "event": "query.retrying", "topic": "hot", "error": "a\nb"}


def test_what_the_projects_code_tells_logging_goes_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    say_logging(_say_in_json)
    logging.getLogger("barnabas.streams").warning("%s has changed", "a\nb")
    logging.getLogger("py4j").warning("a library's")
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {"level": "warning", "event": "streams", "message": '"a\\nb" has changed'}
