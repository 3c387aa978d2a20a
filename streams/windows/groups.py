"""Keeps in one file which streams share a query, and so where each stream's state is.

    DATA_DIR/streams/groups            the list
    DATA_DIR/streams/ID                a query's folder (checkpoint.py)

Streams share a query if they read the same records of the same topic in the same way, with the same event time and
watermark and the same kind of window, and if the query has the slots that they need. A stream joins a query only before
the query has read the stream's first record; otherwise it gets its own query. It leaves with a copy of the checkpoint,
which has its state unchanged.

Invariant: each stream is in exactly one query. The file is replaced as a whole, so it always says in which.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Sequence

import msgspec

from barnabas.streams.query.definitions import StreamDefinition
from barnabas.streams.query.errors import QueryError
from barnabas.streams.windows.slots import Slot
from barnabas.wire.streams.clauses import Clauses
from barnabas.wire.streams.keys import CHECKPOINTS
from barnabas.wire.streams.plan import JoinedReads
from barnabas.wire.streams.windows import Interval, RowWindow

#: The file beside the queries' folders.
FILE = "groups"


class Joined(msgspec.Struct, frozen=True):
    """A stream in a query: its unique number there, and how many batches were committed when it joined."""

    topic: str
    topic_id: str
    run: int
    number: int
    batch: int = 0

    def is_of(self, definition: StreamDefinition | None) -> bool:
        """Whether this is the stream: the same topic, with the same number of recalculations."""
        return definition is not None and (definition.topic_id, definition.run) == (self.topic_id, self.run)


class Group(msgspec.Struct, frozen=True):
    """Streams that share a query.

    `kind` is what they have in common, and `starts` is where the query begins in its source. If its checkpoint is a
    copy, `was` is Spark's id of the original, and `origin` is the query that had it.
    """

    id: str
    kind: str
    slots: tuple[Slot, ...]
    starts: tuple[int, ...]
    members: tuple[Joined, ...]
    next_number: int
    was: str = ""
    origin: str = ""

    def join(self, definitions: Iterable[StreamDefinition], batch: int) -> Group:
        """The group with more streams. The first `batch` batches contain no records for them."""
        new = tuple(
            Joined(each.topic, each.topic_id, each.run, self.next_number + place, batch)
            for place, each in enumerate(definitions)
        )
        return msgspec.structs.replace(self, members=self.members + new, next_number=self.next_number + len(new))

    def only(self, members: Sequence[Joined]) -> Group:
        """The group with only these of its members."""
        return msgspec.structs.replace(self, members=tuple(members))

    def apart(self, members: Sequence[Joined], checkpoint: str) -> Group:
        """A new group with these of its members, and a copy of the checkpoint with that id."""
        return msgspec.structs.replace(
            self, id=uuid.uuid4().hex, members=tuple(members), was=checkpoint, origin=self.id
        )


def names(members: Iterable[Joined]) -> str:
    """The topics of streams, for a message."""
    return ", ".join(sorted(member.topic for member in members))


def new_group(definition: StreamDefinition, kind: str, slots: Sequence[Slot]) -> Group:
    """The group of a stream that shares no existing query."""
    made = Group(uuid.uuid4().hex, kind, tuple(slots), definition.plan.starts, (), 0)
    return made.join([definition], 0)


def kind_of(clauses: Clauses, source_id: str, values: msgspec.Struct, joined: JoinedReads | None = None) -> str:
    """What streams that share a query have in common: which records they take, and when their windows close.

    A stream with windows that records open and close, with filled windows, or over two streams, has a query of its own.
    """
    join = None if clauses.join is None else msgspec.structs.replace(clauses.join, at=0)
    if isinstance(clauses.window, RowWindow) or clauses.fill is not None or (join is not None and not join.is_table):
        return f"alone {uuid.uuid4()}"
    window: object = "interval" if isinstance(clauses.window, Interval) else "session"
    if clauses.by_clock:
        window = "period", clauses.window
    same = clauses.time, clauses.watermark_ms, clauses.max_ahead_ms, clauses.max_delay_ms, clauses.trigger, window
    table = () if join is None else (join, joined)
    more = {"expired_ms": clauses.expired_ms} if clauses.expired_ms else {}
    if clauses.parallelism > 1:
        more["parallelism"] = clauses.parallelism
    options = (more,) if more else ()
    return msgspec.json.encode([clauses.source, source_id, values, *same, *table, *options]).decode()


class Groups:
    """The list of groups in its file."""

    def __init__(self, data_dir: str) -> None:
        self._path = os.path.join(data_dir, CHECKPOINTS, FILE)

    def is_there(self) -> bool:
        """Whether the list exists. If not, there was never a stream, or the folder is lost."""
        return os.path.exists(self._path)

    def read(self) -> list[Group]:
        """All groups. Raises QueryError for a damaged file."""
        try:
            with open(self._path, "rb") as file:
                return msgspec.json.decode(file.read(), type=list[Group])
        except FileNotFoundError:
            return []
        except msgspec.DecodeError as error:
            raise QueryError(
                f"{self._path} is damaged ({error}): put it back, or remove it and RECALCULATE all streams"
            ) from None

    def write(self, groups: Iterable[Group]) -> None:
        """Replace the list. Raises OSError."""
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        new = f"{self._path}.new"
        with open(new, "wb") as file:
            file.write(msgspec.json.encode(list(groups)))
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self._path)
        folder = os.open(os.path.dirname(self._path), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
