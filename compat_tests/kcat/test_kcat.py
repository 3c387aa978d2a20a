"""Every scenario with this client."""

import pytest

from compat_tests.conftest import Play
from compat_tests.kcat.driver import KcatDriver
from compat_tests.scenarios import SCENARIOS, Scenario

DRIVER = KcatDriver


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario(scenario: Scenario, play: Play) -> None:
    play(scenario)
