"""Every scenario with this client."""

import pytest

from compat_tests.conftest import Play
from compat_tests.java.driver import JavaDriver
from compat_tests.scenarios import SCENARIOS, Scenario

DRIVER = JavaDriver


#: With this client, each of these scenarios starts several JVMs.
LONG = {"admin_configs", "group_shares", "group_static", "group_two", "many_partitions", "topic_recreate"}
EACH = [
    pytest.param(scenario, marks=[pytest.mark.long] * (scenario.name in LONG), id=scenario.name)
    for scenario in SCENARIOS
]


@pytest.mark.parametrize("scenario", EACH)
def test_scenario(scenario: Scenario, play: Play) -> None:
    play(scenario)
