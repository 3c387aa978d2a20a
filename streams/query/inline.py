"""Small ticks in the driver's own process, without a Spark job: for a trickle of records, starting jobs costs the most.

All queries share this process, so the memory of a tick is bounded beforehand: the plan bounds the bytes of log, and a
`Budget` counts the decompressed batches and the rows as columns and results. Records that do not fit are left to other
processes, which may die without taking the driver along.

Invariant: no range of records kills the driver twice. Before a tick the driver writes down what it is about to read. A
driver that finds such a note at its start leaves those records, and all before them, to other processes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from io import FileIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.errors import ClientError
from barnabas.streams.query.direct import Direct
from barnabas.streams.query.errors import QueryError, TakenOverError
from barnabas.streams.query.sink import Report
from barnabas.streams.query.tick import Tick
from barnabas.streams.wal import TooMuchError

#: Log bytes: for reading here though others could; for reading here in pieces, because others would start later; of a
#: piece.
SMALL_BYTES, CREW_BYTES, PIECE_BYTES = 256 << 10, 8 << 20, 1 << 20
#: The limits of a tick's rows with their results, and of one decompressed batch.
MAX_WEIGHT, MAX_BATCH = 32 << 20, 8 << 20
#: Queries whose small ticks take more CPU time than this would hold up all others.
MAX_CPU_SECONDS = 1.0
#: For queries that Spark evaluates here: their cost per byte is unknown before they have run.
FIRST_TRUST, MAX_TRUST = 256 << 10, 8 << 20
NOTE_FILE = "streams-driver.tick"
#: The most partitions whose records are noted as left to others. The oldest are forgotten, and tried here again.
MOST_LEFT = 10_000
#: A topic's id, and a partition of it.
Place = tuple[str, int]


class Budget:
    """The limits of a tick's rows, and of the rows together with their results.

    The results have `grows` times a row, plus `adds` bytes.
    """

    most_in_batch = MAX_BATCH

    def __init__(self, grows: float, adds: float, rows: float = MAX_WEIGHT, everything: float = MAX_WEIGHT) -> None:
        self._grows, self._adds, self._rows, self._left = grows, adds, rows, everything

    @property
    def is_outgrown(self) -> bool:
        """Whether the results were too large."""
        return self._left < 0 <= self._rows

    def take(self, offsets: pa.Array, sizes: pa.Array) -> None:
        """Count rows of these sizes in bytes. Raises TooMuchError."""
        weight = pc.sum(sizes).as_py() or 0
        self._rows -= weight
        self._left -= weight * (1 + self._grows) + len(sizes) * self._adds
        if min(self._rows, self._left) < 0:
            raise TooMuchError(
                f"the records before offset {offsets[-1].as_py() + 1} weigh more than others may wait for"
            )


class Inline:
    """Runs ticks in this process. `data_dir` is where to write the note, if possible."""

    def __init__(self, data_dir: str) -> None:
        #: By a source's id and partition: the offset up to which its records are left to other processes.
        self._elsewhere: dict[Place, int] = {}
        self._dear: set[str] = set()
        #: The weight that a query of Spark may have here, once its cost is known.
        self._trusted: dict[str, int] = {}
        self._note: FileIO | None = None
        with contextlib.suppress(OSError):
            self._note = FileIO(os.path.join(data_dir, NOTE_FILE), "a+")
            self._read_note(self._note)

    def may_run(self, tick: Tick, topics: Iterable[str]) -> bool:
        """Whether a tick's records may be read here, for the queries of these topics."""
        return self._dear.isdisjoint(topics) and all(
            part.lo == part.hi or part.lo >= self._elsewhere.get((part.topic_id, part.partition), 0)
            for part in tick.parts
        )

    def run(
        self, direct: Direct, tick: Tick, topics: Sequence[str], cpu_elsewhere: Callable[[], float] | None = None
    ) -> list[Report]:
        """Run a tick. `cpu_elsewhere` returns the CPU seconds that its queries use outside this thread, if they do.

        Raises TooMuchError for one that is too large, which must not be run here again, and whatever its tasks raise.
        Anything written until then stays.
        """
        most = MAX_WEIGHT if cpu_elsewhere is None else min(self._trusted.get(topic, FIRST_TRUST) for topic in topics)
        everything = MAX_WEIGHT if cpu_elsewhere is None else MAX_TRUST
        budget, began = Budget(direct.grows, direct.adds, most, everything), self._cpu(cpu_elsewhere)
        self._write_note(tick)
        reports: list[Report] = []
        try:
            for number, part in enumerate(tick.parts):
                if part.lo < part.hi:
                    reports += direct.run(tick, number, gauge=budget)
        except (ClientError, QueryError, TakenOverError):  # not this process's fault
            self._clear_note()
            raise
        except Exception:  # the note stays until the next tick: the failure may still kill this process
            self.leave(tick)
            if cpu_elsewhere is not None and budget.is_outgrown:  # and so it would be the next time
                self._dear.update(topics)
            raise
        self._clear_note()
        if self._cpu(cpu_elsewhere) - began > MAX_CPU_SECONDS:
            self._dear.update(topics)
        elif cpu_elsewhere is not None:
            for topic in topics:
                self._trusted[topic] = min(2 * self._trusted.get(topic, FIRST_TRUST), MAX_TRUST)
        return reports

    @staticmethod
    def _cpu(elsewhere: Callable[[], float] | None) -> float:
        return time.thread_time() + (elsewhere() if elsewhere is not None else 0.0)

    def leave(self, tick: Tick) -> None:
        """Leave a tick's records to others."""
        for part in tick.parts:
            if part.lo < part.hi:
                key = part.topic_id, part.partition
                self._elsewhere[key] = max(part.hi, self._elsewhere.pop(key, 0))
        while len(self._elsewhere) > MOST_LEFT:
            del self._elsewhere[next(iter(self._elsewhere))]

    def forget(self, topics: Iterable[str]) -> None:
        """These queries have changed, or are gone."""
        for topic in topics:
            self._dear.discard(topic)
            self._trusted.pop(topic, None)

    # --- the note -----------------------------------------------------------------------------------------------------

    def _read_note(self, file: FileIO) -> None:
        """The note may be from a driver that was killed for another reason: others then read these records once."""
        file.seek(0)
        noted = file.read()
        with contextlib.suppress(msgspec.DecodeError):
            for topic_id, partition, hi in msgspec.json.decode(noted, type=list[tuple[str, int, int]]):
                self._elsewhere[topic_id, partition] = hi

    def _write_note(self, tick: Tick) -> None:
        """It need not be synced: it only has to outlive this process."""
        if self._note is not None:
            ranges = [(part.topic_id, part.partition, part.hi) for part in tick.parts if part.lo < part.hi]
            self._note.truncate(0)
            self._note.write(msgspec.json.encode(ranges))

    def _clear_note(self) -> None:
        if self._note is not None:
            self._note.truncate(0)
