"""The events that the driver waits for between two ticks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.client.errors import ClientError
from barnabas.client.offsets import LATEST, READ_COMMITTED
from barnabas.streams.query import control as control_module
from barnabas.streams.query import driver as driver_module
from barnabas.streams.query.control import Control
from barnabas.streams.query.definitions import Catalog, Source
from barnabas.streams.query.driver import Driver
from barnabas.streams.query.health import Health
from barnabas.streams.tests.query_support import definition
from barnabas.wire.internal_topics import QUERIES_TOPIC
from barnabas.wire.queries.messages import Changed, Check, Conversation

ENDS = {("src", 0): 7}
Heard = list[tuple[float, Mapping[tuple[str, int], int]]]


class Listening:
    """A driver whose control log and sources have messages at given times; until then its clock runs on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, said: Mapping[float, list[Conversation]]) -> None:
        self.now, self.said = 0.0, dict(said)
        self.heard: Heard = []
        self.read = 0
        self.asked: list[str] = []
        driver: Any = Driver.__new__(Driver)
        driver._control = driver._questions = self
        driver._trigger, driver._ends, driver._has_more = 0.25, ENDS, False
        driver._catalog, driver._health = Catalog({}, {}), {"q": Health()}
        driver._spark = type("Spark", (), {"is_starting": False})
        driver._read_catalog = self._read_catalog
        self.driver = driver
        monkeypatch.setattr(driver_module, "now", lambda: self.now)

    def listen(self) -> float:
        """The time until which it has listened."""
        self.driver._listen(self.now + 0.25)
        return self.now

    # Like the control log, which is woken by records after `ends` only if it knows of them.
    def hear(self, *given: Any) -> list[Conversation] | None:
        if isinstance(given[0], Check):
            self.asked.append(given[0].id)
            return None
        wait_ms, ends = given
        self.heard.append((round(self.now, 3), ends))
        due = [at for at, found in self.said.items() if found or ends]
        until = min([self.now + wait_ms / 1000, *(max(at, self.now) for at in due)])
        self.now = until
        return [one for at in due if at <= until for one in self.said.pop(at)]

    def look(self) -> None:
        """No question waits."""

    def _read_catalog(self) -> None:
        self.read += 1


def test_after_quiet_a_record_is_seen_at_once_and_no_tick_comes_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Listening(monkeypatch, {0.7: []}).listen() == pytest.approx(0.7)
    soon = Listening(monkeypatch, {0.1: []})
    assert soon.listen() == pytest.approx(0.25)
    assert soon.heard == [(0.0, {}), (0.25, ENDS)]


def test_without_a_record_it_looks_around_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Listening(monkeypatch, {}).listen() == pytest.approx(1.25)


def test_it_does_not_wait_for_records_while_there_are_some_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    behind = Listening(monkeypatch, {0.7: []})
    behind.driver._health["q"].lag = 3
    assert behind.listen() == pytest.approx(0.25)
    behind.driver._health["q"].stopped("why")  # nobody reads these
    behind.said = {0.9: []}
    assert behind.listen() == pytest.approx(0.9)
    more = Listening(monkeypatch, {0.7: []})
    more.driver._has_more = True
    assert more.listen() == pytest.approx(0.25)


def test_while_spark_starts_it_looks_as_often_as_ticks_come(monkeypatch: pytest.MonkeyPatch) -> None:
    starting = Listening(monkeypatch, {})
    starting.driver._spark.is_starting = True
    assert starting.listen() == pytest.approx(0.5)


def test_a_change_is_acted_on_at_once_and_a_question_is_answered_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    question = Check("1", "out", "SELECT a FROM src")
    changed = Listening(monkeypatch, {0.1: [question], 0.15: [Changed()]})
    assert changed.listen() == pytest.approx(0.15)
    assert (changed.asked, changed.read) == (["1"], 1)


def test_records_that_come_after_a_change_are_left_for_the_new_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """The change is answered, and a record produced, after the driver has listened and before it looks for records."""
    asked: list[Any] = []
    ran: list[Any] = []

    def list_offsets(_: object, keys: Any, special: int) -> dict[tuple[str, int], int]:
        asked.append(special)
        return dict.fromkeys(keys, 8 if special == LATEST else 0)

    told = Listening(monkeypatch, {0.0: [Changed()]})
    driver: Any = told.driver
    query = definition("q", "SELECT _value FROM s", "")
    driver._catalog = Catalog({"s": Source(name="s", topic_id="id", partitions=1)}, {"q": query})
    driver._analyses = driver._roads = driver._cluster = type(
        "Any", (), {"check_jvm": lambda _: None, "kind": lambda *_: 0}
    )()
    driver._places = {("q", ("s", 0)): 7}
    for name in ("_may_run", "_is_understood", "_tell_events", "_facts"):
        setattr(driver, name, lambda *_: True)
    driver._run_group = lambda *given: ran.append(given)
    monkeypatch.setattr(driver_module, "list_offsets", list_offsets)
    told.has_unheard = lambda: asked[-1:] == [LATEST] and bool(told.said)  # type: ignore[attr-defined]
    driver._tick()
    assert (told.read, ran, driver._has_more) == (1, [], True)
    driver._tick()
    assert (told.read, len(ran)) == (1, 1)


def test_a_source_that_has_gone_keeps_nobody_from_hearing_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def fetch(_: object, wanted: Mapping[tuple[str, int], int], **options: Any) -> dict[Any, Any]:
        asked.append((wanted, options))
        if len(wanted) > 1:
            raise ClientError("Fetch of src-0: UNKNOWN_TOPIC_OR_PARTITION")
        return {}

    monkeypatch.setattr(control_module, "fetch", fetch)
    control = Control.__new__(Control)
    control._cluster, control._next = object(), 5  # type: ignore[assignment]
    assert control.hear(400, ENDS) == []
    (both, options), (alone, _) = asked
    assert list(both) == [(QUERIES_TOPIC, 0), ("src", 0)]  # the first one in a fetch comes completely
    assert (options["peek"], options["isolation"], options["wait_ms"]) == (ENDS, READ_COMMITTED, 400)
    assert alone == {(QUERIES_TOPIC, 0): 5}
