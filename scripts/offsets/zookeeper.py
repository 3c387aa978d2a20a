"""ZooKeeper as a store of offsets for `barnabas offsets`: see `client.zookeeper`.

Each write depends on the znode version that was read. If a consumer commits in between, its commit stays and the
partition is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from barnabas.client.errors import ClientError
from barnabas.client.zookeeper.layout import misfit
from barnabas.client.zookeeper.offsets import Found, OffsetNodes, Place, Write
from barnabas.client.zookeeper.session import Failure, KazooMissingError, LostError, Session
from barnabas.scripts.offsets.store import Bounds, Change, Partition, Position, Problem

T = TypeVar("T")
SECONDS = 15.0


class ZooKeeperStore:
    """The offsets below one chroot."""

    def __init__(self, hosts: str, chroot: str = "", credentials: str | None = None) -> None:
        """`credentials` is USER:PASSWORD of the digest scheme. Raises ClientError."""
        self.name = f"zookeeper://{hosts}{chroot}"
        self.problems: list[Problem] = []
        self._found: dict[Place, Found] = {}
        try:
            self._session = Session(hosts, credentials=credentials, timeout=SECONDS)
            self._session.start()
        except (KazooMissingError, LostError) as error:
            raise ClientError(str(error)) from None
        self._nodes = OffsetNodes(self._session, chroot.rstrip("/"))
        try:
            self._nodes.check_root()
        except LostError as error:
            self.close()
            raise ClientError(str(error)) from None

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def groups(self) -> list[str]:
        try:
            told = self._nodes.groups()
        except LostError as error:
            raise self._lost(error) from None
        if isinstance(told, Failure):
            self.problems.append(Problem("/consumers", told.reason))
            return []
        return told

    def live_members(self, group: str) -> int:
        try:
            return self._nodes.live_members(group)
        except LostError as error:
            raise self._lost(error) from None

    def read(self, group: str) -> dict[Partition, Position]:
        try:
            partitions, wrong, unlisted = self._nodes.listing(group)
            self.problems += [Problem(path, reason) for path, reason in {**wrong, **unlisted}.items()]
            places = [(group, partition) for partition in partitions]
            told = self._nodes.read(places)
        except LostError as error:
            raise self._lost(error) from None
        positions = {}
        for place, each in zip(places, told, strict=True):
            if isinstance(each, Failure):
                self.problems.append(Problem(self._nodes.path(place), each.reason))
            elif each is not None:  # otherwise it was deleted after its parent was read
                self._found[place] = each
                positions[Partition(*place[1])] = Position(each.offset)
        return positions

    def write(self, group: str, changes: Mapping[Partition, Change]) -> dict[Partition, str]:
        """Write in transactions of a few changes each. Raises ClientError."""
        if why := misfit(group):
            return dict.fromkeys(changes, why)
        writes = {}
        for partition, change in changes.items():
            place = (group, (partition.topic, partition.number))
            old = self._found.get(place) if change.old is not None else None
            writes[place] = Write(None if change.new is None else change.new.offset, old)
        try:
            failed = self._nodes.write(writes)
        except LostError as error:
            raise self._lost(error) from None
        return {Partition(*place[1]): failure.reason for place, failure in failed.items()}

    def bounds(self, partitions: Iterable[Partition]) -> Mapping[Partition, Bounds | None] | None:
        return None

    def _lost(self, error: LostError) -> ClientError:
        return ClientError(f"{self.name}: {error}: what was not reported as done may not be; run it again")
