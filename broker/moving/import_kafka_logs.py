"""`barnabas import-kafka-logs`: convert the data directory of a stopped Apache Kafka 4 node.

    Kafka's directory, never changed -> its content -> a plan -> a new directory with the same logs

The topics keep their ids, settings and leader epochs. The logs keep their files, so offsets, producers and transactions
stay the same, and so do the committed offsets of groups. See docs/kafka-directory.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator

import trio

from barnabas.broker.clock import Clock
from barnabas.broker.main import load_config
from barnabas.broker.metadata.image import METADATA_TOPIC, METADATA_TOPIC_ID
from barnabas.broker.metadata.records import frame
from barnabas.broker.moving.import_plan import Plan, plan_of, rows
from barnabas.broker.moving.kafka_metadata import read_metadata
from barnabas.broker.node import METADATA_LOG
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.keys import ConfigError
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import StorageError
from barnabas.storage.kafka_dir import KafkaDir
from barnabas.storage.takeover import Takeover
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.logfmt import told
from barnabas.wire.table import table
from barnabas.wire.text import visible
from barnabas.wire.types import Message

_BAR = 30
_DRAW_SECONDS = 0.2
_RECORDS_IN_A_BATCH = 500


def run(args: argparse.Namespace) -> int:
    """Returns exit status 1 for a directory that cannot be converted, after one line that says why."""
    try:
        config = load_config(None, args.data_dir, [], [])
        with KafkaDir.open(args.dir, _tell) as source:
            plan = plan_of(source, read_metadata(source))
            takeover = Takeover(source, str(config.data_dir), link=args.link)
            takeover.check()
            _show(plan, source)
            _check_room(takeover, plan)
            if args.dry_run:
                print(f"Nothing was written. {takeover.target} would take {_size(takeover, plan)} bytes.")
                return 0
            trio.run(_take, config, takeover, plan)
            _show_end(config, takeover)
    except (ConfigError, StorageError) as error:
        print(f"barnabas: {visible(str(error))}", file=sys.stderr)
        return 1
    return 0


def _tell(event: str, /, **fields: object) -> None:
    print(told(event, fields), file=sys.stderr)


def _size(takeover: Takeover, plan: Plan) -> int:
    return takeover.bytes_to_copy(plan.folders.values())


def _check_room(takeover: Takeover, plan: Plan) -> None:
    size, room = _size(takeover, plan), takeover.room()
    if size > room:
        raise StorageError(
            f"{takeover.target} would take {size} bytes, and {room} are free there: choose another disk, or --link "
            "to share closed segments on the same one"
        )


def _show(plan: Plan, source: KafkaDir) -> None:
    print(f"{source.path}: node {source.node_id} of cluster {source.cluster_id}, ", end="")
    print("stopped cleanly" if source.was_clean else "not stopped cleanly: the logs will be recovered")
    print(table(("topic", "id", "partitions", "segments", "bytes", "settings"), rows(plan)))
    if plan.left:
        print("\nNot taken over:")
        print(table(("what", "why"), plan.left))
    sys.stdout.flush()


def _show_end(config: BrokerConfig, takeover: Takeover) -> None:
    source = takeover.source
    node = "" if config.node_id == source.node_id else f" --override node.id={source.node_id}"
    print(f"{takeover.target} is ready: barnabas serve --data-dir {takeover.target}{node}")


async def _take(config: BrokerConfig, takeover: Takeover, plan: Plan) -> None:
    progress = _Progress(_size(takeover, plan))

    def config_of(topic: str) -> LogConfig:
        known = plan.image.topics.get(topic)
        return METADATA_LOG if topic == METADATA_TOPIC else config.log_config(known.configs if known else {})

    try:
        await takeover.run(
            plan.folders,
            plan.topic_ids(),
            lambda: list(_batches(plan.image.records())),
            METADATA_TOPIC_ID,
            config_of,
            copied=progress.copied,
            recovering=progress.recovering,
            tell=_tell,
        )
    finally:
        progress.end()


def _batches(records: Iterable[Message]) -> Iterator[bytes]:
    """Batches for a metadata log with this content."""
    now = Clock().wall_ms()
    gathered: list[Record] = []
    for record in records:
        gathered.append(Record(None, frame(record), now))
        if len(gathered) == _RECORDS_IN_A_BATCH:
            yield build_batch(gathered)
            gathered = []
    if gathered:
        yield build_batch(gathered)


class _Progress:
    """A progress bar, if there is a terminal."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._drawn = 0.0

    def copied(self, done: int, what: str) -> None:
        self._draw("copying", done, self._total, what)

    def recovering(self, done: int, total: int, what: str) -> None:
        self._draw("recovering", done, total, what)

    def _draw(self, verb: str, done: int, total: int, what: str) -> None:
        now = time.monotonic()
        if sys.stderr.isatty() and now - self._drawn > _DRAW_SECONDS:
            self._drawn = now
            part = done / max(total, 1)
            bar = "#" * int(part * _BAR)
            sys.stderr.write(f"\r{verb} [{bar:<{_BAR}}] {part:4.0%} {visible(what)}\x1b[K")
            sys.stderr.flush()

    def end(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
