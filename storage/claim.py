"""The owner of a data directory: the lock that keeps other processes out, the ids in `meta.properties`, and marks.

The clean-shutdown file is removed before anything else is written, so that a later crash is recognized.

If several nodes share a directory, a supervisor holds `.lock`, as a broker with one process does, and each node holds
the lock of its own folder, `nodes/ID/.lock`. A node may outlive its supervisor for a moment. So a process that gets
`.lock` checks the nodes' locks, too. `.lock` is a POSIX lock, like Kafka's, and so keeps Kafka out. The process loses
it when it closes any of its descriptors of that file. The nodes' locks are made with `flock`: they end with the
descriptor that took them, and also separate two nodes in one process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import uuid
from collections.abc import Iterator

from barnabas.storage.checkpoints import read_properties, write_properties
from barnabas.storage.errors import NodeRunsError, StorageError
from barnabas.storage.io import Io, sync_path, write_file
from barnabas.storage.layout import (
    ADDRESS_FILE,
    CLEAN_FILE,
    KAFKA_FILES,
    LOCK_FILE,
    META_FILE,
    NODES_FOLDER,
    UNFINISHED_FILE,
    is_locked,
    node_folder,
    node_ids,
)
from barnabas.storage.report import Tell, tell_logging
from barnabas.storage.stated import CLEAN_MARK, fold, states_no_ids
from barnabas.wire.uuids import encode_uuid

# The directories whose `.lock` a process holds, with its process id, because a child process does not inherit the lock.
# A check by opening the file would release the lock.
_held: dict[str, int] = {}


class Claim:
    """A data directory that belongs to this process until `release`."""

    def __init__(self, io: Io, path: str, lock_fd: int, identity: dict[str, str], *, was_clean: bool) -> None:
        self.path = path
        self.cluster_id = identity["cluster.id"]
        #: Whether the process before stopped cleanly.
        self.was_clean = was_clean
        self._io = io
        self._lock_fd = lock_fd

    @classmethod
    def take(
        cls,
        io: Io,
        path: str,
        *,
        node_id: int,
        cluster_id: str | None,
        unfinished: bool = False,
        for_nodes: bool = False,
        tell: Tell = tell_logging,
    ) -> Claim:
        """Take the directory; create it if it is absent. Raises `StorageError` with a one-line remedy.

        If nodes have ended without their supervisor, their checkpoints are folded. `for_nodes`: the caller is the
        supervisor of nodes with ids from `node_id` on. The nodes take their parts with `NodeClaim`; call `fold` when
        they have ended.
        """
        try:
            os.makedirs(path, io.dir_mode, exist_ok=True)
            if os.stat(path).st_mode & stat.S_ISGID:  # the operator lets the directory's group read the files
                io.share_with_group()
            lock_fd = io.open(os.path.join(path, LOCK_FILE), os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise StorageError(_unusable(path, error)) from error
        with _closed_on_failure(io, lock_fd, path):
            try:
                fcntl.lockf(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StorageError(
                    f"the data directory {path} is in use by another process: stop it, or use another directory"
                ) from None
            _check_nodes(io, path)
            _check_origin(path, unfinished)
            identity = _identify(io, path, node_id, cluster_id)
            if os.path.exists(os.path.join(path, NODES_FOLDER)) or (for_nodes and states_no_ids(io, path)):
                fold(io, path, tell)
            claim = cls(io, path, lock_fd, identity, was_clean=_take_clean_mark(io, path))
            claim.withdraw_address()
            if for_nodes:
                claim._make_room_for_nodes()
            _held[os.path.realpath(path)] = os.getpid()
        return claim

    def release(self) -> None:
        """Release the directory. Further calls have no effect."""
        if self._lock_fd >= 0:
            _held.pop(os.path.realpath(self.path), None)
            self._io.close(self._lock_fd)
            self._lock_fd = -1

    def _make_room_for_nodes(self) -> None:
        """Create the folder of the nodes. Raises OSError."""
        folder = os.path.join(self.path, NODES_FOLDER)
        self._io.mkdir(folder)
        if self.was_clean:
            write_file(self._io, os.path.join(folder, CLEAN_FILE), CLEAN_MARK, sync=False)
        sync_path(self._io, self.path)

    def fold(self, tell: Tell = tell_logging) -> None:
        """Make the directory look as if one process had had it, after the nodes have ended. Waits for the disk.

        It is clean if all nodes stopped cleanly. If this fails, the next `take` does it. Raises `StorageError`.
        """
        try:
            _check_nodes(self._io, self.path)
            fold(self._io, self.path, tell)
        except OSError as error:
            raise StorageError(_unusable(self.path, error)) from error

    def announce(self, address: str) -> None:
        """Write the broker's address (HOST:PORT) to a file, for processes that read the directory's files.

        Raises OSError.
        """
        write_file(self._io, os.path.join(self.path, ADDRESS_FILE), f"{address}\n".encode(), sync=False)

    def withdraw_address(self) -> None:
        """Remove the broker's address. Raises OSError."""
        try:
            self._io.unlink(os.path.join(self.path, ADDRESS_FILE))
        except FileNotFoundError:
            pass

    def write_clean_mark(self) -> None:
        """Write the clean-shutdown file, unsynced: its loss only costs a recovery. Raises OSError."""
        write_file(self._io, os.path.join(self.path, CLEAN_FILE), CLEAN_MARK, sync=False)


class NodeClaim(Claim):
    """The part of a data directory that belongs to one of several nodes, while a supervisor holds the directory."""

    def __init__(self, io: Io, path: str, lock_fd: int, identity: dict[str, str], node_id: int) -> None:
        super().__init__(io, path, lock_fd, identity, was_clean=False)
        self.node_id = node_id
        #: The folder for the node's own files.
        self.home = node_folder(path, node_id)
        self._is_first = node_id == int(identity["node.id"])

    @classmethod
    def join(cls, io: Io, path: str, *, node_id: int, cluster_id: str | None) -> NodeClaim:
        """Take the node's part. Raises `StorageError` with a one-line remedy."""
        if _held.get(os.path.realpath(path)) != os.getpid() and not is_locked(path):
            raise StorageError(
                f"no supervisor has the data directory {path}: its nodes are started by 'barnabas serve --processes'"
            )
        home, made = node_folder(path, node_id), False
        try:
            if os.stat(path).st_mode & stat.S_ISGID:
                io.share_with_group()
            identity = _identify(io, path, node_id, cluster_id, is_first=False)
            if not os.path.exists(home):
                io.mkdir(home)
                made = True
            lock_fd = io.open(os.path.join(home, LOCK_FILE), os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise StorageError(_unusable(path, error)) from error
        with _closed_on_failure(io, lock_fd, path):
            if not _locked(lock_fd):
                raise StorageError(
                    f"node {node_id} of the data directory {path} runs already: stop it, or choose another node.id"
                )
            if made:
                sync_path(io, os.path.dirname(home))
            claim = cls(io, path, lock_fd, identity, node_id)
            claim.withdraw_address()
        return claim

    def release(self) -> None:
        if self._lock_fd >= 0:
            self._io.close(self._lock_fd)
            self._lock_fd = -1

    def announce(self, address: str) -> None:
        """Write the address if this is the first node: clients can ask any node who leads a partition."""
        if self._is_first:
            super().announce(address)

    def withdraw_address(self) -> None:
        if self._is_first:
            super().withdraw_address()

    def write_clean_mark(self) -> None:
        """Does nothing: a node's checkpoints say for each partition whether it is in order; see `storage.stated`."""


@contextlib.contextmanager
def _closed_on_failure(io: Io, lock_fd: int, path: str) -> Iterator[None]:
    """Release a lock if the block fails. Raises `StorageError` for errors of the disk."""
    try:
        yield
    except OSError as error:
        io.close(lock_fd)
        raise StorageError(_unusable(path, error)) from error
    except BaseException:
        io.close(lock_fd)
        raise


def _locked(fd: int) -> bool:
    """Try to lock the file. Returns whether that succeeded. Raises OSError."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _check_nodes(io: Io, path: str) -> None:
    """Raises `StorageError` if a node still runs. The caller has the directory's lock. Raises OSError."""
    for node_id in node_ids(path):
        try:
            fd = io.open(os.path.join(node_folder(path, node_id), LOCK_FILE), os.O_RDWR)
        except FileNotFoundError:
            continue
        try:
            if not _locked(fd):
                raise NodeRunsError(
                    f"the data directory {path} is still in use by its node {node_id}: stop that process, and try again"
                )
        finally:
            io.close(fd)


def node_id_of(path: str | os.PathLike[str]) -> int:
    """The id of the node that a data directory belongs to. Raises `StorageError` if it belongs to none."""
    try:
        return int(read_properties(Io(), os.path.join(path, META_FILE))["node.id"])
    except (OSError, ValueError, KeyError):
        raise StorageError(f"{os.fspath(path)} is not a data directory: it has no whole {META_FILE}") from None


def _identify(io: Io, path: str, node_id: int, cluster_id: str | None, *, is_first: bool = True) -> dict[str, str]:
    """The content of `meta.properties`, created on first use. It names the first node, which has the lowest id."""
    file = os.path.join(path, META_FILE)
    try:
        found = read_properties(io, file)
    except FileNotFoundError:
        if not is_first:
            raise
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
            f"{file} is damaged: restore it from a backup, or write it again with the lines version=1, "
            f"node.id={node_id}, and cluster.id as the clients know it"
        )
    if found.get("version") != "1":
        raise StorageError(f"{file} has version {found.get('version')}; only version 1 can be served")
    if cluster_id is not None and found.get("cluster.id") != cluster_id:
        raise StorageError(
            f"the data directory {path} belongs to cluster {found.get('cluster.id')}, not {cluster_id}: "
            "configure that cluster id, or use another directory"
        )
    first = found["node.id"]
    if not is_first and first.isdecimal() and int(first) <= node_id:
        return {"cluster.id": "", **found}
    if first != str(node_id):
        raise StorageError(
            f"the data directory {path} belongs to node {found.get('node.id')}, not {node_id}: "
            f"set node.id={found.get('node.id')}, or use another directory"
        )
    return {"cluster.id": "", **found}


def _take_clean_mark(io: Io, path: str) -> bool:
    """Whether the last stop was clean. Removes the mark, so that a crash from now on is recognized."""
    try:
        io.unlink(os.path.join(path, CLEAN_FILE))
    except FileNotFoundError:
        return False
    sync_path(io, path)
    return True


def _check_origin(path: str, unfinished: bool) -> None:
    """Raises `StorageError` for a directory that a broker must not serve in this state."""
    if not unfinished and os.path.exists(os.path.join(path, UNFINISHED_FILE)):
        raise StorageError(f"the import into {path} was cut off: delete the directory, and import again")
    if any(os.path.exists(os.path.join(path, name)) for name in KAFKA_FILES):
        raise StorageError(
            f"{path} is a data directory of Apache Kafka: take it over with 'barnabas import-kafka-logs {path} "
            "--data-dir NEW', and serve that"
        )


def _unusable(path: str, error: OSError) -> str:
    """The message for a data directory that cannot be used, with a remedy."""
    remedy = {
        errno.ENOSPC: "; make room on its disk, or name another with --data-dir",
        errno.EDQUOT: "; make room on its disk, or name another with --data-dir",
        errno.EACCES: "; let this user write there, or name another with --data-dir",
        errno.EROFS: "; name another with --data-dir",
    }.get(error.errno or 0, "")
    return f"cannot use the data directory {path}: {error.strerror or error}{remedy}"


def random_id() -> str:
    """A random id, in Kafka's form of UUIDs."""
    return encode_uuid(uuid.uuid4().bytes)
