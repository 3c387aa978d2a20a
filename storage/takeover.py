"""Fill a new data directory with the logs of another one. If it is not complete, no broker starts on it.

    mark, durable -> folders, files fsynced -> checkpoints -> metadata log -> clean stop -> all durable -> no mark

Every broker refuses a directory with the mark. After an error the written files are removed; after a kill the mark
stays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence

from barnabas.storage.checkpoints import Checkpoints, write_offsets
from barnabas.storage.config import LogConfig
from barnabas.storage.data_dir import DataDir
from barnabas.storage.errors import StorageError
from barnabas.storage.io import Io, sync_path, write_file
from barnabas.storage.kafka_dir import Folder, KafkaDir
from barnabas.storage.layout import (
    CLEAN_FILE,
    CLEANED_FILE,
    LOCK_FILE,
    LOG_STARTS_FILE,
    METADATA_FILE,
    METADATA_FOLDER,
    RECOVERY_POINTS_FILE,
    UNFINISHED_FILE,
    parse_partition_name,
)
from barnabas.storage.report import Tell
from barnabas.storage.segment import LOG_SUFFIX
from barnabas.storage.starting import Progress
from barnabas.storage.vnode import Origin
from barnabas.wire.aliases import TopicPartition

_CHUNK = 64 << 20
#: Called with the number of bytes copied, and their partition.
Copied = Callable[[int, str], None]


class Takeover:
    """The import from `source` into the directory `target`, which is empty or absent."""

    def __init__(self, source: KafkaDir, target: str, *, link: bool, io: Io | None = None) -> None:
        self.source, self.target = source, os.path.abspath(target)
        self._link = link
        self._io = io or Io()
        self._began = False

    def check(self) -> None:
        """Raises StorageError if the target cannot be written to."""
        path, source = self.target, os.path.realpath(self.source.path)
        if os.path.commonpath((os.path.realpath(path), source)) == source:
            raise StorageError(f"{path} is inside of {self.source.path}: choose a new directory beside it")
        if self._link and not self.source.was_clean:
            raise StorageError(
                f"Kafka was not stopped cleanly on {self.source.path}: start and stop it, or leave out --link"
            )
        if self._link and os.stat(_existing(path)).st_dev != os.stat(source).st_dev:
            raise StorageError(f"{path} is on another file system than {source}: leave out --link")
        try:
            names = self._io.listdir(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"cannot use {path}: {error.strerror}") from error
        if UNFINISHED_FILE in names:
            raise StorageError(f"{path} has what an import that was cut off has left: delete it, and try again")
        if names:
            raise StorageError(f"{path} is not empty: choose a new directory")

    def room(self) -> int:
        """Bytes free on the target's disk. Raises StorageError."""
        path = _existing(self.target)
        try:
            disk = os.statvfs(path)
        except OSError as error:
            raise StorageError(f"cannot use {path}: {error.strerror}") from error
        return disk.f_bavail * disk.f_frsize

    def is_linked(self, folder: Folder, file: str) -> bool:
        """Whether a file is shared with the source by a link: only a segment that no broker writes to any more.

        Such a segment is below the recovery point and not the last one. Indexes are not shared: a repair may write to
        them.
        """
        if not self._link or not file.endswith(LOG_SUFFIX):
            return False
        key = parse_partition_name(folder.name)
        assert key is not None
        bases = [segment.base_offset for segment in folder.segments]
        number = bases.index(int(file[:20]))
        return number + 1 < len(bases) and bases[number + 1] < self.source.checkpoints.points.get(key, 0)

    def bytes_to_copy(self, folders: Collection[Folder]) -> int:
        return sum(size for each in folders for file, size in each.files.items() if not self.is_linked(each, file))

    async def run(
        self,
        folders: dict[TopicPartition, Folder],
        topic_ids: dict[TopicPartition, str],
        metadata: Callable[[], Sequence[bytes]],
        metadata_id: bytes,
        config_of: Callable[[str], LogConfig],
        *,
        copied: Copied,
        recovering: Progress,
        tell: Tell,
    ) -> None:
        """Import these partitions, with `metadata` as the batches of the metadata log. Raises StorageError."""
        try:
            self._begin()
            self._copy(folders, topic_ids, copied)
            self._state(folders)
            directory = DataDir.open(
                self.target,
                node_id=self.source.node_id,
                cluster_id=self.source.cluster_id,
                io=self._io,
                tell=tell,
                unfinished=True,
            )
            try:
                await directory.load(recovering, config_of=config_of)
                topic, partition = parse_partition_name(METADATA_FOLDER) or ("", 0)
                vnode = directory.create_vnode(topic, partition, metadata_id, config_of(topic))
                for data in metadata():
                    vnode.append(data, now_ms=0, origin=Origin.COORDINATOR)
                vnode.flush()
                offline = [str(each.error) for each in directory.vnodes.values() if each.error is not None]
            finally:
                await directory.close()
            if offline:
                raise StorageError(offline[0])
            self._end(folders)
        except BaseException as error:
            self._take_back()
            if isinstance(error, OSError):
                raise StorageError(f"cannot write {self.target}: {error}") from error
            raise

    def _begin(self) -> None:
        self.check()
        io = self._io
        os.makedirs(self.target, io.dir_mode, exist_ok=True)
        self._began = True
        write_file(io, os.path.join(self.target, UNFINISHED_FILE), b"", sync=True)

    def _copy(self, folders: dict[TopicPartition, Folder], ids: dict[TopicPartition, str], copied: Copied) -> None:
        done = 0
        for key, folder in folders.items():
            directory = os.path.join(self.target, folder.name)
            self._io.mkdir(directory)
            for file, size in folder.files.items():
                source = os.path.join(self.source.path, folder.name, file)
                if self.is_linked(folder, file):
                    self._io.link(source, os.path.join(directory, file))
                    continue
                for step in self._copy_file(source, os.path.join(directory, file), size):
                    done += step
                    copied(done, folder.name)
            if not folder.topic_id:  # from before topic ids; the metadata has the id
                text = f"version: 0\ntopic_id: {ids[key]}\n"
                write_file(self._io, os.path.join(directory, METADATA_FILE), text.encode(), sync=True)
            sync_path(self._io, directory)

    def _copy_file(self, source: str, target: str, size: int) -> Iterator[int]:
        """Copy one file; yields the number of bytes of each step."""
        io = self._io
        read = io.open(source, os.O_RDONLY)
        try:
            write = io.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            try:
                position = 0
                while position < size:
                    step = io.copy(read, write, min(_CHUNK, size - position), position)
                    if not step:
                        raise OSError(5, f"{source} has become shorter")
                    position += step
                    yield step
                io.fsync(write)
            finally:
                io.close(write)
        finally:
            io.close(read)

    def _state(self, folders: dict[TopicPartition, Folder]) -> None:
        """Write the source's checkpoints, and the mark of a clean stop if the source has it."""
        stated: Checkpoints = self.source.checkpoints
        for name, offsets in (
            (RECOVERY_POINTS_FILE, stated.points),
            (LOG_STARTS_FILE, stated.starts),
            (CLEANED_FILE, stated.cleaned),
        ):
            kept = {key: offset for key, offset in offsets.items() if key in folders}
            write_offsets(self._io, os.path.join(self.target, name), kept)
        if self.source.was_clean:
            write_file(self._io, os.path.join(self.target, CLEAN_FILE), b'{"version":0,"brokerEpoch":-1}', sync=True)

    def _end(self, folders: dict[TopicPartition, Folder]) -> None:
        io = self._io
        if not os.path.exists(os.path.join(self.target, CLEAN_FILE)):
            raise StorageError(f"{self.target} could not be closed: look for a full disk or its errors, and try again")
        for name in (*(folder.name for folder in folders.values()), METADATA_FOLDER):
            sync_path(io, os.path.join(self.target, name))
        for name in io.listdir(self.target):
            if name != LOCK_FILE and os.path.isfile(os.path.join(self.target, name)):
                sync_path(io, os.path.join(self.target, name))
        sync_path(io, self.target)
        io.unlink(os.path.join(self.target, UNFINISHED_FILE))
        sync_path(io, self.target)
        sync_path(io, os.path.dirname(self.target))

    def _take_back(self) -> None:
        """Leave the directory empty; the mark goes last."""
        if not self._began:
            return
        try:
            for name in self._io.listdir(self.target):
                path = os.path.join(self.target, name)
                if os.path.isdir(path):
                    self._io.rmtree(path)
                elif name != UNFINISHED_FILE:
                    self._io.unlink(path)
            self._io.unlink(os.path.join(self.target, UNFINISHED_FILE))
        except OSError:
            return  # the mark still says that the directory is unfinished


def _existing(path: str) -> str:
    """The path, or the nearest parent folder that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path
