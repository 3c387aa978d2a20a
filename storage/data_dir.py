"""A data directory and the vnodes in it.

After a clean stop `load` opens no segment: it lists folders, and each vnode reads its own files when it is first used.
After any other stop it runs recovery on every partition, in threads (`starting`). `claim` has the lock and the
identity, `statements` the checkpoints, and `upkeep` the deletions and repairs that run meanwhile.

If several nodes share the directory, each opens the partitions that it is given, may take more and give some away
(`take`, `give`, `storage.stated`), and touches no other folder. A folder that ends in `-delete` belongs to no node, so
any start deletes it: the node that had it has renamed it for good, and deleting it twice is harmless.
"""

from __future__ import annotations

import contextlib
import os
import resource
import uuid
from collections.abc import Callable, Collection
from types import TracebackType

import trio

from barnabas.storage.checkpoints import Checkpoints, decode_topic_id, read_topic_id
from barnabas.storage.claim import Claim, NodeClaim
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import StorageError
from barnabas.storage.files import FileCache
from barnabas.storage.handover import put_away, resign, sweep
from barnabas.storage.io import Io, sync_path
from barnabas.storage.layout import DELETE_SUFFIX, parse_partition_name
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.report import Tell, tell_logging
from barnabas.storage.snapshots import Snapshots
from barnabas.storage.starting import Progress, is_in_order, recover
from barnabas.storage.stated import Stated
from barnabas.storage.statements import NodeStatements, Statements, Vnodes
from barnabas.storage.upkeep import Upkeep
from barnabas.storage.vnode import ZERO_ID
from barnabas.wire.aliases import TopicPartition
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
        #: Whether `load` is done. Until then `vnodes` is not complete.
        self._is_loaded = False
        self._folders: list[tuple[str, int]] | None = None
        soft_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.cache = FileCache(io, limit=max(16, min(4096, soft_limit // 4)))
        self._limiter = trio.CapacityLimiter(max(2, min(8, os.cpu_count() or 2)))
        self.upkeep = Upkeep(io, claim.path, self._limiter)
        self._note_damage = self.upkeep.note_damage  # one for all vnodes
        #: The node's statements if several nodes share the directory, else None.
        self._node: NodeStatements | None = None
        if isinstance(claim, NodeClaim):
            self._node = NodeStatements(io, claim.path, claim.node_id, claim.home, self._limiter, self.upkeep)
        self._statements = self._node or Statements(io, claim.path, self._limiter, self.upkeep)
        self._is_read = False  # whether the checkpoints are read
        self._taking, self._giving = trio.Lock(), trio.Lock()

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
        member: bool = False,
    ) -> DataDir:
        """Take the directory for this process; make it if it is absent. Raises `StorageError` with a one-line remedy.

        `tell` gets reports of what is found and repaired. Only `storage.takeover` opens an `unfinished` directory.
        A `member` is one of several nodes, under a supervisor that holds the directory.
        """
        io = io or Io()
        path = os.path.abspath(os.fspath(path))
        if member:
            return cls(NodeClaim.join(io, path, node_id=node_id, cluster_id=cluster_id), io=io, tell=tell)
        claim = Claim.take(io, path, node_id=node_id, cluster_id=cluster_id, unfinished=unfinished, tell=tell)
        return cls(claim, io=io, tell=tell)

    async def load(
        self,
        progress: Progress | None = None,
        *,
        config_of: ConfigOf | None = None,
        keys: Collection[TopicPartition] | None = None,
    ) -> None:
        """Fill `vnodes`, with recovery after an unclean stop. `progress` gets (done, total, what) on the event loop.

        A partition that cannot be recovered is offline; the others are served. A member says which `keys` it leads.
        """
        default = LogConfig()
        if self._node is not None:
            assert keys is not None
            await self.take(keys, config_of or (lambda topic: default), progress)
            self._is_loaded = True
            return
        await self._load(await self._look(), progress, config_of or (lambda topic: default))
        self._statements.name_topics(self.vnodes)
        self._folders, self._is_loaded = [], True

    async def load_first(self, key: tuple[str, int], config: LogConfig) -> LocalVnode | None:
        """Load one partition before all others: it may decide how they are loaded. None if it has no folder."""
        if self._node is not None:
            await self.take([key], lambda topic: config)
            return self.vnodes.get(key)
        if key not in await self._look():
            return None
        await self._load([key], None, lambda topic: config)
        return self.vnodes[key]

    async def folders(self) -> list[TopicPartition]:
        """Every partition that has a folder, whichever node leads it. Raises OSError."""
        names = await trio.to_thread.run_sync(self.io.folders, self.path, limiter=self._limiter)
        return [key for name in names if (key := parse_partition_name(name))]

    @property
    def is_shared(self) -> bool:
        """Whether other nodes share the directory, so that partitions can come and go."""
        return self._node is not None

    async def sweep(self, removed: Collection[bytes]) -> list[TopicPartition]:
        """Remove the folders of topics with these ids that no vnode of this node uses. Gives their partitions.

        Such folders remain if a node ended before it heard that the topic was removed. Raises OSError.
        """
        keys = [key for key in await self.folders() if key not in self.vnodes]

        def of_removed() -> list[TopicPartition]:
            return [key for key in keys if self._id_in_place(key) in removed]

        found = []
        for key in await trio.to_thread.run_sync(of_removed, limiter=self._limiter):
            with contextlib.suppress(FileNotFoundError):  # another node was quicker
                self._doom(key)
                found.append(key)
        return found

    # -- partitions that come from other nodes and go to them ----------------------------------------------------------

    async def take(
        self, keys: Collection[TopicPartition], config_of: ConfigOf, progress: Progress | None = None
    ) -> list[TopicPartition]:
        """Add these partitions to `vnodes` as the last node left them; recover them if necessary.

        Gives the partitions that have no folder, for `create_vnode`. This node's ownership is on disk before a
        partition is used. Raises `StorageError` if it cannot be written; then the partitions are as before.
        """
        node = self._node
        assert node is not None
        async with self._taking:
            stated, folders = await trio.to_thread.run_sync(self._read_stated, node, limiter=self._limiter)
            wanted = [key for key in dict.fromkeys(keys) if key not in self.vnodes]
            new: Vnodes = {}
            await self._load([key for key in wanted if key in folders], progress, config_of, stated, new)
            node.begin({key: vnode for key, vnode in new.items() if vnode.error is None})
            try:
                await node.write_turns()
            except BaseException:
                node.not_begun(new)
                raise
            node.begun(new)
            self.vnodes |= new
            return [key for key in wanted if key not in folders]

    def _read_stated(self, node: NodeStatements) -> tuple[Stated, set[TopicPartition]]:
        """The checkpoints of all nodes, and the partitions that have a folder. For a thread."""
        try:
            if not self._is_read:
                node.read_own(self.tell)
            stated = node.read_others(self.tell)
            names = self.io.folders(self.path)
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {error}") from error
        if not self._is_read:
            doomed = [os.path.join(self.path, name) for name in names if name.endswith(DELETE_SUFFIX)]
            trio.from_thread.run_sync(self.upkeep.discard, doomed)
        self._is_read = True
        return stated, {key for name in names if (key := parse_partition_name(name))}

    async def give(self, keys: Collection[TopicPartition]) -> None:
        """Give partitions away: when this returns, another node may take them.

        As soon as this begins they refuse every call with NOT_LEADER_OR_FOLLOWER, and waiting calls fail too. When it
        returns, all their data is on disk and no thread works on their files. If a write to the disk fails, the next
        node recovers the partition.
        """
        node = self._node
        assert node is not None
        async with self._giving:
            given = {key: vnode for key in dict.fromkeys(keys) if (vnode := self.vnodes.get(key)) is not None}
            vnodes = list(given.values())
            for vnode in vnodes:
                self.upkeep.forget(vnode)
            await resign(vnodes)
            whole = await put_away(self.io, vnodes, self._limiter)
            await self.upkeep.delete_discarded_in({vnode.directory for vnode in vnodes})
            whole &= await sweep(vnodes, self._limiter)
            given = {key: vnode for key, vnode in given.items() if self.vnodes.get(key) is vnode}  # else deleted
            for key, vnode in given.items():
                node.leave(key, vnode, closed=vnode in whole)
            try:
                await node.write_turns()
            except StorageError as error:
                self.tell("given.not.stated", partitions=len(given), reason=error)
            for key, vnode in given.items():
                if self.vnodes.get(key) is vnode:
                    del self.vnodes[key]

    # -- existing partitions -------------------------------------------------------------------------------------------

    async def _look(self) -> list[tuple[str, int]]:
        """The partitions that have a folder and no vnode. The first call reads the checkpoints."""
        if self._folders is None:
            doomed, folders = await trio.to_thread.run_sync(self._read_folders, limiter=self._limiter)
            self.upkeep.discard(doomed)
            self._folders = folders
        return [key for key in self._folders if key not in self.vnodes]

    def _read_folders(self) -> tuple[list[str], list[tuple[str, int]]]:
        """Read the checkpoints; gives the folders to delete, and the partitions. For a thread. Raises OSError."""
        self._statements.read(self.tell)
        names = self.io.folders(self.path)
        doomed = [os.path.join(self.path, name) for name in names if name.endswith(DELETE_SUFFIX)]
        keys = [parse_partition_name(name) for name in names if not name.endswith(DELETE_SUFFIX)]
        return doomed, [key for key in keys if key is not None]

    async def _load(
        self,
        keys: list[TopicPartition],
        progress: Progress | None,
        config_of: ConfigOf,
        stated: Stated | None = None,
        into: Vnodes | None = None,
    ) -> None:
        into = self.vnodes if into is None else into

        def look(some: list[TopicPartition]) -> list[LocalVnode]:
            """Make the vnodes; gives those that need recovery."""
            found = []
            for key in some:
                vnode, was_closed = self._stated_vnode(key, config_of(key[0]), stated)
                into[key] = vnode
                if vnode.error is None and not is_in_order(self.io, vnode, was_closed):
                    found.append(vnode)
            return found

        todo: list[LocalVnode] = []
        for start in range(0, len(keys), _LOOKS_AT_ONCE):
            todo += await trio.to_thread.run_sync(look, keys[start : start + _LOOKS_AT_ONCE], limiter=self._limiter)
            looked = min(start + _LOOKS_AT_ONCE, len(keys))
            if progress is not None and looked < len(keys):
                progress(looked, len(keys), "looked at")
        await recover(self.io, todo, self._limiter, self.tell, progress)

    def _stated_vnode(self, key: TopicPartition, config: LogConfig, by_all: Stated | None) -> tuple[LocalVnode, bool]:
        """The vnode of a folder, with what the checkpoints say of it; and whether it was left in order."""
        stated: Checkpoints | Stated = self._statements.stated if by_all is None else by_all
        unread: OSError | None = None
        try:
            topic_id = read_topic_id(self.io, os.path.join(self.path, f"{key[0]}-{key[1]}"))
        except OSError as error:  # the vnode gets the same error, and is offline
            topic_id, unread = None, error
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
        elif by_all is not None and unread is not None:  # it could have no checkpoint entry
            vnode.fail("read the topic id", unread)
        return vnode, self.claim.was_clean if by_all is None else by_all.is_closed(key, topic_id or "")

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
        """Make a new, empty partition; durable with its first flush. It keeps nothing of a folder in its place.

        Such a folder may be of a deleted topic that could not be renamed, or of a creation that did not finish.

        Raises `KafkaError` TOPIC_ALREADY_EXISTS, `StorageError`.
        """
        key = (topic, partition)
        known = self.vnodes.get(key)
        if known is not None and not (known.topic_id == ZERO_ID and known.error is None and known.log_end_offset == 0):
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"partition {topic}-{partition} exists")
        if self._node is not None:
            self._check_place(key, topic_id)
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
        if self._node is not None:
            self._node.hold(key, vnode)
            self._node.begun([key])
        self.vnodes[key] = vnode
        return vnode

    def _check_place(self, key: TopicPartition, topic_id: bytes) -> None:
        """Raises `StorageError` if the new partition's place has a folder that may be another node's."""
        try:
            found = self._id_in_place(key)
        except OSError as error:
            raise StorageError(f"cannot make room for {key[0]}-{key[1]}: {error}") from error
        if found == topic_id and key not in self.vnodes:
            raise StorageError(f"{key[0]}-{key[1]} has a folder already, which another node may use")

    def _id_in_place(self, key: TopicPartition) -> bytes | None:
        """The topic id of the folder in a partition's place; None if there is no folder. Raises OSError."""
        directory = os.path.join(self.path, f"{key[0]}-{key[1]}")
        return decode_topic_id(read_topic_id(self.io, directory)) if os.path.exists(directory) else None

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
        """Remove a partition: at once for every caller, its files soon after. Readers keep the slices they have."""
        vnode = self.vnodes.get((topic, partition))
        if vnode is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no partition {topic}-{partition}")
        key = topic, partition
        try:
            # With several nodes, another node may have made the next topic's folder there already.
            if self._node is None or self._id_in_place(key) == vnode.topic_id:
                self._doom(key)
        except OSError as error:
            raise vnode.refused("delete", error) from error
        if self._node is not None:
            self._node.forget(key)
        del self.vnodes[(topic, partition)]
        vnode.abandon()

    def snapshots(self, topic: str, partition: int) -> Snapshots:
        """The snapshots beside the log of a partition."""
        return Snapshots(self.io, os.path.join(self.path, f"{topic}-{partition}"))

    def sync(self) -> None:
        """Sync the directory, so that its list of folders is durable; for a thread. Raises OSError."""
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
        """Delete discarded files, repair damaged segments, and write checkpoints regularly, until cancelled.

        If a checkpoint cannot be written, `on_error` gets the error and the write is tried again. Recovery may take
        longer.
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
                    if self._node is not None:
                        await self._node.forget_deleted()
                    await self.checkpoint()
                except StorageError as error:
                    on_error(error)
                next_checkpoint = trio.current_time() + checkpoint_interval

    def disk_space(self) -> tuple[int, int]:
        """The disk's size in bytes, and the bytes that may still be used. For a thread. Raises OSError."""
        disk = os.statvfs(self.path)
        return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize

    @property
    def most_open_files(self) -> int:
        """About how many segment files may be open at a time."""
        return self.cache.limit

    async def checkpoint(self) -> None:
        """Write to disk how far each partition is durable, and where it starts. Raises `StorageError`."""
        await self._statements.write(self.vnodes)

    async def close(self) -> None:
        """Flush and close every vnode, write that the stop was clean, and release the directory.

        If a vnode is offline, or `load` was not done, the stop is not marked as clean, so that the next start
        recovers. The flusher must have ended before.
        """
        with trio.CancelScope(shield=True):
            try:
                self.claim.withdraw_address()
                vnodes = dict(self.vnodes)
                whole = await put_away(self.io, vnodes.values(), self._limiter)
                if self._node is not None:
                    for key, vnode in vnodes.items():
                        self._node.leave(key, vnode, closed=vnode in whole)
                    await self._node.write_turns()
                elif len(whole) == len(vnodes) and self._is_loaded:
                    await self.checkpoint()
                    await trio.to_thread.run_sync(self.claim.write_clean_mark, limiter=self._limiter)
                await self.upkeep.delete_discarded()
            except (OSError, StorageError):
                pass  # then the stop is not clean
            finally:
                self.claim.release()

    async def __aenter__(self) -> DataDir:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
