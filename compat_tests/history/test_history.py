"""Concurrent transactional and plain clients, and a broker that is ill-treated: their history has no anomaly."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.history.faults import ShiftedBarnabas
from compat_tests.history.run import SETTINGS, SMALL_SEGMENTS, make_history


def clean(folder: Path, seed: int, seconds: float, most_kills: int = 1 << 30) -> str:
    """A run without an anomaly; what it consisted of."""
    server = ShiftedBarnabas(folder, {**SETTINGS, **SMALL_SEGMENTS})
    server.mount()  # where that is not allowed there is no full disk, and all else
    try:
        with server:
            _, result = make_history(server, seed, seconds, most_kills=most_kills)
    finally:
        server.unmount()
    assert not result.failures, result.failures
    assert not result.anomalies, result.anomalies[:20]
    assert result.outcomes["ok"] > 10 * seconds
    assert result.faults["kill"]
    return result.summary()


@pytest.mark.parametrize("seed", [1, 2])
def test_half_a_minute(tmp_path: Path, seed: int) -> None:
    print(clean(tmp_path, seed, 30))


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_an_hour_with_a_thousand_kills(tmp_path: Path) -> None:
    print(clean(tmp_path, 7, 3600, most_kills=1000))
