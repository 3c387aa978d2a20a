"""Groups' positions in ZooKeeper: read them, and write them if their znode versions are unchanged.

A problem with one znode is a `Failure` and affects nothing else. `LostError` means that ZooKeeper cannot be asked at
all. Every method blocks: see `zookeeper.session`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.client.zookeeper.layout import group_path, misfit, parse_offset, parse_partition, position_path
from barnabas.client.zookeeper.session import NEVER, Failure, LostError, Node, Operation, Session
from barnabas.wire.aliases import TopicPartition

#: Identifies a position by its group and partition.
Place = tuple[str, TopicPartition]
#: The most positions that are listed of one group. ZooKeeper sends all children's names in one answer.
MOST_POSITIONS = 100_000


class Found(NamedTuple):
    """A position in a znode, and when it was written."""

    offset: int
    version: int
    mtime_ms: int


class Write(NamedTuple):
    """The new offset of a znode, None to delete it; `old` is what was found there."""

    offset: int | None
    old: Found | None


class Listing(NamedTuple):
    """A group's partitions that have a znode; and, by path, unfit znodes and those that cannot be listed."""

    partitions: list[TopicPartition]
    wrong: dict[str, str]
    unlisted: dict[str, str]


class NoRootError(LostError):
    """The chroot does not exist, and neither does anything below it."""


class OffsetNodes:
    """The offsets below one chroot."""

    def __init__(self, session: Session, root: str) -> None:
        self._session, self._root = session, root

    def check_root(self) -> None:
        """Raises NoRootError if the chroot is missing: it may be a mistake, and creating it would hide old data."""
        if self._root and not self._session.exist([self._root])[0]:
            raise NoRootError(
                f"ZooKeeper at {self._session.hosts} has no {self._root}: create it, or mend the address's chroot"
            )

    def groups(self) -> list[str] | Failure:
        """All groups below /consumers."""
        told = self._session.children(f"{self._root}/consumers")
        return told if isinstance(told, Failure) else sorted(told)

    def live_members(self, group: str) -> int:
        """The number of members that a group has there now."""
        return 0 if misfit(group) else self._session.counts([f"{group_path(self._root, group)}/ids"])[0]

    def listing(self, group: str, until: float = NEVER) -> Listing:
        """The positions that a group has; gives up at `until`, a time of `monotonic`."""
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
        """The position of each place; None if there is none. No group may be a misfit."""
        return [_found(node) for node in self._session.get_all([self.path(place) for place in places], until)]

    def write(self, writes: Mapping[Place, Write]) -> dict[Place, Failure]:
        """Write where the old positions are unchanged. Returns a failure for each one not written."""
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
        """Remove the folders of deleted positions if nothing else is left in them."""
        topics = {(group, topic) for group, (topic, _) in places}
        folders = [f"{group_path(self._root, group)}/offsets/{topic}" for group, topic in sorted(topics)]
        for group in sorted({group for group, _ in topics}):
            folders += [f"{group_path(self._root, group)}/offsets", group_path(self._root, group)]
        self._session.each([Operation(path, None, None) for path in folders])

    def path(self, place: Place) -> str:
        """The place's znode."""
        return position_path(self._root, *place)

    def _missing_folders(self, of: Iterable[tuple[str, str]]) -> list[Operation]:
        folders: set[str] = set()
        for group, topic in of:
            base = group_path(self._root, group)
            folders |= {f"{self._root}/consumers", base, f"{base}/offsets", f"{base}/offsets/{topic}"}
        paths = sorted(folders)  # a parent comes before its children
        there = self._session.exist(paths)
        return [Operation(path, b"", None) for path, known in zip(paths, there, strict=True) if not known]


def _found(node: Node | Failure | None) -> Found | Failure | None:
    if node is None or isinstance(node, Failure):
        return node
    try:
        return Found(parse_offset(node.value), node.version, node.mtime_ms)
    except ValueError as error:
        return Failure(str(error))
