"""Requests of one connection take effect in order: the rule itself, and every pair of APIs over the wire."""

from __future__ import annotations

from barnabas.broker.net.order import GROUPS, MEMBERS, METADATA, NOTHING, OFFSETS, RECORDS, RequestOrder
from barnabas.broker.registry import APIS


class Request:
    """An open request with the given effects."""

    def __init__(self, uses: int = NOTHING, changes: int = NOTHING, *, is_done: bool = True) -> None:
        self.uses, self.changes, self.is_done, self.is_open = uses, changes, is_done, True


PRODUCE, LIST = Request(METADATA, RECORDS), Request(METADATA | RECORDS)
CREATE = Request(METADATA, METADATA, is_done=False)


def test_who_looks_waits_until_the_change_is_answered() -> None:
    order = RequestOrder()
    produce = Request(METADATA, RECORDS)
    order.add(produce, produce)
    assert order.holds(LIST)
    produce.is_open = False
    assert not order.holds(LIST)


def test_changes_that_are_made_in_order_do_not_wait_for_each_other() -> None:
    order = RequestOrder()
    order.add(PRODUCE, PRODUCE)
    assert not order.holds(PRODUCE)


def test_what_has_not_happened_yet_holds_back_whoever_would_see_the_difference() -> None:
    order = RequestOrder()
    create = Request(METADATA, METADATA, is_done=False)
    order.add(create, create)
    assert order.holds(LIST)
    assert order.holds(PRODUCE)
    assert order.holds(CREATE)
    assert not order.holds(Request(OFFSETS, OFFSETS))
    look = RequestOrder()
    reading = Request(RECORDS, is_done=False)
    look.add(reading, reading)
    assert look.holds(PRODUCE), "a look that has not begun must not see what comes after it"
    assert not look.holds(LIST)


def test_what_changes_nothing_holds_nobody() -> None:
    order = RequestOrder()
    order.add(LIST, LIST)
    assert not order.holds(CREATE)


def test_answered_requests_are_forgotten_though_nobody_waits_for_them() -> None:
    order = RequestOrder()
    for _ in range(10_000):
        produce = Request(METADATA, RECORDS)
        order.add(produce, produce)
        produce.is_open = False
    assert len(order._open) <= 200


def test_members_requests_do_not_wait_for_a_rebalance_and_operators_do() -> None:
    by_name = {api.name: api for api in APIS.values()}
    order = RequestOrder()
    order.add(Request(), by_name["JoinGroup"])
    for name in ("Heartbeat", "LeaveGroup", "SyncGroup", "JoinGroup", "OffsetCommit", "OffsetFetch", "Fetch"):
        assert not order.holds(by_name[name]), name
    for name in ("DescribeGroups", "ListGroups", "DeleteGroups"):
        assert order.holds(by_name[name]), name
    assert GROUPS & MEMBERS == NOTHING
