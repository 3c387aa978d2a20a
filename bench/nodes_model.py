"""What many nodes would do on as many cores, by a simulation: `python -m bench.nodes_model`.

    python -m bench.nodes_model [--nodes 1 2 8 16 64] [--changes 0 1 10 100] [--seconds 5]

For machines with fewer cores than nodes. Each node is one event loop that does its jobs in their order. Producers wait
for each answer, and send the next request at once, so every node always has work. Changes of the metadata come at
random times:

    client -> owner: the change -> each other node applies it and fetches again -> owner -> client

The costs of the jobs are measured by `python -m bench.nodes` on a real machine: CPU for a request, CPU of the owner for
a change, and the rest of the CPU for a change by the number of the other nodes. The disk and the clients cost nothing
here, so the rates are those of the nodes alone.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.wire.table import table

Job = tuple[float, Callable[[], None]]


@dataclass(frozen=True)
class Costs:
    """CPU seconds: of a request, of a change for the owner and for another node, of one fetch for the owner."""

    request: float = 28e-6
    change: float = 1.3e-3
    apply: float = 0.4e-3
    fetch: float = 0.03e-3


@dataclass
class Told:
    """What happened in the simulated time: requests and changes answered, and how long each change took, seconds."""

    seconds: float
    requests: int = 0
    busy: dict[int, float] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)


class _Loop:
    """The event loop of a node: jobs one after the other."""

    def __init__(self, world: _World, node: int) -> None:
        self._world, self._node = world, node
        self._jobs: deque[Job] = deque()
        self._is_busy = False

    def do(self, cost: float, then: Callable[[], None]) -> None:
        """Do a job when all before it are done, and call `then`."""
        self._jobs.append((cost, then))
        if not self._is_busy:
            self._next()

    def _next(self) -> None:
        self._is_busy = bool(self._jobs)
        if self._is_busy:
            cost, then = self._jobs.popleft()
            busy = self._world.told.busy
            busy[self._node] = busy.get(self._node, 0.0) + cost
            self._world.at(cost, lambda: self._done(then))

    def _done(self, then: Callable[[], None]) -> None:
        then()
        self._next()


class _World:
    def __init__(self, seconds: float) -> None:
        self.told = Told(seconds)
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, delay: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, call))

    def run(self) -> None:
        while self._events and self._events[0][0] <= self.told.seconds:
            self.now, _, call = heapq.heappop(self._events)
            call()


def simulated(
    nodes: int, changes: float, *, seconds: float = 5.0, producers: int = 64, costs: Costs = Costs(), seed: int = 0
) -> Told:
    """Run `nodes` nodes with `producers` each, and `changes` of the metadata a second."""
    world, chance = _World(seconds), random.Random(seed)
    loops = [_Loop(world, node) for node in range(nodes)]

    def answered(loop: _Loop) -> None:
        world.told.requests += 1
        loop.do(costs.request, lambda: answered(loop))

    def change() -> None:
        world.at(chance.expovariate(changes), change)
        began, left = world.now, nodes - 1

        def fetched() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                world.told.times.append(world.now - began)

        def made() -> None:
            for other in loops[1:]:
                other.do(costs.apply, lambda: loops[0].do(costs.fetch, fetched))
            if nodes == 1:
                fetched()

        loops[0].do(costs.change, made)

    for loop in loops:
        for _ in range(producers):
            loop.do(costs.request, lambda loop=loop: answered(loop))  # type: ignore[misc]
    if changes:
        world.at(chance.expovariate(changes), change)
    world.run()
    return world.told


def main() -> None:
    """Simulate each number of nodes with each rate of changes, and print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--nodes", nargs="+", type=int, default=[1, 2, 8, 16, 64])
    options.add_argument("--changes", nargs="+", type=float, default=[0, 1, 10, 100])
    options.add_argument("--seconds", type=float, default=5.0)
    args = options.parse_args()
    rows = []
    for count in args.nodes:
        for changes in args.changes:
            told = simulated(count, changes, seconds=args.seconds)
            p50 = f"{statistics.median(told.times) * 1000:.1f}" if told.times else "-"
            p99 = f"{sorted(told.times)[int(len(told.times) * 0.99)] * 1000:.1f}" if told.times else "-"
            rows.append((count, f"{changes:g}", f"{told.requests / args.seconds:,.0f}", p50, p99))
    print(table(("NODES", "CHANGES/S", "REQUESTS/S", "CHANGE P50 MS", "P99 MS"), rows))


if __name__ == "__main__":
    main()
