"""The checker finds each anomaly where it is planted, and nothing in a history that a log explains."""

from __future__ import annotations

import random

import pytest

from compat_tests.history.checker import Op, Poll, Send, check, check_pipeline

FINAL = {"a": [(0, 1), (2, 2), (4, 3), (6, 4)], "b": [(0, 1), (2, 2), (4, 4)]}


def transaction(value: int, outcome: str = "ok", keys: str = "ab", offset: int | None = None) -> Op:
    sends = [Send(key, value, offset) for key in keys]
    return Op(f"p{value % 2}", outcome, sends)  # type: ignore[arg-type]


def polled(key: str, *records: tuple[int, int], process: str = "c", restarted: bool = False) -> Op:
    return Op(process, "ok", polls=[Poll(key, list(records))], restarted=restarted)


GOOD = [
    transaction(1),
    transaction(2, "unknown"),
    transaction(3, keys="a", offset=4),
    transaction(4),
    transaction(5, "aborted"),
    transaction(6, "unknown"),
    polled("a", (0, 1), (2, 2)),
    polled("a", (4, 3)),
    polled("b", (0, 1)),
    polled("a", (0, 1), restarted=True),
    Op("u", "ok", polls=[Poll("a", [(0, 1), (7, 5)])], committed_only=False),
]


def kinds(ops: list[Op], final: dict[str, list[tuple[int, int]]], *, interleaving: bool = True) -> set[str]:
    return {anomaly.kind for anomaly in check(ops, final, interleaving=interleaving)}


def test_a_history_that_a_log_explains_has_no_anomaly() -> None:
    assert check(GOOD, FINAL, interleaving=False) == []


PLANTED = [
    ("lost write", [*GOOD, transaction(7, keys="b")], FINAL),
    ("duplicate write", GOOD, {**FINAL, "a": [*FINAL["a"], (9, 3)]}),
    ("duplicate write", [*GOOD, polled("b", (3, 4))], FINAL),
    ("two values", [*GOOD, polled("b", (0, 4), process="d")], FINAL),
    ("aborted read", [*GOOD, polled("b", (3, 5), process="d")], FINAL),
    ("aborted read", GOOD, {**FINAL, "a": [*FINAL["a"], (9, 5)]}),
    ("unsent read", [*GOOD, polled("b", (3, 99), process="d")], FINAL),
    ("unsent read", GOOD, {**FINAL, "a": [*FINAL["a"], (9, 99)]}),
    ("torn transaction", GOOD, {**FINAL, "a": [*FINAL["a"], (9, 6)]}),
    ("nonmonotonic poll", [*GOOD, polled("a", (6, 4)), polled("a", (2, 2))], FINAL),
    ("nonmonotonic poll", [*GOOD, polled("b", (4, 4), (2, 2), process="d")], FINAL),
    ("skipped poll", [*GOOD, polled("a", (2, 2), (6, 4), process="d")], FINAL),
    ("skipped poll", [*GOOD, polled("a", (2, 2), process="d"), polled("a", (6, 4), process="d")], FINAL),
]


@pytest.mark.parametrize(("kind", "ops", "final"), PLANTED, ids=[f"{n}-{case[0]}" for n, case in enumerate(PLANTED)])
def test_a_planted_anomaly_is_found(kind: str, ops: list[Op], final: dict[str, list[tuple[int, int]]]) -> None:
    assert kind in kinds(ops, final)


def test_a_write_cycle_is_found_where_transactions_may_not_overlap() -> None:
    ops = [transaction(1), transaction(2)]
    crossed = {"a": [(0, 1), (1, 2)], "b": [(0, 2), (1, 1)]}
    assert kinds(ops, crossed) == set()
    assert kinds(ops, crossed, interleaving=False) == {"write cycle"}


def test_a_write_read_cycle_is_found() -> None:
    """Each transaction has read a value of the other, so neither can have been visible first."""
    one = Op("p1", "ok", [Send("a", 1)], [Poll("b", [(0, 2)])])
    other = Op("p2", "ok", [Send("b", 2)], [Poll("a", [(0, 1)])])
    final = {"a": [(0, 1)], "b": [(0, 2)]}
    assert kinds([one, other], final) == {"write-read cycle"}
    assert kinds([one, Op("p2", "ok", [Send("b", 2)])], final) == set()


def test_a_cycle_of_many_transactions_is_found() -> None:
    """Each transaction reads a value of the next one; the last reads a value of the first."""
    count = 2000
    ops = [Op(f"p{n}", "ok", [Send("a", n)], [Poll("a", [((n + 1) % count, (n + 1) % count)])]) for n in range(count)]
    final = {"a": [(n, n) for n in range(count)]}
    assert "write-read cycle" in kinds(ops, final)
    assert "write-read cycle" not in kinds([*ops[:-1], Op("p", "ok", [Send("a", count - 1)])], final)


@pytest.mark.parametrize("seed", range(20))
def test_a_random_history_of_a_log_has_no_anomaly(seed: int) -> None:
    """Transactions run one after the other over an honest log; consumers read the committed values in pieces."""
    rng = random.Random(seed)
    final: dict[str, list[tuple[int, int]]] = {"a": [], "b": [], "c": []}
    ends = dict.fromkeys(final, 0)
    read = {(process, key): 0 for process in "xy" for key in final}
    ops = []
    for value in range(200):
        outcome = rng.choice(["ok", "ok", "aborted", "unknown"])
        happened = outcome == "ok" or (outcome == "unknown" and rng.random() < 0.5)
        sends = []
        for key in rng.sample("abc", rng.randint(1, 3)):
            sends.append(Send(key, value, ends[key] if outcome == "ok" else None))
            if happened:
                final[key].append((ends[key], value))
            ends[key] += rng.randint(1, 3)
        ops.append(Op("p", outcome, sends))  # type: ignore[arg-type]
        process, key = rng.choice("xy"), rng.choice("abc")
        start = read[process, key]
        count = rng.randint(0, 4)
        ops.append(Op(process, "ok", polls=[Poll(key, final[key][start : start + count])]))
        read[process, key] = min(start + count, len(final[key]))
    assert check(ops, final, interleaving=False) == []


def test_a_pipeline_that_loses_repeats_or_invents_is_found() -> None:
    source = {"a": [(0, 1), (1, 2), (3, 3)]}
    assert check_pipeline(source, {"a": [(0, 1), (5, 2), (7, 3)]}) == []
    for target, kind in (
        ([(0, 1), (1, 3)], "not transformed"),
        ([(0, 1), (1, 2), (2, 2), (3, 3)], "transformed twice"),
        ([(0, 1), (1, 2), (2, 3), (3, 4)], "transformed from nothing"),
        ([(0, 2), (1, 1), (2, 3)], "transformed out of order"),
    ):
        assert {anomaly.kind for anomaly in check_pipeline(source, {"a": target})} == {kind}
