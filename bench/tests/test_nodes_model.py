"""The simulation of many nodes against what can be reckoned by hand."""

from __future__ import annotations

import pytest

from bench.nodes_model import Costs, simulated

COSTS = Costs(request=0.001, change=0.010, apply=0.005, fetch=0.002)


@pytest.mark.parametrize("nodes", [1, 3])
def test_without_changes_each_node_answers_as_fast_as_it_can(nodes: int) -> None:
    told = simulated(nodes, 0, seconds=1, producers=4, costs=COSTS)
    assert told.requests == pytest.approx(nodes * 1000, abs=nodes)
    assert told.times == []


def test_a_change_takes_the_time_of_the_owner_of_the_slowest_node_and_of_its_fetches() -> None:
    idle = simulated(4, 0.2, seconds=20, producers=0, costs=COSTS)
    assert idle.times
    alone = COSTS.change + COSTS.apply + 3 * COSTS.fetch
    assert min(idle.times) == pytest.approx(alone)


def test_what_changes_cost_is_missing_for_requests() -> None:
    told = simulated(3, 5, seconds=20, producers=4, costs=COSTS)
    for node in range(3):
        assert told.busy[node] == pytest.approx(20, abs=0.02), "a node always has work"
    changes = len(told.times)
    assert changes > 50
    lost = changes * (COSTS.change + 2 * COSTS.apply + 2 * COSTS.fetch) / COSTS.request
    assert told.requests == pytest.approx(3 * 20_000 - lost, abs=100)
