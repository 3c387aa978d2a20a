"""A request sees the same state whether or not the client waited for the answer before it.

For every pair of a change and a read, two answers of the read are compared: one after the change's answer, and one with
both requests sent at once. On a disk with slow syncs, a read that does not wait for the change would see less.

Apache Kafka answers before its brokers know of a change of topics, so `--peer` compares only records and offsets.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from barnabas.wire.messages.produce import ProduceRequest
from compat_tests.broker_process import Barnabas, Server
from compat_tests.conftest import NewServer
from compat_tests.pipe import Pipe
from compat_tests.pipelining.pairs import CHANGES, LOOKS, Names, plain, prepare

pytestmark = pytest.mark.one_node(
    "it speaks to one node over connections of its own, which need not lead or coordinate what it asks for"
)

PAGE_CACHE = str(2**63 - 1)
OF_RECORDS = [name for name in CHANGES if name.startswith(("Produce", "OffsetCommit"))]
RECORD_LOOKS = ["ListOffsets, latest", "Fetch", "OffsetFetch"]


class SlowDisk(Barnabas):
    """A broker whose syncs take 2 ms."""

    def command(self) -> list[str]:
        pairs = [f"{key}={value}" for key, value in self.overrides.items()]
        module = "compat_tests.pipelining.slow_broker"
        return [sys.executable, "-m", module, "2", str(self.data_dir), str(self.port), *pairs]


def has_answer(asked: Any) -> bool:
    request = asked[0] if isinstance(asked, tuple) else asked
    return not (isinstance(request, ProduceRequest) and request.acks == 0)


def waited(pipe: Pipe, names: Names, change: str, look: str) -> Any:
    """The read's answer after the change's. If the change has no answer, another request's answer is awaited."""
    asked = CHANGES[change](names)
    pipe.send(asked)
    if has_answer(asked):
        pipe.receive()
    else:
        pipe.ask(*LOOKS["ListOffsets, latest"](names))  # type: ignore[misc]
    pipe.send(LOOKS[look](names))
    return plain(pipe.receive(), names)


def pipelined(pipe: Pipe, names: Names, change: str, look: str) -> Any:
    """The read's answer when both were sent at once."""
    asked = CHANGES[change](names)
    pipe.send(asked, LOOKS[look](names))
    if has_answer(asked):
        pipe.receive()
    return plain(pipe.receive(), names)


def differences(server: Server, pairs: list[tuple[str, str]]) -> tuple[list[str], int]:
    """The pairs whose read differs when it is pipelined, and the number of reads that see their change."""
    wrong, seen = [], 0
    with Pipe(server.port) as pipe:
        runs = iter(prepare(pipe, 2 * len(pairs) + len(LOOKS)))
        before = {}
        for look in LOOKS:
            names = next(runs)
            pipe.send(LOOKS[look](names))
            before[look] = plain(pipe.receive(), names)
        for change, look in pairs:
            expected = waited(pipe, next(runs), change, look)
            found = pipelined(pipe, next(runs), change, look)
            seen += expected != before[look]
            if found != expected:
                wrong.append(f"{change} -> {look}:\n  waited:    {expected}\n  pipelined: {found}")
    return wrong, seen


@pytest.mark.parametrize("policy", [pytest.param("fsync", marks=pytest.mark.long), "page cache"])
def test_every_look_sees_every_change_before_it_on_its_connection(
    policy: str, tmp_path: Path, request: pytest.FixtureRequest, new_server: NewServer
) -> None:
    settings = {"log.flush.interval.messages": "1" if policy == "fsync" else PAGE_CACHE}
    if request.config.getoption("--peer"):
        pairs, least = list(product(OF_RECORDS, RECORD_LOOKS)), 6
        wrong, seen = differences(new_server(settings), pairs)
    else:
        pairs, least = list(product(CHANGES, LOOKS)), 80
        with SlowDisk(tmp_path, settings) as server:
            wrong, seen = differences(server, pairs)
            assert not server.errors()
    print(f"{policy}: {len(pairs)} pairs, {seen} of them with a change that the look sees, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)
    assert seen > least, "too few looks see their change for this to prove anything"
