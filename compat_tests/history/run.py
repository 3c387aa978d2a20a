"""Make a history and check it: `python -m compat_tests.history.run --seconds 60 --seed 7 [--quiet]`.

`--peer` tests Apache Kafka; `--processes 3` tests three nodes, with partitions that move between them; `--java` adds
a transactional producer and a transformer with Kafka's Java library.

four transactional producers, two plain ones -> topic h -> readers (two read_committed, one not)
                                                h -> two transformers -> topic out
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.wire.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from compat_tests.apache_kafka import ApacheKafka
from compat_tests.broker_process import Server
from compat_tests.history.checker import Anomaly, Op, check, check_pipeline
from compat_tests.history.clients import (
    Client,
    JavaProducer,
    JavaTransformer,
    PlainProducer,
    Reader,
    TransactionalProducer,
    Transformer,
    Values,
    read_to_end,
)
from compat_tests.history.faults import KINDS, NODE_KINDS, Faults, ShiftedBarnabas, ShiftedNodes
from compat_tests.history.moves import Mover
from compat_tests.nodes.broker import Nodes
from compat_tests.waiting import until

TOPIC, TARGET, PARTITIONS = "h", "out", 3
JAVA_PRODUCER, JAVA_TRANSFORMER = "java producer", "java transformer"
SETTINGS = {
    "log.segment.bytes": str(1 << 20),  # the smallest segment that Kafka allows
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}
#: Seconds without a new value until the transformers count as stuck; seconds between two reads of their results.
STANDSTILL, LOOK = 90.0, 5.0
#: With these settings the coordinators' topics are compacted all the time, and segments roll between any two faults.
SMALL_SEGMENTS = {
    "log.segment.bytes": "100000",
    "offsets.topic.segment.bytes": "20000",
    "transaction.state.log.segment.bytes": "20000",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "1000",
}


class Result(msgspec.Struct):
    """The result of a run."""

    outcomes: Counter[str]
    polled: int
    transformed: int
    faults: Counter[str]
    anomalies: list[Anomaly]
    failures: list[str]
    log_errors: list[str]
    #: The records that each transformer knows to have written.
    written: dict[str, int]
    stuck: int = 0
    moves: Counter[str] = Counter()

    def summary(self) -> str:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        faults = ", ".join(f"{count} x {kind}" for kind, count in sorted(self.faults.items())) or "none"
        moves = ", ".join(f"{count} x {what}" for what, count in sorted(self.moves.items()))
        written = ", ".join(f"{count} by {name}" for name, count in self.written.items())
        return (
            f"operations: {counts}; {self.polled} records polled, {self.transformed} transformed ({written})\n"
            f"faults: {faults}\n"
            + (f"moves: {moves}\n" if moves else "")
            + f"anomalies: {len(self.anomalies) or 'none'}"
            + (f"; {self.stuck} clients stuck in their library" if self.stuck else "")
        )


def make_history(
    server: Server,
    seed: int,
    seconds: float,
    *,
    kinds: tuple[str, ...] = KINDS,
    most_kills: int = 1 << 30,
    java: bool = False,
) -> tuple[list[Op], Result]:
    """Let clients work on a running server, cause faults, wait until all clients are done, and check the history.

    With `java`, one more producer and one more transformer use Kafka's Java library.
    """
    admin = AdminClient({"bootstrap.servers": server.address})
    made = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (TOPIC, TARGET)])
    for future in made.values():
        future.result(30)
    values, where = Values(), (server.address, TOPIC, PARTITIONS, seed)
    writers: list[Client] = [TransactionalProducer(f"t{n}", *where, values) for n in range(4)]
    writers += [PlainProducer(f"p{n}", *where, values) for n in range(2)]
    readers = [Reader(f"r{n}", *where, committed_only=n < 2) for n in range(3)]
    through = (server.address, TOPIC, TARGET, PARTITIONS, seed)
    transformers: list[Transformer | JavaTransformer] = [Transformer(f"x{n}", *through) for n in range(2)]
    if java:
        writers.append(JavaProducer(JAVA_PRODUCER, *where))
        transformers.append(JavaTransformer(JAVA_TRANSFORMER, *through))
    mover = _mover(server, seed) if isinstance(server, Nodes) else None
    faults = Faults(server, seed, kinds, mover)
    faults.run(seconds, most=most_kills)
    if mover is not None:
        mover.all_arrive()
    for each in writers:
        each.finish(180)
    final = read_to_end(server.address, TOPIC, PARTITIONS)
    total = sum(map(len, final.values()))
    _wait_for_transformers(server.address, total, transformers)
    for worker in (*readers, *transformers):
        worker.finish(180)
    target = read_to_end(server.address, TARGET, PARTITIONS)
    renamed = {key.replace(TARGET, TOPIC): records for key, records in target.items()}
    ops = [op for client in (*writers, *readers) for op in client.ops]
    clients = [*writers, *readers, *transformers, *([] if mover is None else [mover])]
    result = Result(
        outcomes=Counter(op.outcome for op in ops if op.sends),
        polled=sum(len(poll.records) for op in ops for poll in op.polls),
        transformed=sum(map(len, target.values())),
        faults=faults.done,
        anomalies=[*check(ops, final), *check_pipeline(final, renamed)],
        failures=[failure for client in clients for failure in client.failures],
        log_errors=server.errors(),
        written={each.name: each.written for each in transformers},
        stuck=sum(each.is_stuck for each in transformers),
        moves=Counter() if mover is None else mover.done,
    )
    return ops, result


def _mover(server: Nodes, seed: int) -> Mover:
    """A mover of all partitions of the clients' and the coordinators' topics."""
    parts = [(topic, index) for topic in (TOPIC, TARGET) for index in range(PARTITIONS)]
    parts += [(OFFSETS_TOPIC, index) for index in range(int(SETTINGS["offsets.topic.num.partitions"]))]
    parts += [(TRANSACTIONS_TOPIC, index) for index in range(int(SETTINGS["transaction.state.log.num.partitions"]))]
    return Mover(server.servers.split(","), parts, seed)


def _wait_for_transformers(address: str, total: int, transformers: list[Transformer | JavaTransformer]) -> None:
    """Wait until all values are transformed. Raises AssertionError, with the threads' states, if they are stuck."""

    def written() -> int:
        """The number of acknowledged values; values whose commit was not answered are missing."""
        return sum(each.written for each in transformers)

    done, last = -1, time.monotonic()
    while True:
        said = written()
        before, done = done, sum(map(len, read_to_end(address, TARGET, PARTITIONS).values()))
        if done >= total:
            return
        now = time.monotonic()
        last = now if done > before else last
        if now > last + STANDSTILL:
            what = f"the transformers do not go on after {done} of {total} values"
            raise AssertionError("\n".join([what, *(each.where() for each in transformers)]))
        with contextlib.suppress(AssertionError):  # after a timeout, read again anyway
            until(lambda: written() - said >= total - done, "they have come to the end", LOOK)  # noqa: B023


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peer", action="store_true", help="Apache Kafka instead of barnabas, with kills and pauses")
    parser.add_argument("--quiet", action="store_true", help="no faults")
    parser.add_argument("--processes", type=int, default=1, help="nodes that are killed and paused, and have moves")
    parser.add_argument("--java", action="store_true", help="add clients with Kafka's Java library")
    parser.add_argument("--kills", type=int, default=1 << 30, help="stop after so many kills")
    parser.add_argument("--save", type=Path, help="write the history there, a line of JSON for each operation")
    parser.add_argument("--keep", type=Path, help="the broker's folder, which stays; else it is a temporary one")
    args = parser.parse_args()
    with contextlib.nullcontext(args.keep) if args.keep else tempfile.TemporaryDirectory() as folder:
        server: Server
        if args.peer:
            server = ApacheKafka(Path(folder), SETTINGS)
        elif args.processes > 1:
            server = ShiftedNodes(Path(folder), {**SETTINGS, **SMALL_SEGMENTS})
            server.processes = args.processes
        else:
            server = ShiftedBarnabas(Path(folder), {**SETTINGS, **SMALL_SEGMENTS})
        reason = server.mount() if isinstance(server, ShiftedBarnabas) else None
        if reason:
            print(f"no small disk, and so no full one: {reason}")
        try:
            with server:
                kinds = NODE_KINDS if args.processes > 1 else KINDS
                ops, result = make_history(
                    server,
                    args.seed,
                    args.seconds,
                    kinds=() if args.quiet else kinds,
                    most_kills=args.kills,
                    java=args.java,
                )
        finally:
            if isinstance(server, ShiftedBarnabas):
                if args.keep and server.is_small:  # its disk is gone after this
                    shutil.copytree(server.data_dir, args.keep / "data-kept", ignore=shutil.ignore_patterns("filler"))
                server.unmount()
    if args.save:
        args.save.write_bytes(b"".join(msgspec.json.encode(op) + b"\n" for op in ops))
    print(result.summary())
    for line in [*(f"{a.kind}: {a.key} {a.detail}" for a in result.anomalies[:50]), *result.failures]:
        print(line)
    for line in result.log_errors[:20]:
        print(line)
    errors = result.log_errors if args.processes > 1 else []  # one node may log errors: its disk was full
    return 1 if result.anomalies or result.failures or errors else 0


if __name__ == "__main__":
    sys.exit(main())
