"""Half a minute of what `make fuzz` does for ten."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.fuzz.run import fuzz


@pytest.mark.parametrize("seed", [4])
def test_random_requests_break_nothing(tmp_path: Path, seed: int) -> None:
    print(fuzz(tmp_path, 30, seed))
