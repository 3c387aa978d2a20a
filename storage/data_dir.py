"""A data directory and the vnodes in it.

After a clean stop `load` opens no segment: it lists folders, and each vnode looks at its own files when first used.
After any other stop it runs recovery on every partition, in threads (`starting`). `claim` has the lock and the
identity, `statements` the checkpoints, and `upkeep` what is deleted and mended meanwhile.
"""

from __future__ import annotations

import os
import resource
import uuid
from collections.abc import Callable
from types import TracebackType

import trio

from barnabas.storage.checkpoints import read_topic_id
from barnabas.storage.claim import Claim
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import StorageError
from barnabas.storage.files import FileCache
from barnabas.storage.io import Io, a_few_at_a_time, sync_all, sync_path
from barnabas.storage.layout import DELETE_SUFFIX, parse_partition_name
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.report import Tell, tell_logging
from barnabas.storage.snapshots import Snapshots
from barnabas.storage.starting import Progress, is_in_order, recover
from barnabas.storage.statements import Statements
from barnabas.storage.unflushed import LocalFlushJob
from barnabas.storage.upkeep import Upkeep
from barnabas.storage.vnode import ZERO_ID
from barnabas.wire.errors import ErrorCode, KafkaError

_MAX_NAME = 255
_LOOKS_AT_ONCE = 500

ConfigOf = Callable[[str], LogConfig]


class DataDir:
    """An open data directory; `open` makes one, `close` ends it. `vnodes` has every partition by (topic, partition)."""

    def __init__(self, claim: Claim, *, io: Io, tell: Tell) -> None:
        self.claim = claim
        self.path = claim.path
        self.io = io
        self.tell = tell
        self.vnodes: dict[tuple[str, int], LocalVnode] = {}
        #: Whether `load` has been through: until then `vnodes` does not say what is there.
        self._is_loaded = False
        self._folders: list[tuple[str, int]] | None = None
        soft_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.cache = FileCache(io, limit=max(16, min(4096, soft_limit // 4)))
        self._limiter = trio.CapacityLimiter(max(2, min(8, os.cpu_count() or 2)))
        self.upkeep = Upkeep(io, claim.path, self._limiter)
        self._note_damage = self.upkeep.note_damage  # one for all vnodes
        self._statements = Statements(io, claim.path, self._limiter, self.upkeep)

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
        claim = Claim.take(io, path, node_id=node_id, cluster_id=cluster_id, unfinished=unfinished)
        return cls(claim, io=io, tell=tell)

    async def load(self, progress: Progress | None = None, *, config_of: ConfigOf | None = None) -> None:
        """Fill `vnodes`, mending what an unclean stop left. `progress` hears (done, total, what) on the event loop.

        A partition that cannot be mended is offline; the others are served.
        """
        default = LogConfig()
        await self._load(self._look(), progress, config_of or (lambda topic: default))
        self._statements.name_topics(self.vnodes)
        self._folders, self._is_loaded = [], True

    async def load_first(self, key: tuple[str, int], config: LogConfig) -> LocalVnode | None:
        """Load one partition before all others, as it may say how these are loaded; None if it has no folder."""
        if key not in self._look():
            return None
        await self._load([key], None, lambda topic: config)
        return self.vnodes[key]

    def _look(self) -> list[tuple[str, int]]:
        """The partitions that have a folder and no vnode. The first look reads what is stated of them."""
        if self._folders is None:
            self._statements.read(self.tell)
            self._folders = []
            for name in self.io.folders(self.path):
                if name.endswith(DELETE_SUFFIX):
                    self.upkeep.discard([os.path.join(self.path, name)])
                elif key := parse_partition_name(name):
                    self._folders.append(key)
        return [key for key in self._folders if key not in self.vnodes]

    async def _load(self, keys: list[tuple[str, int]], progress: Progress | None, config_of: ConfigOf) -> None:
        def look(some: list[tuple[str, int]]) -> list[LocalVnode]:
            """Make the vnodes; those that are to be recovered."""
            found = []
            for key in some:
                vnode = self.vnodes[key] = self._stated_vnode(key, config_of(key[0]))
                if not is_in_order(self.io, vnode, self.claim.was_clean):
                    found.append(vnode)
            return found

        todo: list[LocalVnode] = []
        for start in range(0, len(keys), _LOOKS_AT_ONCE):
            todo += await trio.to_thread.run_sync(look, keys[start : start + _LOOKS_AT_ONCE], limiter=self._limiter)
            looked = min(start + _LOOKS_AT_ONCE, len(keys))
            if progress is not None and looked < len(keys):
                progress(looked, len(keys), "looked at")
        await recover(self.io, todo, self._limiter, self.tell, progress)

    def _stated_vnode(self, key: tuple[str, int], config: LogConfig) -> LocalVnode:
        """The vnode of a folder, with what the checkpoints state of it."""
        stated = self._statements.stated
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
            discard=self.upkeep.discard,
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
        self.upkeep.discard([target])

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
                await self.upkeep.added.wait()
            await self.upkeep.delete_discarded()
            await self.upkeep.mend_damaged()
            if trio.current_time() >= next_checkpoint:
                try:
                    await self.checkpoint()
                except StorageError as error:
                    on_error(error)
                next_checkpoint = trio.current_time() + checkpoint_interval

    def disk_space(self) -> tuple[int, int]:
        """Bytes that the disk has, and bytes of it that may be used. For a thread. Raises OSError."""
        disk = os.statvfs(self.path)
        return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize

    @property
    def most_open_files(self) -> int:
        """How many segment files are open at a time, about."""
        return self.cache.limit

    async def checkpoint(self) -> None:
        """State on disk how far each partition is durable, and where it starts. Raises `StorageError`."""
        await self._statements.write(self.vnodes)

    async def close(self) -> None:
        """Flush and close every vnode, state that the stop was clean, and give the directory free.

        When a vnode is offline, or `load` did not come to its end, the statement is left out, so that the next start
        recovers. The flusher has ended.
        """
        with trio.CancelScope(shield=True):
            try:
                self.claim.withdraw_address()
                if await self._close_vnodes() and self._is_loaded:
                    await self.checkpoint()
                    await trio.to_thread.run_sync(self.claim.write_clean_mark, limiter=self._limiter)
                await self.upkeep.delete_discarded()
            except (OSError, StorageError):
                pass  # not clean, then
            finally:
                self.claim.release()

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
        errors = await trio.to_thread.run_sync(a_few_at_a_time, flush, jobs, limiter=self._limiter)
        for (vnode, job), error in zip(jobs, errors, strict=True):
            vnode.end_flush(job, error)
        paths: list[str] = []
        for vnode in self.vnodes.values():
            try:
                if vnode.error is not None:
                    raise vnode.error
                paths += vnode.close()
                clean = clean and not vnode.needs_recovery
            except StorageError:
                clean = False
        await trio.to_thread.run_sync(sync_all, self.io, paths, limiter=self._limiter)
        return clean

    async def __aenter__(self) -> DataDir:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
