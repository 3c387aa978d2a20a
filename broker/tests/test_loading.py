"""Partitions of a coordinator that are lost, and come back, while they are loaded."""

from __future__ import annotations

import io
from typing import Any

import trio
import trio.testing

from barnabas.broker.coordinators.loading import Loading
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import Leader, TopicImage
from barnabas.storage.errors import NotLeaderError

HERE, THERE = 1, 2


class Reading:
    """A coordinator with its store and metadata, as far as loading uses them. Each load waits for the test."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.finished: list[int] = []
        self.unloaded: list[int] = []
        self.node_id, self.topics = HERE, {"t": led_by(HERE)}
        self.gates: list[trio.Event] = []

    def begin_load(self, partition: int) -> int:
        self.begun.append(partition)
        return partition

    def finish_load(self, loading: int, image: Any) -> None:
        self.finished.append(loading)

    def unload(self, partition: int) -> None:
        self.unloaded.append(partition)

    def get(self, topic: str, partition: int) -> Any:
        return self

    log_start_offset, log_end_offset = 0, 1


def led_by(node: int) -> TopicImage:
    return TopicImage("t", bytes(16), {0: Leader(node, 0)})


async def test_a_partition_that_goes_and_comes_back_while_it_is_read_is_read_once_more(monkeypatch: Any) -> None:
    reading, said = Reading(), io.StringIO()
    any_of: Any = reading
    loading: Loading[Any, Any] = Loading("t", any_of, any_of, any_of, any_of, EventLog(said), "load_failed")

    async def read(coordinator: Reading, _: object, partition: int, **__: object) -> None:
        begun = coordinator.begin_load(partition)
        gate = trio.Event()
        reading.gates.append(gate)
        await gate.wait()
        if gate is reading.gates[0]:
            raise NotLeaderError("another node will lead t-0")
        coordinator.finish_load(begun, None)

    monkeypatch.setattr("barnabas.broker.coordinators.loading.load_partition", read)
    async with trio.open_nursery() as nursery:
        loading.start(nursery)
        await trio.testing.wait_all_tasks_blocked()
        loading.topic_changed(led_by(HERE), led_by(THERE))
        assert reading.unloaded == [0]
        loading.topic_changed(led_by(THERE), led_by(HERE))
        await trio.testing.wait_all_tasks_blocked()
        assert len(reading.gates) == 2, "it is read anew"
        for gate in reading.gates:
            gate.set()
        await trio.testing.wait_all_tasks_blocked()
    assert len(reading.gates) == 2, "and no third time"
    assert reading.finished == [0]
    assert said.getvalue() == "", "that it went is nobody's fault"


async def test_a_partition_whose_folder_could_not_be_made_for_long_is_read_soon_after_it_is_there(
    monkeypatch: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """Its clients wait. Why it is not there, whoever could not make it has told."""
    reading, said = Reading(), io.StringIO()
    any_of: Any = reading
    is_there = False
    monkeypatch.setattr(reading, "get", lambda *_: reading if is_there else None)
    loading: Loading[Any, Any] = Loading("t", any_of, any_of, any_of, any_of, EventLog(said), "load_failed")

    async def read(coordinator: Reading, _: object, partition: int, **__: object) -> None:
        assert is_there
        coordinator.finish_load(coordinator.begin_load(partition), None)

    monkeypatch.setattr("barnabas.broker.coordinators.loading.load_partition", read)
    async with trio.open_nursery() as nursery:
        loading.start(nursery)
        await trio.sleep(600)
        assert reading.begun == [0], "its clients are told that it is being loaded"
        is_there = True
        await trio.sleep(1)
        assert reading.finished == [0]
    assert said.getvalue() == ""
