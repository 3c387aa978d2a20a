"""The fuzzing of `make fuzz`, for some seconds instead of ten minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.fuzz.run import fuzz


@pytest.mark.parametrize(("seed", "seconds"), [(5, 5), pytest.param(4, 30, marks=pytest.mark.long)])
def test_random_requests_break_nothing(tmp_path: Path, seed: int, seconds: float) -> None:
    print(fuzz(tmp_path, seconds, seed))
