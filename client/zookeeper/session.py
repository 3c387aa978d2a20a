"""A session with ZooKeeper, through kazoo: pipelined requests, and transactions.

kazoo runs threads of its own, and every method here blocks: an event loop calls them in a thread. Nothing waits longer
than the timeout for the next answer. Without a connection kazoo would queue requests, so nothing is sent then:
`LostError` is raised. After a `LostError`, a write may or may not have been done: read again first.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

KAZOO_REMEDY = "pip install 'barnabas[zookeeper]' (in a checkout: make setup-all)"
#: ZooKeeper accepts transactions up to 1 MB (jute.maxbuffer); these limits are far below.
MOST_OPERATIONS, MOST_BYTES = 500, 400_000
#: The most requests in flight.
MOST_READS = 2000
_BYTES_OF_AN_OPERATION = 100  # excluding its path
#: If the first answer does not come within this time, the address counts as unreachable.
CONNECT_SECONDS = 5.0
NEVER = float("inf")


class KazooMissingError(Exception):
    """The package is not installed; the message has the remedy."""

    def __init__(self) -> None:
        super().__init__(f"offsets in ZooKeeper need kazoo: {KAZOO_REMEDY}")


class LostError(Exception):
    """ZooKeeper cannot be asked now."""


class Node(NamedTuple):
    """A znode's content. `mtime_ms` is when it was written, by ZooKeeper's clock."""

    value: bytes
    version: int
    mtime_ms: int


class Failure(NamedTuple):
    """Why an action failed for one znode. `is_race`: someone else was faster, so reading again helps."""

    reason: str
    is_race: bool = False


class Operation(NamedTuple):
    """A change of a znode: without `value` it deletes, without `version` it creates."""

    path: str
    value: bytes | None
    version: int | None


class Session:
    """One connection, which reconnects by itself. `credentials` is USER:PASSWORD of the digest scheme."""

    def __init__(
        self, hosts: str, *, credentials: str | None = None, timeout: float, session_timeout: float | None = None
    ) -> None:
        """Does not connect yet. Raises KazooMissingError if kazoo is not installed."""
        try:
            from kazoo import exceptions
            from kazoo.client import KazooClient
            from kazoo.handlers.threading import KazooTimeoutError
            from kazoo.security import make_digest_acl
        except ImportError:
            raise KazooMissingError from None
        self.hosts, self._timeout = hosts, timeout
        #: When ZooKeeper last answered, on the monotonic clock.
        self.heard = 0.0
        self._errors, self._late = exceptions, KazooTimeoutError
        self._gone = (KazooTimeoutError, exceptions.KazooException)
        acl = None
        if credentials:
            user, _, password = credentials.partition(":")
            acl = [make_digest_acl(user, password, all=True)]
        quiet = logging.getLogger("barnabas.zookeeper.kazoo")  # its messages about each attempt are also in the error
        quiet.addHandler(logging.NullHandler())
        quiet.propagate = False
        self._client: Any = KazooClient(
            hosts=hosts,
            timeout=session_timeout or timeout,
            auth_data=[("digest", credentials)] if credentials else [],
            default_acl=acl,
            logger=quiet,
            connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 2.0},
        )

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect. Raises LostError if nobody answers; the session is then over."""
        try:
            self._client.start(timeout=min(self._timeout, CONNECT_SECONDS))
        except self._late:
            raise LostError(f"ZooKeeper does not answer at {self.hosts}: is it running there?") from None
        except self._errors.KazooException as error:
            raise LostError(f"ZooKeeper at {self.hosts}: {self._reason(error)}") from None

    def begin(self) -> None:
        """Start to connect in the background, and return when connected or after the timeout."""
        self._client.start_async().wait(self._timeout)

    @property
    def connected(self) -> bool:
        return bool(self._client.connected)

    def close(self) -> None:
        """Close the session."""
        self._client.stop()
        self._client.close()

    # --- requests -----------------------------------------------------------------------------------------------------

    def get_all(self, paths: Sequence[str], until: float = NEVER) -> list[Node | Failure | None]:
        """Each znode's content; None if there is no znode. Raises LostError, also when `until` has passed."""
        requests = [partial(self._client.get_async, path) for path in paths]
        asked = self._ask(requests, until=until)
        return [each if each is None or isinstance(each, Failure) else _node(*each) for each in asked]

    def exist(self, paths: Sequence[str]) -> list[bool]:
        """Whether each znode exists. Raises LostError."""
        return [stat is not None for stat in self._stats(paths)]

    def counts(self, paths: Sequence[str]) -> list[int]:
        """How many children each znode has; 0 if it does not exist. Raises LostError."""
        return [
            0 if stat is None or isinstance(stat, Failure) else int(stat.children_count) for stat in self._stats(paths)
        ]

    def _stats(self, paths: Sequence[str]) -> list[Any]:
        return self._ask([partial(self._client.exists_async, path) for path in paths])

    def children(self, path: str, until: float = NEVER) -> list[str] | Failure:
        """The names of a znode's children; empty if it does not exist. Raises LostError, also after `until`."""
        (told,) = self._ask([lambda: self._client.get_children_async(path)], until=until)
        if isinstance(told, Failure):
            return told
        return [] if told is None else list(told)

    def transact(self, operations: Sequence[Operation]) -> dict[str, Failure]:
        """Do all operations. Returns, by path, why one was not done. Raises LostError.

        Each transaction is done completely or not at all. If one fails, its operations are done one by one, so that a
        problem with one znode affects nothing else.
        """
        failed: dict[str, Failure] = {}
        for some in _transactions(operations):
            transaction = self._client.transaction()
            for operation in some:
                self._add(transaction, operation)
            (told,) = self._ask([transaction.commit_async])
            if isinstance(told, Failure) or any(isinstance(each, Exception) for each in told):
                failed |= self.each(some)
        return failed

    def each(self, operations: Sequence[Operation]) -> dict[str, Failure]:
        """Do the operations one by one, as far as possible. Returns, by path, why one failed. Raises LostError."""
        told = self._ask([partial(self._send, each) for each in operations], absent=_GONE)
        return {
            operation.path: each for operation, each in zip(operations, told, strict=True) if isinstance(each, Failure)
        }

    def _add(self, transaction: Any, operation: Operation) -> None:
        path, value, version = operation
        if value is None:
            transaction.delete(path, -1 if version is None else version)
        elif version is None:
            transaction.create(path, value)
        else:
            transaction.set_data(path, value, version)

    def _send(self, operation: Operation) -> Any:
        path, value, version = operation
        if value is None:
            return self._client.delete_async(path, -1 if version is None else version)
        if version is None:
            return self._client.create_async(path, value)
        return self._client.set_async(path, value, version)

    def _ask(
        self, requests: Sequence[Callable[[], Any]], absent: Failure | None = None, until: float = NEVER
    ) -> list[Any]:
        """The answers to pipelined requests; `absent` for a missing znode. Raises LostError."""
        found: list[Any] = []
        for start in range(0, len(requests), MOST_READS):
            if not self.connected:
                raise LostError("the connection was lost")
            sent = [request() for request in requests[start : start + MOST_READS]]
            found += [self._await(each, until, absent) for each in sent]
        return found

    def _await(self, sent: Any, until: float, absent: Failure | None) -> Any:
        errors = self._errors
        try:
            told = sent.get(timeout=max(0.0, min(self._timeout, until - time.monotonic())))
            self.heard = time.monotonic()
            return told
        except errors.NoNodeError:
            self.heard = time.monotonic()
            return absent
        except (errors.BadVersionError, errors.NodeExistsError) as error:
            return Failure(self._reason(error), is_race=True)
        except (errors.NoAuthError, errors.BadArgumentsError, errors.NotEmptyError, errors.InvalidACLError) as error:
            return Failure(self._reason(error))
        except self._gone as error:
            raise LostError(self._reason(error)) from None

    def _reason(self, error: Exception) -> str:
        """The meaning of kazoo's error."""
        name = type(error).__name__
        if name == "KazooTimeoutError":
            return f"no answer within {self._timeout:g} s"
        return _REASONS.get(name) or f"{name} {error}".strip()


_GONE = Failure("it is not there any more", is_race=True)
_REASONS = {
    "NoAuthError": "the credentials do not allow it",
    "AuthFailedError": "the credentials are refused",
    "NodeExistsError": "another client has created it meanwhile",
    "BadVersionError": "another client has changed it meanwhile",
    "BadArgumentsError": "ZooKeeper does not take the name",
    "NotEmptyError": "it has children",
    "ConnectionLoss": "the connection was lost",
    "SessionExpiredError": "the session has expired",
    "ConnectionClosedError": "the connection was closed",
}


def _node(value: bytes, status: Any) -> Node:
    return Node(value, status.version, status.mtime)


def _transactions(operations: Sequence[Operation]) -> list[list[Operation]]:
    """The operations in pieces that ZooKeeper accepts."""
    pieces: list[list[Operation]] = []
    size = 0
    for operation in operations:
        own = len(operation.path.encode()) + _BYTES_OF_AN_OPERATION
        if not pieces or len(pieces[-1]) >= MOST_OPERATIONS or size + own > MOST_BYTES:
            pieces.append([])
            size = 0
        pieces[-1].append(operation)
        size += own
    return pieces
