"""The anomalies of a history of producers and consumers, as in Jepsen's workload for Kafka (list-append per key).

A key is a partition: a list to which transactions append values, each value once. A transaction's sends and polls are
one `Op`. The offsets that producers and consumers see give the order of each list, and so the order of transactions.
`check` names every anomaly:

    lost write           a value that is acknowledged, or the input of an acknowledged transformation, is never read
    duplicate write      one value has two offsets
    two values           one offset has two values
    aborted read         a read_committed consumer has read a value of an aborted transaction
    unsent read          a value was read that nobody has sent
    torn transaction     some of its values were read, others were not
    nonmonotonic poll    a consumer goes back though its position was not reset
    skipped poll         a consumer has skipped a value of the log
    write cycle          two transactions each wrote before the other (G0)
    write-read cycle     a cycle of transactions, each of which depends on the next by a write or a read (G1c)

Kafka promises atomic visibility, not that transactions do not interleave: two transactions that write to the same two
partitions at the same time may have a different order in each (a write cycle). The caller says whether that counts as
an anomaly.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

Outcome = Literal["ok", "aborted", "unknown"]


class Send(msgspec.Struct, frozen=True):
    """`offset` is None if the producer did not learn it."""

    key: str
    value: int
    offset: int | None = None


class Poll(msgspec.Struct, frozen=True):
    """The records of one poll of one key, in their order, as (offset, value)."""

    key: str
    records: list[tuple[int, int]]


class Op(msgspec.Struct, frozen=True):
    """One operation. `committed_only`: it reads committed records only; `restarted`: it started reading again."""

    process: str
    outcome: Outcome
    sends: list[Send] = []
    polls: list[Poll] = []
    committed_only: bool = True
    restarted: bool = False


class Anomaly(msgspec.Struct, frozen=True):
    kind: str
    key: str
    detail: str


Final = Mapping[str, Sequence[tuple[int, int]]]


def check(ops: Sequence[Op], final: Final, *, interleaving: bool = True) -> list[Anomaly]:
    """Every anomaly of a history; `final` has the records that a read_committed consumer sees of each key in the end.

    With `interleaving`, transactions may overlap, and write cycles are not anomalies.
    """
    return [
        *_offsets(ops, final),
        *_values(ops, final),
        *_transactions(ops, final),
        *_polls(ops, final),
        *_cycles(ops, final, interleaving),
    ]


def _sent(ops: Iterable[Op]) -> dict[tuple[str, int], Op]:
    return {(send.key, send.value): op for op in ops for send in op.sends}


def _seen(ops: Iterable[Op], final: Final) -> Iterable[tuple[str, int, int]]:
    """Every key, offset and value that a producer or consumer has seen."""
    for op in ops:
        for send in op.sends:
            if send.offset is not None and op.outcome == "ok":
                yield send.key, send.offset, send.value
        for poll in op.polls:
            for offset, value in poll.records:
                yield poll.key, offset, value
    for key, records in final.items():
        for offset, value in records:
            yield key, offset, value


def _offsets(ops: Sequence[Op], final: Final) -> Iterable[Anomaly]:
    values: dict[tuple[str, int], set[int]] = defaultdict(set)
    offsets: dict[tuple[str, int], set[int]] = defaultdict(set)
    for key, offset, value in _seen(ops, final):
        values[key, offset].add(value)
        offsets[key, value].add(offset)
    for (key, offset), found in values.items():
        if len(found) > 1:
            yield Anomaly("two values", key, f"offset {offset} has {sorted(found)}")
    for (key, value), places in offsets.items():
        if len(places) > 1:
            yield Anomaly("duplicate write", key, f"{value} is at offsets {sorted(places)}")


def _values(ops: Sequence[Op], final: Final) -> Iterable[Anomaly]:
    there = {(key, value) for key, records in final.items() for _, value in records}
    sent = _sent(ops)
    for (key, value), op in sent.items():
        if op.outcome == "ok" and (key, value) not in there:
            yield Anomaly("lost write", key, f"{value} of {op.process} was acknowledged")
    reads = [(key, value, "in the end") for key, value in sorted(there)]
    reads += [
        (poll.key, value, f"by {op.process}")
        for op in ops
        if op.committed_only
        for poll in op.polls
        for _, value in poll.records
    ]
    told = set()
    for key, value, by in reads:
        writer = sent.get((key, value))
        if (key, value) in told:
            continue
        if writer is None:
            told.add((key, value))
            yield Anomaly("unsent read", key, f"{value}, {by}")
        elif writer.outcome == "aborted":
            told.add((key, value))
            yield Anomaly("aborted read", key, f"{value} of {writer.process}, {by}")


def _transactions(ops: Sequence[Op], final: Final) -> Iterable[Anomaly]:
    there = {(key, value) for key, records in final.items() for _, value in records}
    for op in ops:
        found = [(send.key, send.value) in there for send in op.sends]
        if op.outcome == "unknown" and any(found) and not all(found):
            values = [f"{send.key}: {send.value}" for send in op.sends]
            yield Anomaly("torn transaction", op.sends[0].key, f"of {', '.join(values)} only {sum(found)} are there")


def _polls(ops: Sequence[Op], final: Final) -> Iterable[Anomaly]:
    """Within a process, the offsets of a key grow, and no value of the log is skipped."""
    places = {key: [offset for offset, _ in records] for key, records in final.items()}
    index = {key: {offset: at for at, offset in enumerate(found)} for key, found in places.items()}
    last: dict[tuple[str, str], int] = {}
    for op in ops:
        if op.restarted:
            last = {where: offset for where, offset in last.items() if where[0] != op.process}
        for poll in op.polls:
            where = op.process, poll.key
            for offset, value in poll.records:
                before = last.get(where)
                last[where] = offset
                if before is None:
                    continue
                if offset <= before:
                    yield Anomaly("nonmonotonic poll", poll.key, f"{op.process} sees {offset} ({value}) after {before}")
                    continue
                at, previous = index[poll.key].get(offset), index[poll.key].get(before)
                if op.committed_only and at is not None and previous is not None and at > previous + 1:
                    missed = places[poll.key][previous + 1 : at]
                    yield Anomaly("skipped poll", poll.key, f"{op.process} sees {offset} after {before}, not {missed}")


# -- cycles ----------------------------------------------------------------------------------------------------------


def _cycles(ops: Sequence[Op], final: Final, interleaving: bool) -> Iterable[Anomaly]:
    """The cycles of transactions whose writes are in the log, by the order of writes and by what each has read."""
    number = {id(op): at for at, op in enumerate(ops)}
    writer = {where: number[id(op)] for where, op in _sent(ops).items()}
    writes: dict[int, set[int]] = defaultdict(set)
    reads: dict[int, set[int]] = defaultdict(set)
    for key, records in final.items():
        by = [writer[key, value] for _, value in records if (key, value) in writer]
        for one, other in itertools.pairwise(by):
            if one != other:
                writes[one].add(other)
    for op in ops:
        for poll in op.polls if op.outcome != "aborted" else ():
            for _, value in poll.records:
                source = writer.get((poll.key, value))
                if source is not None and source != number[id(op)]:
                    reads[source].add(number[id(op)])
    if not interleaving:
        yield from _named("write cycle", ops, _components(writes))
    together = reads if interleaving else {at: writes[at] | reads[at] for at in {*writes, *reads}}
    pure = {frozenset(part) for part in _components(writes)}
    yield from _named("write-read cycle", ops, [part for part in _components(together) if frozenset(part) not in pure])


def _named(kind: str, ops: Sequence[Op], parts: Iterable[list[int]]) -> Iterable[Anomaly]:
    for part in parts:
        members = [f"{ops[at].process} ({ops[at].sends[0].value if ops[at].sends else 'reads'})" for at in sorted(part)]
        yield Anomaly(kind, "", f"{len(part)} transactions: {', '.join(members[:10])}")


def _components(edges: Mapping[int, set[int]]) -> list[list[int]]:
    """The strongly connected components with more than one member (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found = []
    for root in list(edges):
        if root in index:
            continue
        work = [(root, iter(sorted(edges.get(root, ()))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            at, following = work[-1]
            for then in following:
                if then not in index:
                    index[then] = low[then] = len(index)
                    stack.append(then)
                    on_stack.add(then)
                    work.append((then, iter(sorted(edges.get(then, ())))))
                    break
                if then in on_stack:
                    low[at] = min(low[at], index[then])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[at])
                if low[at] == index[at]:
                    part = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        part.append(member)
                        if member == at:
                            break
                    if len(part) > 1:
                        found.append(part)
    return found


# -- the pipeline ----------------------------------------------------------------------------------------------------


def check_pipeline(source: Final, target: Final) -> list[Anomaly]:
    """Check a transformation that writes each value of its source once: no value is missing or doubled."""
    anomalies = []
    for key, records in source.items():
        wanted = [value for _, value in records]
        got = [value for _, value in target.get(key, ())]
        seen: set[int] = set()
        for value in got:
            if value in seen:
                anomalies.append(Anomaly("transformed twice", key, str(value)))
            seen.add(value)
        anomalies += [Anomaly("not transformed", key, str(value)) for value in wanted if value not in seen]
        strange = seen - set(wanted)
        anomalies += [Anomaly("transformed from nothing", key, str(value)) for value in sorted(strange)]
        if not anomalies and got != wanted:
            anomalies.append(Anomaly("transformed out of order", key, f"{got[:20]}"))
    return anomalies
