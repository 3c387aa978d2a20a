"""Every scenario with this client."""

import pytest

from compat_tests.conftest import Play
from compat_tests.java.driver import JavaDriver
from compat_tests.scenarios import SCENARIOS, Scenario

DRIVER = JavaDriver


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario(scenario: Scenario, play: Play) -> None:
    play(scenario)
