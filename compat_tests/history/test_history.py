"""Concurrent transactional and plain clients, and a broker with faults: their history has no anomaly."""

from __future__ import annotations

import itertools
import multiprocessing
import shutil
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from compat_tests.history.faults import KINDS, NODE_KINDS, ShiftedBarnabas, ShiftedNodes
from compat_tests.history.run import (
    JAVA_PRODUCER,
    JAVA_TRANSFORMER,
    SETTINGS,
    SMALL_SEGMENTS,
    Result,
    make_history,
)
from compat_tests.tools import missing

MOSTLY_KILLS = ("kill",) * 6 + ("pause", "full disk", "clock")


def clean(folder: Path, seed: int, seconds: float, kinds: tuple[str, ...] = KINDS) -> Result:
    """A run without an anomaly."""
    server = ShiftedBarnabas(folder, {**SETTINGS, **SMALL_SEGMENTS})
    server.mount()  # without the right to mount a disk, the disk-full fault is left out
    try:
        with server:
            _, result = make_history(server, seed, seconds, kinds=kinds)
    finally:
        server.unmount()
    assert not result.failures, result.failures
    assert not result.anomalies, result.anomalies[:20]
    assert result.outcomes["ok"] > 10 * seconds
    assert result.faults["kill"] + result.faults["kill on full disk"]
    return result


def clean_nodes(folder: Path, seed: int, seconds: float, *, java: bool = False) -> Result:
    """A run of three nodes: one at a time is killed or paused, or their disk is full.

    It has no anomaly, and logs no errors except those of a full disk.
    """
    server = ShiftedNodes(folder, {**SETTINGS, **SMALL_SEGMENTS})
    server.mount()  # without the right to mount a disk, the faults of a full disk are left out
    try:
        with server:
            ops, result = make_history(server, seed, seconds, kinds=NODE_KINDS, java=java)
    finally:
        server.unmount()
    assert not result.failures, result.failures
    assert not result.anomalies, result.anomalies[:20]
    assert not result.log_errors, result.log_errors[:20]
    assert not result.stuck
    assert result.outcomes["ok"] > 10 * seconds
    assert _nodes_killed(result.faults)
    assert result.moves["move"]
    if java:
        assert any(op.process == JAVA_PRODUCER and op.outcome == "ok" for op in ops)
        assert result.written[JAVA_TRANSFORMER]
    return result


def _nodes_killed(faults: Counter[str]) -> int:
    return faults["kill node"] + faults["kill a mover"] + faults["kill node on full disk"]


@pytest.mark.parametrize(
    ("seed", "seconds"),
    [(1, 5), pytest.param(1, 30, marks=pytest.mark.long), pytest.param(2, 30, marks=pytest.mark.slow)],
)
def test_some_seconds(tmp_path: Path, seed: int, seconds: float) -> None:
    print(clean(tmp_path, seed, seconds).summary())


@pytest.mark.long
@pytest.mark.parametrize("seconds", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_nodes_that_are_killed_and_partitions_that_move(tmp_path: Path, seconds: float) -> None:
    print(clean_nodes(tmp_path, 3, seconds).summary())


@pytest.mark.long
@pytest.mark.parametrize("seconds", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_javas_clients_among_the_others(tmp_path: Path, seconds: float) -> None:
    if reason := missing("java"):
        pytest.skip(reason)
    print(clean_nodes(tmp_path, 4, seconds, java=True).summary())


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_five_hundred_kills_of_nodes(tmp_path: Path) -> None:
    """Run one history after the other, as the test below does."""
    faults = Counter[str]()
    for seed in itertools.count(2000):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            faults += process.submit(clean_nodes, tmp_path / str(seed), seed, 60).result().faults
        print(f"seed {seed}: {dict(faults)}", flush=True)
        shutil.rmtree(tmp_path / str(seed))
        if _nodes_killed(faults) >= 500:
            return


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_an_hour_with_a_thousand_kills(tmp_path: Path) -> None:
    """Run one history after the other, each small enough for the checker's memory.

    Each runs in a process of its own: librdkafka damaged the heap of one process after some 2,400 producers.
    """
    operations, faults = 0, Counter[str]()
    for seed in itertools.count(1000):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            result = process.submit(clean, tmp_path / str(seed), seed, 120, MOSTLY_KILLS).result()
        faults += result.faults
        operations += result.outcomes.total()
        print(f"seed {seed}: {operations} operations, {dict(faults)}", flush=True)
        shutil.rmtree(tmp_path / str(seed))
        if faults["kill"] >= 1000:
            return
