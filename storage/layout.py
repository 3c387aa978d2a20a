"""The names of the files in a data directory, and whether a broker uses it. Readers need no event loop for it."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys

META_FILE = "meta.properties"
LOCK_FILE = ".lock"
CLEAN_FILE = ".kafka_cleanshutdown"
RECOVERY_POINTS_FILE = "recovery-point-offset-checkpoint"
CLEANED_FILE = "cleaner-offset-checkpoint"
LOG_STARTS_FILE = "log-start-offset-checkpoint"
#: Not Kafka's: the topic id of each partition in the checkpoints above.
TOPIC_IDS_FILE = "topic-id-checkpoint"
#: HOST:PORT of the broker that serves the directory. The file exists from when the broker is ready until it stops.
ADDRESS_FILE = "broker.address"
DELETE_SUFFIX = "-delete"
METADATA_FOLDER = "__cluster_metadata-0"
QUORUM_FILE = "quorum-state"
#: Only Kafka writes these: a directory with one is not ours, or Kafka has run on it since.
KAFKA_FILES = (f"{METADATA_FOLDER}/{QUORUM_FILE}", "bootstrap.checkpoint")
#: Exists while `storage.takeover` fills the directory.
UNFINISHED_FILE = "import.unfinished"
#: Has one folder, by node id, for each node that shares the directory: its lock and its checkpoints.
NODES_FOLDER = "nodes"
#: In the folder of each partition: its topic's id.
METADATA_FILE = "partition.metadata"

# struct flock: type, whence, start, length, pid; on macOS type and whence come last.
_FLOCK = struct.Struct("@hhqqi4x" if sys.platform.startswith("linux") else "@qqihh")
_TYPE_AT = 0 if sys.platform.startswith("linux") else 3


def parse_partition_name(name: str) -> tuple[str, int] | None:
    """Topic and partition of a folder's name, or None for any other name in a data directory."""
    topic, _, number = name.rpartition("-")
    if not topic or not number.isdecimal() or not number.isascii():
        return None
    return topic, int(number)


def node_folder(path: str, node_id: int) -> str:
    """One node's own folder in the data directory `path`, if several nodes share it."""
    return os.path.join(path, NODES_FOLDER, str(node_id))


def node_ids(path: str) -> list[int]:
    """The nodes that have a folder in the data directory `path`. Raises OSError."""
    try:
        names = os.listdir(os.path.join(path, NODES_FOLDER))
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if name.isdecimal() and name.isascii())


def is_locked(path: str) -> bool:
    """Whether another process holds the lock of the data directory `path`. Takes no lock, not even for a moment.

    The process that holds the lock must not call this: POSIX drops its lock when it closes any descriptor of the file.
    """
    try:
        fd = os.open(os.path.join(path, LOCK_FILE), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fields = [0, 0, 0, 0, 0]
        fields[_TYPE_AT] = fcntl.F_RDLCK
        found = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(*fields)))
        return bool(found[_TYPE_AT] != fcntl.F_UNLCK)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOLCK):  # a file system without locks: no broker can use it either
            return False
        raise
    finally:
        os.close(fd)
