"""Which connection without a login is closed to make room for a new one, compared with a plain model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.net import strangers
from barnabas.broker.net.strangers import Strangers


class Caller:
    """A connection from an address."""

    def __init__(self, origin: str) -> None:
        self.origin, self.is_closed = origin, False

    def close(self, reason: str | None = None) -> None:
        self.is_closed = True


@given(
    calls=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), max_size=80),
    connections=st.integers(16, 40),
)
def test_the_first_of_the_client_with_most_makes_room(calls: list[tuple[str, int]], connections: int) -> None:
    room, here = Strangers(), list[Caller]()
    for origin, leaves in calls:
        if leaves >= 7 and here:  # one of them logs in, or leaves
            room.remove(here.pop(leaves % len(here)))
        caller = Caller(origin)
        room.add(caller, connections)
        here.append(caller)
        closed = [each for each in here if each.is_closed]
        here = [each for each in here if not each.is_closed]
        assert len(room) == len(here) <= connections // strangers.PART
        for each in closed:
            mine = sum(other.origin == each.origin for other in here) + 1 - (each.origin == origin)
            assert all(sum(o.origin == other.origin for o in here) <= mine + (other.origin == origin) for other in here)
        assert not caller.is_closed


def test_whoever_has_thousands_is_in_its_own_way() -> None:
    room, honest = Strangers(), Caller("honest")
    room.add(honest, 1000)
    hoarded = [Caller("hoarder") for _ in range(2000)]
    for each in hoarded:
        room.add(each, 1000)
    assert not honest.is_closed
    assert [each.is_closed for each in hoarded].count(False) == 249
    assert not any(each.is_closed for each in hoarded[-249:])


@pytest.mark.parametrize(("connections", "most"), [(1, 4), (100, 25), (1 << 20, 4096)])
def test_how_many_there_may_be(connections: int, most: int) -> None:
    room = Strangers()
    for number in range(5000):
        room.add(Caller(str(number % 7)), connections)
    assert len(room) == most
