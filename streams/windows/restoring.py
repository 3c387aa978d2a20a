"""Restores the queries of streams from the copies of their checkpoints, for a data directory that has lost them."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.client.cluster import Cluster
from barnabas.client.groups import committed
from barnabas.streams.query.definitions import StreamDefinition
from barnabas.streams.query.errors import QueryError
from barnabas.streams.windows.checkpoint import Folder, Progress, is_begun
from barnabas.streams.windows.copies import Copies
from barnabas.streams.windows.groups import Group, Joined, names
from barnabas.streams.windows.runner import Home
from barnabas.wire.streams.keys import GROUP


def restored(copies: Copies, home: Home, streams: Mapping[str, StreamDefinition]) -> list[Group]:
    """The queries for which there are copies, with their streams. Their checkpoints are restored to their folders.

    A stream belongs to a query if its last results came from it. Streams that have left it since have other batches, so
    they get a query of their own. Raises QueryError if there are results but no copies at all, so that nothing starts
    anew because a disk is missing; OSError, ClientError, and obstore's errors.
    """
    newest = copies.newest()
    topics = {member.topic for copy in newest for member in copy.group.members} | streams.keys()
    with Cluster(home.server) as cluster:
        found = committed(cluster, GROUP, [(topic, 0) for topic in sorted(topics)])
        positions = {topic: at for (topic, _), at in found.items()}
    begun = sorted(each.topic for each in streams.values() if is_begun(each, positions.get(each.topic)))
    if begun and not newest:
        raise QueryError(
            f"there is neither the state of {', '.join(begun)} nor a copy of it: put the folder back that "
            "barnabas.streams.checkpoint.copies names, or RECALCULATE STREAM all of them"
        )
    groups: list[Group] = []
    placed: set[str] = set()
    # A query that has split off may have had no batch since then: its results are those of the original.
    for copy in sorted(newest, key=lambda copy: not copy.group.was):
        by_batch: dict[int, list[Joined]] = {}
        for member in copy.group.members:
            at = positions.get(member.topic)
            noted = Progress.of(at)
            is_its_own = noted is not None and noted.checkpoint in (copy.checkpoint, copy.group.was)
            if at is not None and is_its_own and member.topic not in placed:
                by_batch.setdefault(at.offset, []).append(member)
                placed.add(member.topic)
        for number, (_, members) in enumerate(sorted(by_batch.items(), reverse=True)):
            group = copy.group.apart(members, copy.checkpoint) if number else copy.group.only(members)
            folder = Folder(home.data_dir, group.id)
            batch = copies.restore(copy.group.id, folder)
            if number:
                folder.rename()
            groups.append(group)
            home.say("info", "stream.restored", topics=names(members), query=group.id, batch=batch)
    return groups
