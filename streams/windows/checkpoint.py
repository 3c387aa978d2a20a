"""A stream's folder, and how Spark's checkpoint in it fits what the broker has of the stream.

    DATA_DIR/streams/TOPIC_ID.RUN/checkpoint     Spark's: state, watermark, the offsets of each batch
    DATA_DIR/streams/TOPIC_ID.RUN/close          the last mark that closed windows (source.py)

Results and progress reach the broker in one transaction, so its committed offset says which batches are in. Spark
writes the offsets of a batch before the batch runs, and commits it after. So a checkpoint fits if its last batch is the
next one, or the last one that is in. Another one, such as an older copy, would take a batch for one that is in.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

import msgspec

from barnabas.client.groups import Committed
from barnabas.streams.query.errors import QueryError
from barnabas.wire.streams.keys import CHECKPOINTS

_RECALCULATE = "RECALCULATE STREAM calculates it anew, and writes all results again"


class Progress(msgspec.Struct, frozen=True):
    """What is noted with a committed batch: the topic's id, how often the stream was recalculated, the checkpoint."""

    topic_id: str
    run: int
    checkpoint: str

    def encode(self) -> str:
        """As the metadata of a committed offset."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def of(position: Committed | None) -> Progress | None:
        """What is noted; None for a position of another kind."""
        try:
            return msgspec.json.decode(position.metadata, type=Progress) if position is not None else None
        except msgspec.DecodeError:
            return None


class Folder:
    """The folder of one run of one stream."""

    def __init__(self, data_dir: str, topic_id: str, run: int) -> None:
        self.topic_id, self.run = topic_id, run
        self.path = os.path.join(data_dir, CHECKPOINTS, f"{topic_id}.{run}")
        self.checkpoint = os.path.join(self.path, "checkpoint")
        self.close_file = os.path.join(self.path, "close")

    def make(self) -> None:
        """Make it, for this user only. Raises OSError."""
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        os.makedirs(self.path, mode=0o700, exist_ok=True)

    def checkpoint_id(self) -> str:
        """Spark's id of the query; nothing before it has begun. Raises QueryError for a damaged one."""
        path = Path(self.checkpoint, "metadata")
        try:
            return str(msgspec.json.decode(path.read_bytes(), type=dict[str, str])["id"])
        except FileNotFoundError:
            return ""
        except (msgspec.DecodeError, KeyError):
            raise QueryError(f"the checkpoint is damaged ({path}): {_RECALCULATE}") from None

    def last_batch(self) -> int:
        """The number of the last batch whose offsets are written; -1 for none."""
        try:
            names = os.listdir(os.path.join(self.checkpoint, "offsets"))
        except FileNotFoundError:
            return -1
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def progress(self) -> Progress:
        """What is to be noted with its batches."""
        return Progress(self.topic_id, self.run, self.checkpoint_id())

    def first_batch(self, position: Committed | None) -> int:
        """The number of the first batch that is not in yet. Raises QueryError where the checkpoint does not fit."""
        noted = Progress.of(position)
        if position is None or noted is None or (noted.topic_id, noted.run) != (self.topic_id, self.run):
            after = 0  # of a stream of the same name before this one, or nothing at all
        else:
            after = position.offset
        mine, last = self.checkpoint_id(), self.last_batch()
        if after and not mine:
            raise QueryError(f"the checkpoint in {self.path} is gone: put it back, or {_RECALCULATE}")
        if after and noted is not None and noted.checkpoint != mine:
            raise QueryError(f"the checkpoint in {self.path} is another one than that of the results: {_RECALCULATE}")
        if after not in (last, last + 1):
            which = "older than the results" if after > last else "newer than the results"
            raise QueryError(
                f"the checkpoint in {self.path} is {which} (its last batch is {last}, {after} are in): {_RECALCULATE}"
            )
        return after


def remove_others(data_dir: str, kept: Collection[str]) -> list[str]:
    """Remove the folders of streams but for these; the names of those. What cannot be removed stays until later."""
    names = {os.path.basename(path) for path in kept}
    parent = os.path.join(data_dir, CHECKPOINTS)
    try:
        found = [name for name in os.listdir(parent) if name not in names]
    except FileNotFoundError:
        return []
    for name in found:
        shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
    return found
