"""A data directory written by Apache Kafka. It is read and never changed: what it holds, and reasons not to use it.

Its broker must be stopped. A lock keeps Kafka from starting meanwhile; it is a shared lock, so that it also works on a
file system that is mounted read-only.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType

from barnabas.storage.checkpoints import Checkpoints, read_offsets, read_properties, read_topic_id
from barnabas.storage.errors import StorageError
from barnabas.storage.io import Io
from barnabas.storage.layout import (
    CLEAN_FILE,
    CLEANED_FILE,
    DELETE_SUFFIX,
    KAFKA_FILES,
    LOCK_FILE,
    LOG_STARTS_FILE,
    META_FILE,
    METADATA_FILE,
    METADATA_FOLDER,
    QUORUM_FILE,
    RECOVERY_POINTS_FILE,
    parse_partition_name,
)
from barnabas.storage.recovery import list_segments
from barnabas.storage.report import Tell
from barnabas.storage.segment import Segment
from barnabas.storage.snapshots import Snapshots
from barnabas.wire import batch
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import KafkaError

#: The files of a partition's log. Files that Kafka has begun to delete (`.deleted`) do not count.
_LOG_FILE = re.compile(r"\d{20}\.(log|index|timeindex|txnindex|snapshot)(\.cleaned|\.swap|)")
_OTHER_FILES = ("leader-epoch-checkpoint", METADATA_FILE)
_KNOWN_FILES = {
    *(CLEAN_FILE, CLEANED_FILE, LOCK_FILE, LOG_STARTS_FILE, META_FILE, RECOVERY_POINTS_FILE, *KAFKA_FILES),
    "replication-offset-checkpoint",
}
_MAGIC_AT = 16


@dataclass
class Folder:
    """The files of one partition with their sizes, and the id that its topic has according to them."""

    name: str
    topic_id: str
    files: dict[str, int] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(self.files.values())


class KafkaDir:
    """An open directory; `open` makes one. Calls raise StorageError with a one-line remedy."""

    def __init__(self, path: str, io: Io, properties: dict[str, str], lock_fd: int) -> None:
        self.path = path
        self.io = io
        self.cluster_id = properties["cluster.id"]
        self.node_id = int(properties["node.id"])
        #: Empty if Kafka 3.6 or older made the directory.
        self.directory_id = properties.get("directory.id", "")
        self.was_clean = os.path.exists(os.path.join(path, CLEAN_FILE))
        self.partitions: dict[TopicPartition, Folder] = {}
        #: (name, what it is) of entries in the directory that are not part of the broker's log.
        self.passed_over: list[tuple[str, str]] = []
        self._lock_fd = lock_fd

    @classmethod
    def open(cls, path: str, tell: Tell, io: Io | None = None) -> KafkaDir:
        """Read the directory. `tell` gets reports of damaged checkpoints."""
        io = io or Io()
        path = os.path.abspath(path)
        properties = _properties(io, path)
        lock_fd = _lock(io, path)
        try:
            found = cls(path, io, properties, lock_fd)
            found._look(tell)
        except OSError as error:
            _unlock(io, lock_fd)
            raise StorageError(f"cannot read {path}: {error}") from error
        except BaseException:
            _unlock(io, lock_fd)
            raise
        return found

    def close(self) -> None:
        _unlock(self.io, self._lock_fd)
        self._lock_fd = -1

    def __enter__(self) -> KafkaDir:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _look(self, tell: Tell) -> None:
        if not os.path.isdir(os.path.join(self.path, METADATA_FOLDER)):
            raise StorageError(
                f"{self.path} has no {METADATA_FOLDER}: name the directory that has it. Where metadata.log.dir is "
                "another one than log.dir, bring both together first"
            )
        if not any(os.path.exists(os.path.join(self.path, name)) for name in KAFKA_FILES):
            raise StorageError(f"{self.path} is not Kafka's, but barnabas's: serve it with 'barnabas serve'")
        for name in sorted(self.io.listdir(self.path)):
            path = os.path.join(self.path, name)
            key = parse_partition_name(name)
            if name == METADATA_FOLDER or name in _KNOWN_FILES:
                continue
            if key is not None and os.path.isdir(path):
                self.partitions[key] = self._folder(name, path)
            elif name.endswith(DELETE_SUFFIX):
                self.passed_over.append((name, "being deleted"))
            elif name.endswith("-stray"):
                self.passed_over.append((name, "of no topic: Kafka has set it aside as a stray"))
            elif name.endswith("-future"):
                self.passed_over.append((name, "a copy that was to become a partition's log"))
        self.checkpoints = Checkpoints(
            self._offsets(RECOVERY_POINTS_FILE, tell),
            self._offsets(LOG_STARTS_FILE, tell),
            None,
            self._offsets(CLEANED_FILE, tell),
        )

    def _offsets(self, name: str, tell: Tell) -> dict[TopicPartition, int]:
        """The offsets in a checkpoint. Kafka makes the file empty, and leaves it so until it has something to write."""
        path = os.path.join(self.path, name)
        if not os.path.exists(path) or not self.io.stat(path).st_size:
            return {}
        return read_offsets(self.io, path, tell)

    def _folder(self, name: str, path: str) -> Folder:
        found = Folder(name, read_topic_id(self.io, path), segments=list_segments(self.io, path))
        for file in sorted(self.io.listdir(path)):
            if _LOG_FILE.fullmatch(file) or file in _OTHER_FILES:
                found.files[file] = self.io.stat(os.path.join(path, file)).st_size
        for segment in found.segments:
            _check_format(self.io, segment)
        return found

    # -- metadata ----------------------------------------------------------------------------------------------------

    @property
    def snapshots(self) -> Snapshots:
        return Snapshots(self.io, os.path.join(self.path, METADATA_FOLDER))

    def voters(self) -> set[int]:
        """The voters in the quorum's state file; none if the metadata log names them."""
        try:
            with open(os.path.join(self.path, METADATA_FOLDER, QUORUM_FILE), encoding="utf-8") as file:
                return {int(each["voterId"]) for each in json.load(file).get("currentVoters", [])}
        except FileNotFoundError:
            return set()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"{os.path.join(self.path, METADATA_FOLDER, QUORUM_FILE)} is damaged: {error}") from None

    def metadata_log(self, begin: int) -> Iterator[tuple[batch.BatchHeader, memoryview]]:
        """The batches of the metadata log from offset `begin` on, checked. A batch cut off at the end by a kill is left
        out."""
        segments = list_segments(self.io, os.path.join(self.path, METADATA_FOLDER))
        if segments and segments[0].base_offset > begin:
            raise StorageError(
                f"{METADATA_FOLDER} begins at offset {segments[0].base_offset}, and no whole snapshot says what was "
                "before: start Kafka on the directory, so that it mends it, and stop it"
            )
        following = begin
        for segment in segments:
            for header, view in self._batches(segment, is_last=segment is segments[-1]):
                if header.base_offset >= begin:
                    if header.base_offset != following:
                        raise StorageError(f"{segment.path()} has offset {header.base_offset} in place of {following}")
                    yield header, view
                    following = header.last_offset + 1

    def _batches(self, segment: Segment, *, is_last: bool) -> Iterator[tuple[batch.BatchHeader, memoryview]]:
        if not segment.size:
            return
        with open(segment.path(), "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # unmapped when its last view goes
        view = memoryview(data)
        position = 0
        while position < len(view):
            try:
                header = batch.check(view, position)
            except KafkaError as error:
                if is_last and not self.was_clean:
                    return
                raise StorageError(
                    f"{segment.path()} is damaged at position {position} ({error}): restore it from a backup"
                ) from None
            yield header, view[position : position + header.size_in_bytes]
            position += header.size_in_bytes


def _properties(io: Io, path: str) -> dict[str, str]:
    file = os.path.join(path, META_FILE)
    try:
        found = read_properties(io, file)
    except FileNotFoundError:
        raise StorageError(f"{path} is not a data directory of Kafka: it has no {META_FILE}") from None
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot read {file}: {error}") from None
    if found.get("version") == "0":
        raise StorageError(f"{path} is of a broker with ZooKeeper: migrate it to KRaft first, with Kafka 3.9")
    if found.get("version") != "1":
        raise StorageError(f"{file} has version {found.get('version')}; only version 1 is known")
    if not found.get("cluster.id") or not found.get("node.id", "").isdecimal():
        raise StorageError(f"{file} is damaged: it needs the lines cluster.id and node.id")
    return found


def _lock(io: Io, path: str) -> int:
    """A descriptor whose lock keeps a broker from starting; -1 if none has ever run. Raises StorageError."""
    try:
        fd = io.open(os.path.join(path, LOCK_FILE), os.O_RDONLY)
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error}") from error
    try:
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        io.close(fd)
        raise StorageError(f"a broker runs on {path}: stop it first") from None
    return fd


def _unlock(io: Io, fd: int) -> None:
    if fd >= 0:
        io.close(fd)


def _check_format(io: Io, segment: Segment) -> None:
    """Raises StorageError for a segment in a message format from before Kafka 0.11: it could not be served."""
    fd = io.open(segment.path(), os.O_RDONLY)
    try:
        magic = io.pread(fd, 1, _MAGIC_AT)
    finally:
        io.close(fd)
    if magic in (b"\0", b"\1") and segment.size > batch.HEADER_SIZE:
        raise StorageError(
            f"{segment.path()} has message format {magic[0]}, of Kafka before 0.11, which is not served: copy that "
            "topic into a new one with Kafka, and delete it"
        )
