"""The positions of groups in ZooKeeper: read, and written on the versions that were read.

What is wrong with one znode is a `Failure` and costs only itself; `LostError` is that ZooKeeper cannot be asked at all.
Every method blocks: see `zookeeper.session`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.client.zookeeper.layout import group_path, misfit, parse_offset, parse_partition, position_path
from barnabas.client.zookeeper.session import NEVER, Failure, LostError, Node, Operation, Session
from barnabas.wire.aliases import TopicPartition

#: A position: of which group, and of which partition.
Place = tuple[str, TopicPartition]
#: Positions of one group that are listed. ZooKeeper gives the names of all children in one answer.
MOST_POSITIONS = 100_000


class Found(NamedTuple):
    """A position as a znode has it, and when that was written."""

    offset: int
    version: int
    mtime_ms: int


class Write(NamedTuple):
    """The offset that a znode is to have, None for no znode; `old` is what was found there."""

    offset: int | None
    old: Found | None


class Listing(NamedTuple):
    """The partitions of a group that have a znode; by path what is no such znode, and what cannot be listed."""

    partitions: list[TopicPartition]
    wrong: dict[str, str]
    unlisted: dict[str, str]


class NoRootError(LostError):
    """The chroot is not there, nor anything below it."""


class OffsetNodes:
    """The offsets below one chroot."""

    def __init__(self, session: Session, root: str) -> None:
        self._session, self._root = session, root

    def check_root(self) -> None:
        """Raises NoRootError if the chroot is not there: to make it may be a mistake, and hides all that there is."""
        if self._root and not self._session.exist([self._root])[0]:
            raise NoRootError(
                f"ZooKeeper at {self._session.hosts} has no {self._root}: create it, or mend the address's chroot"
            )

    def groups(self) -> list[str] | Failure:
        """All that is below /consumers."""
        told = self._session.children(f"{self._root}/consumers")
        return told if isinstance(told, Failure) else sorted(told)

    def live_members(self, group: str) -> int:
        """The members that a group has there now."""
        return 0 if misfit(group) else self._session.counts([f"{group_path(self._root, group)}/ids"])[0]

    def listing(self, group: str, until: float = NEVER) -> Listing:
        """Which positions a group has; `until` is a time of `monotonic`, after which it gives up."""
        found = Listing([], {}, {})
        if misfit(group):
            return found
        base = f"{group_path(self._root, group)}/offsets"
        topics = self._children(base, found, until)
        counts = self._session.counts([f"{base}/{topic}" for topic in topics])
        if sum(counts) > MOST_POSITIONS:
            found.unlisted[base] = f"there are {sum(counts)} positions: this reads groups of at most {MOST_POSITIONS}"
            return found
        for topic in topics:
            for index in self._children(f"{base}/{topic}", found, until):
                try:
                    found.partitions.append((topic, parse_partition(index)))
                except ValueError as error:
                    found.wrong[f"{base}/{topic}/{index}"] = str(error)
        found.partitions.sort()
        return found

    def _children(self, path: str, found: Listing, until: float) -> list[str]:
        told = self._session.children(path, until)
        if isinstance(told, Failure):
            found.unlisted[path] = told.reason
            return []
        return sorted(told)

    def read(self, places: Sequence[Place], until: float = NEVER) -> list[Found | Failure | None]:
        """The position of each; None where there is none. No group may be a misfit."""
        return [_found(node) for node in self._session.get_all([self.path(place) for place in places], until)]

    def write(self, writes: Mapping[Place, Write]) -> dict[Place, Failure]:
        """Write where the old positions still stand; why, for each that was not written."""
        operations = [
            Operation(
                self.path(place),
                None if write.offset is None else b"%d" % write.offset,
                None if write.old is None else write.old.version,
            )
            for place, write in sorted(writes.items())
        ]
        new = {(group, topic) for (group, (topic, _)), write in writes.items() if write.old is None}
        failed = self._session.transact([*self._missing_folders(new), *operations])
        return {place: failed[path] for place in writes if (path := self.path(place)) in failed}

    def tidy(self, places: Iterable[Place]) -> None:
        """Remove the folders of positions that were deleted, where nothing else is left in them."""
        topics = {(group, topic) for group, (topic, _) in places}
        folders = [f"{group_path(self._root, group)}/offsets/{topic}" for group, topic in sorted(topics)]
        for group in sorted({group for group, _ in topics}):
            folders += [f"{group_path(self._root, group)}/offsets", group_path(self._root, group)]
        self._session.each([Operation(path, None, None) for path in folders])

    def path(self, place: Place) -> str:
        """Its znode."""
        return position_path(self._root, *place)

    def _missing_folders(self, of: Iterable[tuple[str, str]]) -> list[Operation]:
        folders: set[str] = set()
        for group, topic in of:
            base = group_path(self._root, group)
            folders |= {f"{self._root}/consumers", base, f"{base}/offsets", f"{base}/offsets/{topic}"}
        paths = sorted(folders)  # what contains comes before what is contained
        there = self._session.exist(paths)
        return [Operation(path, b"", None) for path, known in zip(paths, there, strict=True) if not known]


def _found(node: Node | Failure | None) -> Found | Failure | None:
    if node is None or isinstance(node, Failure):
        return node
    try:
        return Found(parse_offset(node.value), node.version, node.mtime_ms)
    except ValueError as error:
        return Failure(str(error))
