"""Offsets in ZooKeeper, where consumers kept them before Kafka did: `/consumers/GROUP/offsets/TOPIC/PARTITION`.

A znode holds the offset of the next record as decimal text, and nothing else. Members of a group that runs are children
of `/consumers/GROUP/ids`. All paths lie below the chroot that the address may have.

Reads are sent ahead and awaited together. Writes are transactions of at most 500 operations, each on the version of the
znode that was read: a consumer that commits in between makes the transaction fail, and nothing of it is written. Then
its changes are tried one by one, so that one bad partition costs only itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from barnabas.client.errors import ClientError
from barnabas.scripts.offsets.files import parse_number, parse_partition
from barnabas.scripts.offsets.store import Bounds, Change, Partition, Position, Problem

T = TypeVar("T")
SECONDS = 15.0
#: ZooKeeper takes a transaction of 1 MB (jute.maxbuffer); this many are far below.
MOST_OPERATIONS = 500
MOST_READS = 2000
KAZOO_REMEDY = "pip install 'barnabas[zookeeper]' (in a checkout: make setup-all)"


class ZooKeeperStore:
    """The offsets below one chroot."""

    def __init__(self, hosts: str, chroot: str = "", credentials: str | None = None) -> None:
        """`credentials` is USER:PASSWORD of the digest scheme. Raises ClientError."""
        try:
            from kazoo import exceptions
            from kazoo.client import KazooClient
            from kazoo.handlers.threading import KazooTimeoutError
            from kazoo.security import make_digest_acl
        except ImportError:
            raise ClientError(f"offsets in ZooKeeper need kazoo: {KAZOO_REMEDY}") from None
        self.name = f"zookeeper://{hosts}{chroot}"
        self.problems: list[Problem] = []
        self._errors, self._timeout = exceptions, KazooTimeoutError
        self._root = chroot.rstrip("/")
        self._versions: dict[str, int] = {}
        auth = [("digest", credentials)] if credentials else []
        acl = None
        if credentials:
            user, _, password = credentials.partition(":")
            acl = [make_digest_acl(user, password, all=True)]
        quiet = logging.getLogger("barnabas.offsets.kazoo")  # what it would say of each attempt, the error says
        quiet.addHandler(logging.NullHandler())
        quiet.propagate = False
        self._client = KazooClient(hosts=hosts, timeout=SECONDS, auth_data=auth, default_acl=acl, logger=quiet)
        try:
            self._client.start(timeout=SECONDS)
        except KazooTimeoutError:
            raise ClientError(f"ZooKeeper does not answer at {hosts}: is it running there?") from None
        except (exceptions.AuthFailedError, exceptions.KazooException) as error:
            raise ClientError(f"ZooKeeper at {hosts}: {_reason(error)}") from None
        if self._root and not self._exists(self._root):
            self.close()
            raise ClientError(f"ZooKeeper at {hosts} has no {chroot}: create it, or mend the address's chroot")

    def close(self) -> None:
        """End the session."""
        self._client.stop()
        self._client.close()

    # --- reading ------------------------------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        return sorted(self._children(f"{self._root}/consumers"))

    def live_members(self, group: str) -> int:
        return len(self._children(f"{self._group(group)}/ids")) if _is_node(group) else 0

    def read(self, group: str) -> dict[Partition, Position]:
        if not _is_node(group):
            return {}
        base = f"{self._group(group)}/offsets"
        places = []
        for topic in sorted(self._children(base)):
            for index in self._children(f"{base}/{topic}"):
                path = f"{base}/{topic}/{index}"
                try:
                    places.append((Partition(topic, parse_partition(index)), path))
                except ValueError as error:
                    self._wrong(path, str(error))
        found = {}
        for start in range(0, len(places), MOST_READS):
            some = places[start : start + MOST_READS]
            for (partition, path), told in zip(some, self._get_all([path for _, path in some]), strict=True):
                position = self._position(path, told)
                if position is not None:
                    found[partition] = position
        return dict(sorted(found.items()))

    def _position(self, path: str, told: Any) -> Position | None:
        if isinstance(told, self._errors.NoNodeError):  # deleted since its parent was read
            return None
        if isinstance(told, Exception):
            self._wrong(path, _reason(told))
            return None
        value, status = told
        try:
            position = Position(parse_number(value.decode("ascii", "backslashreplace")))
        except ValueError as error:
            self._wrong(path, str(error))
            return None
        self._versions[path] = status.version
        return position

    def _get_all(self, paths: Sequence[str]) -> list[Any]:
        """Value and status of each, or the exception."""
        asked = [self._client.get_async(path) for path in paths]
        found: list[Any] = []
        for one in asked:
            try:
                found.append(one.get(timeout=SECONDS))
            except (self._errors.NoNodeError, self._errors.NoAuthError) as error:
                found.append(error)
            except (self._timeout, self._errors.KazooException) as error:
                raise self._lost(error) from None
        return found

    def _children(self, path: str) -> list[str]:
        try:
            return list(self._call(lambda: self._client.get_children_async(path)))
        except self._errors.NoNodeError:
            return []
        except self._errors.NoAuthError:
            self._wrong(path, "the credentials may not read it")
            return []

    def _exists(self, path: str) -> bool:
        return self._call(lambda: self._client.exists_async(path)) is not None

    def _call(self, begin: Callable[[], Any]) -> Any:
        """The result of one request. Raises ClientError where ZooKeeper is gone, and kazoo's errors about the node."""
        try:
            return begin().get(timeout=SECONDS)
        except (self._errors.NoNodeError, self._errors.NoAuthError, self._errors.NodeExistsError):
            raise
        except (self._timeout, self._errors.KazooException) as error:
            raise self._lost(error) from None

    def _lost(self, error: Exception) -> ClientError:
        return ClientError(f"{self.name}: {_reason(error)}: what was not reported as done may not be; run it again")

    # --- writing ------------------------------------------------------------------------------------------------------

    def write(self, group: str, changes: Mapping[Partition, Change]) -> dict[Partition, str]:
        """Transactions of some changes each. Raises ClientError."""
        if not _is_node(group):
            return dict.fromkeys(changes, "ZooKeeper has no name for this group: it is empty, a dot, or has a slash")
        failed: dict[Partition, str] = {}
        todo = sorted(changes.items())
        for topic in sorted({partition.topic for partition in changes}):
            reason = self._make_folder(f"{self._group(group)}/offsets/{topic}")
            if reason:
                failed |= {partition: reason for partition in changes if partition.topic == topic}
        todo = [(partition, change) for partition, change in todo if partition not in failed]
        for start in range(0, len(todo), MOST_OPERATIONS):
            some = todo[start : start + MOST_OPERATIONS]
            if self._commit(group, some) is not None:
                for one in some:  # nothing of it was written: find out which one is to blame
                    reason = self._commit(group, [one])
                    if reason is not None:
                        failed[one[0]] = reason
        return failed

    def _make_folder(self, path: str) -> str | None:
        try:
            self._call(lambda: self._client.ensure_path_async(path))
        except (self._errors.NoAuthError, self._errors.NoNodeError) as error:
            return _reason(error)
        return None

    def _commit(self, group: str, changes: Sequence[tuple[Partition, Change]]) -> str | None:
        """One transaction; why nothing of it was written, None if all was."""
        transaction = self._client.transaction()
        for partition, change in changes:
            path = f"{self._group(group)}/offsets/{partition.topic}/{partition.number}"
            if change.new is None:
                transaction.delete(path, self._versions.get(path, -1))
            elif change.old is None:
                transaction.create(path, str(change.new.offset).encode())
            else:
                transaction.set_data(path, str(change.new.offset).encode(), self._versions[path])
        told = self._call(transaction.commit_async)
        wrong = [each for each in told if isinstance(each, Exception)]
        own = [
            each
            for each in wrong
            if not isinstance(each, self._errors.RolledBackError | self._errors.RuntimeInconsistency)
        ]
        if not wrong:
            return None
        return _reason(own[0] if own else wrong[0])

    def bounds(self, partitions: Iterable[Partition]) -> Mapping[Partition, Bounds | None] | None:
        return None

    def _group(self, group: str) -> str:
        return f"{self._root}/consumers/{group}"

    def _wrong(self, path: str, reason: str) -> None:
        self.problems.append(Problem(path, reason))


def _is_node(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _reason(error: Exception) -> str:
    """What kazoo's error means."""
    return {
        "NoAuthError": "the credentials do not allow it",
        "AuthFailedError": "the credentials are refused",
        "NoNodeError": "it is not there any more",
        "NodeExistsError": "somebody has made it meanwhile",
        "BadVersionError": "somebody has changed it meanwhile",
        "ConnectionLoss": "the connection was lost",
        "SessionExpiredError": "the session has expired",
        "KazooTimeoutError": f"no answer within {SECONDS:.0f} s",
        "ConnectionClosedError": "the connection was closed",
    }.get(type(error).__name__, f"{type(error).__name__} {error}".strip())
