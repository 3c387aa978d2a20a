"""A data directory: its lock, its identity, and the vnodes in it.

After a clean stop `load` opens no segment: it lists folders, and each vnode looks at its own files when first used.
After any other stop it runs recovery on every partition, in threads. The clean-shutdown file is removed before anything
else can be written, so that a crash from then on is seen as one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import resource
import stat
import time
import uuid
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TypeVar

import trio

from barnabas.storage.checkpoints import (
    Checkpoints,
    read_checkpoints,
    read_properties,
    read_topic_id,
    write_checkpoints,
    write_ids,
    write_properties,
)
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import CorruptLogError, StorageError
from barnabas.storage.faults import Fault, fault_of
from barnabas.storage.files import FileCache
from barnabas.storage.flusher import HOLD_SECONDS
from barnabas.storage.io import Io, sync_path, write_file
from barnabas.storage.layout import (
    ADDRESS_FILE,
    CLEAN_FILE,
    DELETE_SUFFIX,
    KAFKA_FILES,
    LOCK_FILE,
    META_FILE,
    UNFINISHED_FILE,
    parse_partition_name,
)
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.recovery import needs_repair, recover_partition, untouched_end
from barnabas.storage.report import Tell, tell_logging
from barnabas.storage.segment import Segment
from barnabas.storage.snapshots import Snapshots
from barnabas.storage.unflushed import LocalFlushJob
from barnabas.storage.vnode import ZERO_ID
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.uuids import encode_uuid

_MAX_NAME = 255
_LOOKS_AT_ONCE = 500
# How often recovery says how far it is in the partitions that it reads.
_TELL_SECONDS = 2.0
# The most fsyncs under way at a time (_AT_ONCE) where more than _ALONE are to be made.
_AT_ONCE = 8
_ALONE = 32
# A damaged segment that could not be mended, for lack of room say, is tried again after this time.
_NEXT_REPAIR_SECONDS = 10.0

T = TypeVar("T")
R = TypeVar("R")

Progress = Callable[[int, int, str], None]
ConfigOf = Callable[[str], LogConfig]


def _unusable(path: str, error: OSError) -> str:
    """Why a data directory cannot be used, with what helps."""
    remedy = {
        errno.ENOSPC: "; make room on its disk, or name another with --data-dir",
        errno.EDQUOT: "; make room on its disk, or name another with --data-dir",
        errno.EACCES: "; let this user write there, or name another with --data-dir",
        errno.EROFS: "; name another with --data-dir",
    }.get(error.errno or 0, "")
    return f"cannot use the data directory {path}: {error.strerror or error}{remedy}"


class DataDir:
    """An open data directory; `open` makes one, `close` ends it. `vnodes` has every partition by (topic, partition)."""

    def __init__(
        self, path: str, *, io: Io, cluster_id: str, node_id: int, directory_id: str, lock_fd: int, tell: Tell
    ) -> None:
        self.path = path
        self.io = io
        self.tell = tell
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.directory_id = directory_id
        self.vnodes: dict[tuple[str, int], LocalVnode] = {}
        self.was_clean = False
        soft_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.cache = FileCache(io, limit=max(16, min(4096, soft_limit // 4)))
        self._lock_fd = lock_fd
        self._limiter = trio.CapacityLimiter(max(2, min(8, os.cpu_count() or 2)))
        self._doomed: list[str] = []
        self._repairs: dict[LocalVnode, Segment] = {}
        self._next_repair: dict[LocalVnode, float] = {}
        self._work_added = trio.Event()
        self._checkpoint_lock = trio.Lock()
        self._stated = Checkpoints()
        self._checkpoints_asked = 0
        self._checkpoints_written = 0  # of those asked: one file serves all who asked before it was begun

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        node_id: int,
        cluster_id: str | None = None,
        io: Io | None = None,
        tell: Tell = tell_logging,
        unfinished: bool = False,
    ) -> DataDir:
        """Take the directory for this process, making it if absent. Raises `StorageError` with a one-line remedy.

        `tell` hears what is found and mended in it. One that is `unfinished` only `storage.takeover` opens.
        """
        io = io or Io()
        path = os.path.abspath(os.fspath(path))
        try:
            os.makedirs(path, io.dir_mode, exist_ok=True)
            if os.stat(path).st_mode & stat.S_ISGID:  # the operator's word that its group reads along
                io.share_with_group()
            lock_fd = io.open(os.path.join(path, LOCK_FILE), os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise StorageError(_unusable(path, error)) from error
        try:
            try:
                fcntl.lockf(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StorageError(
                    f"the data directory {path} is in use by another process: stop it, or use another directory"
                ) from None
            _check_origin(path, unfinished)
            found = cls._identify(io, path, node_id, cluster_id)
            data_dir = cls(
                path,
                io=io,
                cluster_id=found["cluster.id"],
                node_id=node_id,
                directory_id=found.get("directory.id", ""),
                lock_fd=lock_fd,
                tell=tell,
            )
            data_dir._take_clean_mark()
            data_dir._withdraw_address()
        except OSError as error:
            io.close(lock_fd)
            raise StorageError(_unusable(path, error)) from error
        except BaseException:
            io.close(lock_fd)
            raise
        return data_dir

    @staticmethod
    def node_id_of(path: str | os.PathLike[str]) -> int:
        """The node that a data directory belongs to. Raises `StorageError` where there is none."""
        try:
            return int(read_properties(Io(), os.path.join(path, META_FILE))["node.id"])
        except (OSError, ValueError, KeyError):
            raise StorageError(f"{os.fspath(path)} is no data directory: it has no whole {META_FILE}") from None

    @staticmethod
    def _identify(io: Io, path: str, node_id: int, cluster_id: str | None) -> dict[str, str]:
        """The content of `meta.properties`, made on first use."""
        file = os.path.join(path, META_FILE)
        try:
            found = read_properties(io, file)
        except FileNotFoundError:
            found = {
                "version": "1",
                "cluster.id": cluster_id or random_id(),
                "node.id": str(node_id),
                "directory.id": random_id(),
            }
            write_properties(io, file, found)
            return found
        except ValueError:
            found = {}
        if not found.get("version") or not found.get("node.id"):
            raise StorageError(
                f"{file} is damaged: restore it from a backup, or write it anew with the lines version=1, "
                f"node.id={node_id}, and cluster.id as the clients know it"
            )
        if found.get("version") != "1":
            raise StorageError(f"{file} has version {found.get('version')}; only version 1 can be served")
        if cluster_id is not None and found.get("cluster.id") != cluster_id:
            raise StorageError(
                f"the data directory {path} belongs to cluster {found.get('cluster.id')}, not {cluster_id}: "
                "configure that cluster id, or use another directory"
            )
        if found.get("node.id") != str(node_id):
            raise StorageError(
                f"the data directory {path} belongs to node {found.get('node.id')}, not {node_id}: "
                f"set node.id={found.get('node.id')}, or use another directory"
            )
        return {"cluster.id": "", **found}

    def _take_clean_mark(self) -> None:
        mark = os.path.join(self.path, CLEAN_FILE)
        try:
            self.io.unlink(mark)
        except FileNotFoundError:
            return
        sync_path(self.io, self.path)
        self.was_clean = True

    def announce(self, address: str) -> None:
        """Tell readers of the files, in a file beside them, where the broker that serves them listens (HOST:PORT).

        Raises OSError.
        """
        write_file(self.io, os.path.join(self.path, ADDRESS_FILE), f"{address}\n".encode(), sync=False)

    def _withdraw_address(self) -> None:
        try:
            self.io.unlink(os.path.join(self.path, ADDRESS_FILE))
        except FileNotFoundError:
            pass

    async def load(self, progress: Progress | None = None, *, config_of: ConfigOf | None = None) -> None:
        """Fill `vnodes`, mending what an unclean stop left. `progress` hears (done, total, what) on the event loop.

        A partition that cannot be mended is offline; the others are served.
        """
        self._stated = read_checkpoints(self.io, self.path, self.tell)
        keys: list[tuple[str, int]] = []
        for name in self.io.folders(self.path):
            if name.endswith(DELETE_SUFFIX):
                self.discard([os.path.join(self.path, name)])
            elif key := parse_partition_name(name):
                keys.append(key)
        default = LogConfig()

        def look(some: list[tuple[str, int]]) -> list[LocalVnode]:
            """Make the vnodes; those that are to be recovered."""
            found = []
            for key in some:
                vnode = self.vnodes[key] = self._stated_vnode(key, config_of(key[0]) if config_of else default)
                if not self._is_in_order(vnode):
                    found.append(vnode)
            return found

        todo: list[LocalVnode] = []
        for start in range(0, len(keys), _LOOKS_AT_ONCE):
            todo += await trio.to_thread.run_sync(look, keys[start : start + _LOOKS_AT_ONCE], limiter=self._limiter)
            if progress is not None and len(self.vnodes) < len(keys):
                progress(len(self.vnodes), len(keys), "looked at")
        if self._stated.ids is None:
            self._state_ids(self._stated)
        await self._recover(todo, progress)

    def _stated_vnode(self, key: tuple[str, int], config: LogConfig) -> LocalVnode:
        """The vnode of a folder, with what the checkpoints state of it."""
        stated = self._stated
        try:
            topic_id = read_topic_id(self.io, os.path.join(self.path, f"{key[0]}-{key[1]}"))
        except OSError:  # the vnode meets it again, and is offline
            topic_id = None
        start, point = stated.of(key, topic_id or "")
        vnode = self._vnode(
            key,
            config,
            log_start_offset=start,
            recovery_point=point,
            cleaned_to=stated.cleaned_of(key, topic_id or ""),
        )
        if topic_id is not None:
            vnode.note_topic_id(topic_id)
        return vnode

    def _is_in_order(self, vnode: LocalVnode) -> bool:
        """Whether a partition needs no recovery: by how the last stop was, or as nothing was written to it."""
        try:
            if self.was_clean:
                return not needs_repair(self.io, vnode.directory)
            end = untouched_end(self.io, vnode.directory, vnode.recovery_point)
        except OSError:  # recovery meets it, too
            return False
        if end is not None:
            vnode.recovery_point = end
        return end is not None

    def _state_ids(self, stated: Checkpoints) -> None:
        """The checkpoints are Kafka's, or of an earlier version: from now on they speak of the topics that there are.

        Raises `StorageError`.
        """
        stated.ids = {key: encode_uuid(vnode.topic_id) for key, vnode in self.vnodes.items()}
        try:
            write_ids(self.io, self.path, stated)
        except OSError as error:
            raise StorageError(f"cannot write checkpoints in {self.path}: {error}") from error

    async def _recover(self, vnodes: list[LocalVnode], progress: Progress | None) -> None:
        done = 0
        total = len(vnodes)
        under_way: dict[str, tuple[int, int]] = {}

        async def worker() -> None:
            nonlocal done
            while vnodes:
                vnode = vnodes.pop()
                name = f"{vnode.topic}-{vnode.partition}"
                try:
                    vnode.recovery_point = await trio.to_thread.run_sync(
                        recover_partition,
                        self.io,
                        vnode.directory,
                        vnode.recovery_point,
                        vnode.config,
                        self.tell,
                        functools.partial(_note_read, under_way, name),
                        limiter=self._limiter,
                    )
                except OSError as error:
                    vnode.refused("recovery", error)
                    vnode.needs_recovery = True
                except CorruptLogError as error:
                    vnode.fail("recovery", error)
                done += 1
                under_way.pop(name, None)
                if progress is not None:
                    progress(done, total, name)
            if done == total:
                telling.cancel()

        async def tell_how_far() -> None:
            """A large partition takes long: say how far the one is that has most to go."""
            with telling:
                while progress is not None:
                    await trio.sleep(_TELL_SECONDS)
                    if under_way:
                        name, (read, size) = max([*under_way.items()], key=lambda item: item[1][1] - item[1][0])
                        progress(done, total, f"{name}, {read >> 20} of {size >> 20} MiB")

        telling = trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell_how_far)
            for _ in range(min(total, int(self._limiter.total_tokens))):
                nursery.start_soon(worker)
            if not total:
                telling.cancel()

    def _vnode(
        self,
        key: tuple[str, int],
        config: LogConfig,
        *,
        log_start_offset: int,
        recovery_point: int,
        cleaned_to: int = 0,
    ) -> LocalVnode:
        vnode = LocalVnode(
            os.path.join(self.path, f"{key[0]}-{key[1]}"),
            key[0],
            key[1],
            config,
            io=self.io,
            cache=self.cache,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            cleaned_to=cleaned_to,
            discard=self.discard,
            tell=self.tell,
        )
        vnode.on_damage = self._note_damage
        return vnode

    def create_vnode(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, *, first_offset: int = 0
    ) -> LocalVnode:
        """A new, empty partition; durable with its first flush. It takes nothing over from a folder in its place.

        That may be one of a deleted topic that could not be renamed, or of a creation that did not finish.

        Raises `KafkaError` TOPIC_ALREADY_EXISTS, `StorageError`.
        """
        key = (topic, partition)
        known = self.vnodes.get(key)
        if known is not None and not (known.topic_id == ZERO_ID and known.error is None and known.log_end_offset == 0):
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"partition {topic}-{partition} exists")
        vnode = self._vnode(key, config, log_start_offset=first_offset, recovery_point=first_offset)
        if known is not None:
            known.abandon()
        try:
            self._clear_place(key)
            vnode.create(topic_id)
        except OSError as error:
            raise StorageError(f"cannot make room for {topic}-{partition}: {error}") from error
        except StorageError:
            self.io.rmtree(vnode.directory)
            raise
        self.vnodes[key] = vnode
        return vnode

    def _clear_place(self, key: tuple[str, int]) -> None:
        try:
            self._doom(key)
        except FileNotFoundError:
            return

    def _doom(self, key: tuple[str, int]) -> None:
        """Rename a partition's folder, to be deleted in a thread. Raises OSError."""
        ending = f"-{key[1]}.{uuid.uuid4().hex}{DELETE_SUFFIX}"
        target = os.path.join(self.path, key[0][: _MAX_NAME - len(ending)] + ending)
        self.io.replace(os.path.join(self.path, f"{key[0]}-{key[1]}"), target)
        self.discard([target])

    def delete_vnode(self, topic: str, partition: int) -> None:
        """Take a partition away: gone for every caller now, its files soon after. Readers keep the slices they have."""
        vnode = self.vnodes.get((topic, partition))
        if vnode is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no partition {topic}-{partition}")
        try:
            self._doom((topic, partition))
        except OSError as error:
            raise vnode.refused("delete", error) from error
        del self.vnodes[(topic, partition)]
        vnode.abandon()

    def snapshots(self, topic: str, partition: int) -> Snapshots:
        """The snapshots beside the log of a partition."""
        return Snapshots(self.io, os.path.join(self.path, f"{topic}-{partition}"))

    def sync(self) -> None:
        """Make it durable which folders there are; for a thread. Raises OSError."""
        sync_path(self.io, self.path)

    def close_segment(self, key: tuple[str, int], now_ms: int) -> None:
        """End the active segment of a partition, on disk. Raises `StorageError`."""
        self.vnodes[key].roll(now_ms)
        self.vnodes[key].flush()

    def discard(self, paths: list[str]) -> None:
        """Files and folders for `run` to delete in a thread."""
        self._doomed += paths
        self._work_added.set()

    async def run(
        self,
        *,
        checkpoint_interval: float = 60,
        on_error: Callable[[StorageError], None] = lambda error: None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Delete what is discarded, mend damaged segments, and write checkpoints now and then, until cancelled.

        A checkpoint that cannot be written is told to `on_error`: it costs a longer recovery, and is tried again.
        """
        task_status.started()
        next_checkpoint = trio.current_time() + checkpoint_interval
        while True:
            with trio.move_on_at(next_checkpoint):
                await self._work_added.wait()
            await self.delete_discarded()
            await self.mend_damaged()
            if trio.current_time() >= next_checkpoint:
                try:
                    await self.checkpoint()
                except StorageError as error:
                    on_error(error)
                next_checkpoint = trio.current_time() + checkpoint_interval

    def _note_damage(self, vnode: LocalVnode, segment: Segment) -> None:
        """A reader has met damage in a segment. What could not be mended is not tried again at once."""
        if trio.current_time() >= self._next_repair.get(vnode, 0):
            self._repairs[vnode] = segment
            self._work_added.set()

    async def mend_damaged(self) -> None:
        """Set the damage aside that readers have met."""
        while self._repairs:
            vnode, segment = self._repairs.popitem()
            error: OSError | None = None
            try:
                job = vnode.begin_repair(segment)
            except StorageError:  # no room to roll, say; its readers ask again
                job = None
            if job is None:
                continue
            try:
                await trio.to_thread.run_sync(job.run, limiter=self._limiter)
            except OSError as caught:
                error = caught
            if vnode.end_repair(job, error):
                self._next_repair.pop(vnode, None)
            else:
                self._next_repair[vnode] = trio.current_time() + _NEXT_REPAIR_SECONDS

    async def delete_discarded(self) -> None:
        paths, self._doomed = self._doomed, []
        self._work_added = trio.Event()
        if paths:
            await trio.to_thread.run_sync(self._delete, paths, limiter=self._limiter)

    def _delete(self, paths: list[str]) -> None:
        """What cannot be deleted now is found again, by its name, at the next start.

        A folder's new name is on disk before anything in it goes: half a folder under its old name, without the file
        that has its topic's id, would be taken for one that was copied in from elsewhere.
        """
        renamed = False
        for path in paths:
            try:
                if path.endswith(DELETE_SUFFIX):
                    if not renamed:
                        sync_path(self.io, self.path)
                        renamed = True
                    self.io.rmtree(path)
                else:
                    self.io.unlink(path)
            except OSError:
                pass

    def disk_space(self) -> tuple[int, int]:
        """Bytes that the disk has, and bytes of it that may be used. For a thread. Raises OSError."""
        disk = os.statvfs(self.path)
        return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize

    @property
    def most_open_files(self) -> int:
        """How many segment files are open at a time, about."""
        return self.cache.limit

    async def checkpoint(self) -> None:
        """State on disk how far each partition is durable, and where it starts. Raises `StorageError`.

        Those who come while one is written share the next one, however many they are.
        """
        self._checkpoints_asked += 1
        asked = self._checkpoints_asked
        async with self._checkpoint_lock:
            if self._checkpoints_written >= asked:
                return
            covers = self._checkpoints_asked
            found = Checkpoints()
            assert found.ids is not None
            paths: list[str] = []
            async for key, vnode in self._all_vnodes():
                with contextlib.suppress(StorageError):  # a folder that cannot be read has nothing to state
                    topic_id = found.ids[key] = encode_uuid(vnode.topic_id)
                    before = self._stated.of(key, topic_id)[1]
                    # The point first: index entries below it are written and synced before it is stated.
                    point, found.points[key] = vnode.recovery_point, before
                    if start := vnode.checkpointed_start:
                        found.starts[key] = start
                    if cleaned := vnode.cleaned_to:
                        found.cleaned[key] = cleaned
                    indexes = vnode.write_indexes()
                    found.points[key] = point
                    if point != before:
                        paths += indexes
            if found != self._stated:
                await self._write_checkpoints(found, paths)
            self._checkpoints_written = covers

    async def _all_vnodes(self) -> AsyncIterator[tuple[tuple[str, int], LocalVnode]]:
        """Every partition; others have their turn in between, and what they delete is left out."""
        until = time.perf_counter() + HOLD_SECONDS
        for key, vnode in list(self.vnodes.items()):
            if time.perf_counter() > until:
                await trio.lowlevel.checkpoint()
                until = time.perf_counter() + HOLD_SECONDS
            if self.vnodes.get(key) is vnode:
                yield key, vnode

    async def _write_checkpoints(self, found: Checkpoints, paths: list[str]) -> None:
        """Raises `StorageError`. On a full disk what is discarded goes first, as that may make room."""

        def write() -> None:
            self._sync(paths)
            write_checkpoints(self.io, self.path, found, self._stated)

        try:
            try:
                await trio.to_thread.run_sync(write, limiter=self._limiter)
            except OSError as error:
                if fault_of(error) is not Fault.SPACE or not self._doomed:
                    raise
                await self.delete_discarded()
                await trio.to_thread.run_sync(write, limiter=self._limiter)
        except OSError as error:
            raise StorageError(f"cannot write checkpoints in {self.path}: {error}") from error
        self._stated = found

    async def close(self) -> None:
        """Flush and close every vnode, state that the stop was clean, and give the directory free.

        When a vnode is offline the statement is left out, so that the next start recovers. The flusher has ended.
        """
        with trio.CancelScope(shield=True):
            try:
                self._withdraw_address()
                if await self._close_vnodes():
                    await self.checkpoint()
                    await trio.to_thread.run_sync(self._write_clean_mark, limiter=self._limiter)
                await self.delete_discarded()
            except (OSError, StorageError):
                pass  # not clean, then
            finally:
                if self._lock_fd >= 0:
                    self.io.close(self._lock_fd)
                    self._lock_fd = -1

    async def _close_vnodes(self) -> bool:
        def flush(owed: tuple[LocalVnode, LocalFlushJob]) -> OSError | None:
            try:
                owed[1].run()
            except OSError as error:
                return error
            return None

        clean = True
        jobs: list[tuple[LocalVnode, LocalFlushJob]] = []
        used = [vnode for vnode in self.vnodes.values() if vnode.loaded]
        for vnode in used:
            job = vnode.begin_flush()
            if job is not None:
                jobs.append((vnode, job))
        errors = await trio.to_thread.run_sync(_together, flush, jobs, limiter=self._limiter)
        for (vnode, job), error in zip(jobs, errors, strict=True):
            vnode.end_flush(job, error)
        paths: list[str] = []
        for vnode in self.vnodes.values():
            try:
                if vnode.error is not None:
                    raise vnode.error
                paths += vnode.close()
            except StorageError:
                clean = False
        await trio.to_thread.run_sync(self._sync, paths, limiter=self._limiter)
        return clean

    def _sync(self, paths: list[str]) -> None:
        _together(functools.partial(sync_path, self.io), paths)

    def _write_clean_mark(self) -> None:
        """A power loss that takes it costs a recovery, and nothing else."""
        write_file(self.io, os.path.join(self.path, CLEAN_FILE), b'{"version":0,"brokerEpoch":-1}', sync=False)

    async def __aenter__(self) -> DataDir:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _note_read(under_way: dict[str, tuple[int, int]], name: str, read: int, size: int) -> None:
    under_way[name] = read, size


def _check_origin(path: str, unfinished: bool) -> None:
    """Raises `StorageError` for a directory that a broker must not serve as it is."""
    if not unfinished and os.path.exists(os.path.join(path, UNFINISHED_FILE)):
        raise StorageError(f"the import into {path} was cut off: delete the directory, and import again")
    if any(os.path.exists(os.path.join(path, name)) for name in KAFKA_FILES):
        raise StorageError(
            f"{path} is a data directory of Apache Kafka: take it over with 'barnabas import-kafka-logs {path} "
            "--data-dir NEW', and serve that"
        )


def _together(call: Callable[[T], R], items: list[T]) -> list[R]:
    """What the calls give, in order. Many run a few at a time: fsyncs that do share a commit of the journal."""
    if len(items) <= _ALONE:
        return [call(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor  # takes long to load, and a start does without

    with ThreadPoolExecutor(_AT_ONCE, "sync") as pool:
        return list(pool.map(call, items))


def random_id() -> str:
    """A random id as Kafka prints its UUIDs."""
    return encode_uuid(uuid.uuid4().bytes)
