"""A query's folder, and whether Spark's checkpoint in it fits the results that the broker has of its streams.

    DATA_DIR/streams/ID/checkpoint     Spark's: state, watermark, the offsets of each batch
    DATA_DIR/streams/ID/close          the last mark that closed windows (source.py)
    DATA_DIR/streams/ID/replay         batches that are run again (batches.py)
    DATA_DIR/streams/ID/hold           exists while a stream is being made that may share the query
    DATA_DIR/streams/ID/foresee        exists while the query closes windows in one batch (one_batch.py)

Results and progress reach the broker in one transaction, so its committed offsets say which batches are written: the
same number for each stream of the query. Spark writes the offsets of a batch before the batch runs, and commits it
after. So a checkpoint fits if its last batch is the next one or the last written one. An older checkpoint fits if the
batches that it lacks can be run again (batches.py).
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from barnabas.client.groups import Committed
from barnabas.streams.query.definitions import StreamDefinition
from barnabas.streams.query.errors import QueryError
from barnabas.streams.windows import batches, durable
from barnabas.streams.windows.groups import Joined
from barnabas.streams.windows.source import ends_of, mark_of, read_mark
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.streams.keys import CHECKPOINTS

_RECALCULATE = "RECALCULATE STREAM calculates it anew, and writes all results again"


class Progress(msgspec.Struct, frozen=True):
    """The note with a committed batch: the topic's id, the number of recalculations, and the checkpoint's id."""

    topic_id: str
    run: int
    checkpoint: str

    def encode(self) -> str:
        """The metadata of a committed offset."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def of(position: Committed | None) -> Progress | None:
        """The note in a position; None for a position of another kind."""
        try:
            return msgspec.json.decode(position.metadata, type=Progress) if position is not None else None
        except msgspec.DecodeError:
            return None


def is_begun(stream: Joined | StreamDefinition, position: Committed | None) -> bool:
    """Whether batches of a stream have been committed."""
    noted = Progress.of(position)
    return (
        position is not None
        and noted is not None
        and position.offset > 0
        and (noted.topic_id, noted.run) == (stream.topic_id, stream.run)
    )


class Folder:
    """The folder of one query."""

    def __init__(self, data_dir: str, group_id: str) -> None:
        self.path = os.path.join(data_dir, CHECKPOINTS, group_id)
        self.checkpoint = os.path.join(self.path, "checkpoint")
        self.close_file = os.path.join(self.path, "close")
        self.hold_file = os.path.join(self.path, "hold")
        self.replay_file = os.path.join(self.path, "replay")
        self.foresee_file = os.path.join(self.path, "foresee")
        self._syncer = durable.Syncer(self.checkpoint)

    def make(self) -> None:
        """Create it, for this user only. Raises OSError."""
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        os.makedirs(self.path, mode=0o700, exist_ok=True)

    def checkpoint_id(self) -> str:
        """Spark's id of the query; empty before its first start. Raises QueryError if it is damaged."""
        path = Path(self.checkpoint, "metadata")
        try:
            return str(msgspec.json.decode(path.read_bytes(), type=dict[str, str])["id"])
        except FileNotFoundError:
            return ""
        except (msgspec.DecodeError, KeyError):
            raise QueryError(f"the checkpoint is damaged ({path}): {_RECALCULATE}") from None

    def last_batch(self) -> int:
        """The number of the last batch whose offsets are written; -1 if there is none."""
        return batches.last_batch(self.checkpoint)

    def mend(self) -> None:
        """Remove files that were incomplete when the query or its machine stopped. The query must not be running.

        Raises OSError.
        """
        durable.mend(self.checkpoint)

    def sync(self) -> None:
        """Make the last batch's files survive a power loss. Raises OSError."""
        self._syncer.sync()

    def planned_offsets(self) -> dict[TopicPartition, int]:
        """The source offsets up to which batches are written or planned. Raises QueryError for damaged offsets."""
        last = self.last_batch()
        if last < 0:
            return {}
        try:
            return ends_of(batches.source_offset(batches.text_of(self.checkpoint, last)))
        except (OSError, msgspec.DecodeError):
            path = os.path.join(self.checkpoint, batches.OFFSETS, str(last))
            raise QueryError(f"the checkpoint is damaged ({path}): {_RECALCULATE}") from None

    def is_settled(self) -> bool:
        """Whether its query would do nothing without new records.

        Then its last batch is done, all windows before the watermark are closed, and no mark is waiting.
        """
        last = self.last_batch()
        try:
            text = batches.text_of(self.checkpoint, last) if last >= 0 else ""
            return not text or (
                batches.last_batch(self.checkpoint, batches.COMMITS) == last
                and batches.watermark_ms(text) == batches.next_watermark_ms(self.checkpoint)
                and read_mark(self.close_file) <= mark_of(batches.source_offset(text))
            )
        except (OSError, IndexError, msgspec.DecodeError):
            return False

    def copy_to(self, other: Folder) -> None:
        """Give another query the same checkpoint, under its own id. Raises OSError, QueryError.

        Spark does not modify a checkpoint's files, so they are linked if possible.
        """
        shutil.rmtree(other.path, ignore_errors=True)
        other.make()
        if os.path.isdir(self.checkpoint):
            shutil.copytree(self.checkpoint, other.checkpoint, copy_function=link)
        if os.path.exists(self.close_file):
            shutil.copy(self.close_file, other.close_file)
        if self.checkpoint_id():
            other.rename()

    def rename(self) -> None:
        """Give the checkpoint its own id: Spark ends a query when another one with its id starts. Raises OSError."""
        path = Path(self.checkpoint, "metadata")
        for name in ("metadata", ".metadata.crc"):
            path.with_name(name).unlink(missing_ok=True)
        path.write_bytes(msgspec.json.encode({"id": str(uuid.uuid4())}))

    def progress(self, member: Joined) -> Progress:
        """The note to commit with a stream's batches."""
        return Progress(member.topic_id, member.run, self.checkpoint_id())

    def first_batch(self, members: Iterable[Joined], positions: Mapping[str, Committed], was: str = "") -> int:
        """The number of the first uncommitted batch; `was` is the checkpoint of which this one is a copy.

        It is greater than the checkpoint's next batch if the checkpoint lacks some. Raises QueryError if the checkpoint
        does not fit.
        """
        mine, last = self.checkpoint_id(), self.last_batch()
        found = {self._after(member, positions.get(member.topic), mine, was) for member in members}
        if len(found) != 1:
            raise QueryError(f"the checkpoint in {self.path} is not that of all its streams: {_RECALCULATE}")
        (after,) = found
        if after < last:
            raise QueryError(
                f"the checkpoint in {self.path} is newer than the results (its last batch is {last}, {after} are in): "
                f"{_RECALCULATE}"
            )
        return after

    def make_again(self, first: int, noted: Mapping[int, str]) -> int:
        """Have the missing batches before the `first` uncommitted one repeated. Returns their number.

        Raises QueryError if one of them was not noted, and OSError.
        """
        last = self.last_batch()
        missing = range(last + 1, first)
        if not missing:
            return 0
        try:
            batches.make_again(self.checkpoint, self.replay_file, {batch: noted[batch] for batch in missing})
        except (KeyError, msgspec.DecodeError):
            raise QueryError(
                f"the checkpoint in {self.path} is older than the results (its last batch is {last}, {first} are in), "
                f"and it is not known what the batches between them read: {_RECALCULATE}"
            ) from None
        return len(missing)

    def _after(self, member: Joined, position: Committed | None, mine: str, was: str) -> int:
        """How many batches of one stream are committed."""
        noted = Progress.of(position)
        if position is None or noted is None or (noted.topic_id, noted.run) != (member.topic_id, member.run):
            return member.batch  # from an earlier stream of the same name, or nothing at all
        if position.offset and not mine:
            raise QueryError(f"the checkpoint in {self.path} is gone: put it back, or {_RECALCULATE}")
        if position.offset and noted.checkpoint not in (mine, was):
            raise QueryError(f"the checkpoint in {self.path} is not the one of the results: {_RECALCULATE}")
        return position.offset


def link(source: str, target: str) -> None:
    """Give a file another name, or copy it if that is not possible. Raises OSError."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


def remove_others(data_dir: str, kept: Collection[str]) -> list[str]:
    """Remove and return the folders of all other queries. One that cannot be removed stays until later."""
    names = {os.path.basename(path) for path in kept}
    parent = os.path.join(data_dir, CHECKPOINTS)
    try:
        found = [entry.name for entry in os.scandir(parent) if entry.is_dir() and entry.name not in names]
    except FileNotFoundError:
        return []
    for name in found:
        shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
    return found
