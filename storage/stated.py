"""The checkpoints of several nodes that share a directory, and how they become the checkpoints of one process again.

Each node writes only the checkpoints in its own folder, `nodes/ID`. Those at the top stay as they were when the nodes
started. A partition belongs to one node at a time. A node that takes a partition reads the entries of all nodes, and
begins a turn with a higher number than all others, on disk, before it writes to the partition. For each partition, only
the entry of the last turn counts. The largest offset of all entries would be wrong: recovery may find less than was
flushed (a damaged disk), and a folder may be lost and created again. Then older entries are wrong.

A turn is closed if its node gave the partition away, or stopped, with all data on disk. Then the next turn needs no
recovery, even if that node has crashed later. If no node has an entry for a partition, its state is that of the process
that had the directory before the nodes.

`fold` writes the entries that count to the files at the top, and then removes `nodes` by a rename. After a kill before
the rename, all entries are as before; after a kill later, those at the top count.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping

from barnabas.storage.checkpoints import (
    Checkpoints,
    decode_topic_id,
    read_checkpoints,
    read_topic_id,
    write_checkpoints,
)
from barnabas.storage.io import Io, sync_path, write_file
from barnabas.storage.layout import (
    CLEAN_FILE,
    DELETE_SUFFIX,
    LOG_STARTS_FILE,
    NODES_FOLDER,
    TOPIC_IDS_FILE,
    node_folder,
    node_ids,
    parse_partition_name,
)
from barnabas.storage.report import Tell, tell_logging
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.uuids import encode_uuid

CLEAN_MARK = b'{"version":0,"brokerEpoch":-1}'
# More turns than any node can have had: for turns after those in a file that cannot be read.
_UNREADABLE = 1 << 40


class Stated:
    """The checkpoints at the top, and those of each node."""

    def __init__(self, top: Checkpoints, nodes: Mapping[int, Checkpoints], *, top_closed: bool) -> None:
        """`top_closed`: the process that had the directory before the nodes stopped cleanly."""
        self.top, self._nodes, self._top_closed = top, nodes, top_closed
        self._is_whole = not any(TOPIC_IDS_FILE in each.damaged for each in nodes.values())

    def states(self, key: TopicPartition) -> bool:
        """Whether there is any entry for a partition. Only then does its topic's id matter."""
        return any(each.states(key) for each in (self.top, *self._nodes.values()))

    def of(self, key: TopicPartition, topic_id: str) -> tuple[int, int]:
        """(log start offset, recovery point) of the partition of that topic; zeros if there is no entry.

        Without a readable recovery point, recovery scans the whole log. Without a readable log start, the one of the
        turn before counts, so that deleted records do not come back.
        """
        lines = self._lines(key, topic_id)
        start = next((each.starts.get(key, 0) for each in lines if LOG_STARTS_FILE not in each.damaged), 0)
        return start, lines[0].points.get(key, 0) if lines else 0

    def cleaned_of(self, key: TopicPartition, topic_id: str) -> int:
        """How far the partition is compacted."""
        lines = self._lines(key, topic_id)
        return lines[0].cleaned.get(key, 0) if lines else 0

    def is_closed(self, key: TopicPartition, topic_id: str) -> bool:
        """Whether the partition's last owner left it in order.

        False if any node's turns cannot be read: that node may have had any partition.
        """
        lines = self._lines(key, topic_id)
        if not lines or not self._is_whole:
            return False
        return self._top_closed if lines[0] is self.top else lines[0].turns[key].closed

    def next_turn(self, key: TopicPartition) -> int:
        """The number for a turn that begins now."""
        numbers = [each.turns[key].number for each in self._nodes.values() if key in each.turns]
        return max(numbers, default=0) + (1 if self._is_whole else _UNREADABLE)

    def _lines(self, key: TopicPartition, topic_id: str) -> list[Checkpoints]:
        """The checkpoints with an entry for the partition of that topic, the last turn first."""
        found = [each for each in self._nodes.values() if key in each.turns and each.is_meant(key, topic_id)]
        found.sort(key=lambda each: each.turns[key].number, reverse=True)
        if self.top.states(key) and self.top.is_meant(key, topic_id):
            found.append(self.top)
        return found


def read_stated(io: Io, path: str, tell: Tell = tell_logging) -> Stated:
    """Read all checkpoints in the data directory `path`. A damaged file is reported, and only its content is lost.

    Raises OSError.
    """
    nodes = {each: read_node(io, path, each, tell) for each in node_ids(path)}
    top_closed = os.path.exists(os.path.join(path, NODES_FOLDER, CLEAN_FILE))
    return Stated(read_checkpoints(io, path, tell), nodes, top_closed=top_closed)


def read_node(io: Io, path: str, node_id: int, tell: Tell) -> Checkpoints:
    """Read the checkpoints of one node."""
    found = read_checkpoints(io, node_folder(path, node_id), tell, f"{NODES_FOLDER}/{node_id}/")
    found.ids = {} if found.ids is None else found.ids
    return found


def states_no_ids(io: Io, path: str) -> bool:
    """Whether the directory has partitions, but no file of topic ids at the top. Raises OSError."""
    return not os.path.exists(os.path.join(path, TOPIC_IDS_FILE)) and bool(io.folders(path))


def fold(io: Io, path: str, tell: Tell = tell_logging) -> None:
    """Write the entries that count to the files at the top, as if one process had had the directory, and remove
    `nodes`.

    The caller has the directory, and no node runs. The stop is marked as clean if every partition is closed. Raises
    OSError.
    """
    stated = read_stated(io, path, tell)
    found, clean = Checkpoints(), True
    assert found.ids is not None
    for name in io.folders(path):
        key = parse_partition_name(name)
        if key is None:
            continue
        try:
            text = read_topic_id(io, os.path.join(path, name))
        except OSError:  # a folder that cannot be read gets no entry
            clean = False
            continue
        start, found.points[key] = stated.of(key, text)
        found.ids[key] = encode_uuid(decode_topic_id(text))
        if start:
            found.starts[key] = start
        if cleaned := stated.cleaned_of(key, text):
            found.cleaned[key] = cleaned
        clean = clean and stated.is_closed(key, text)
    write_checkpoints(io, path, found, stated.top)
    if not os.path.exists(os.path.join(path, NODES_FOLDER)):
        return
    mark = os.path.join(path, CLEAN_FILE)
    if clean:
        write_file(io, mark, CLEAN_MARK, sync=False)
    elif os.path.exists(mark):
        io.unlink(mark)
    doomed = os.path.join(path, f"{NODES_FOLDER}-0.{uuid.uuid4().hex}{DELETE_SUFFIX}")
    io.replace(os.path.join(path, NODES_FOLDER), doomed)
    sync_path(io, path)
    io.rmtree(doomed)  # after a kill, the next start deletes the rest
