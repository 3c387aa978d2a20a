"""How far a query over a pattern of topics is, where its own offsets do not tell.

Every result names the record that it came from in its headers. Now and then the driver commits how far it has come in
each source, as a group of the query, with the ends of the results at that time: what was written since then is looked
through when a driver begins. So nothing is written twice, and the group shows the query's lag to any Kafka tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from client.admin import EARLIEST, LATEST, list_offsets
from client.cluster import ClientError, Cluster, check
from streams.query.definitions import Definition, Source
from streams.query.sink import DEAD_LETTER_SUFFIX, SOURCE_HEADERS
from streams.wal import Key, LogDir, plan, read
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

_COMMIT_BY_NAME, _FETCH_BY_NAME = 9, 9  # the last versions that name topics


class Place(msgspec.Struct, frozen=True):
    """A committed place in one source partition: its topic's id, and up to where results and dead letters were then."""

    topic_id: str
    results: list[int]
    letters: list[int]


def group_of(topic: str) -> str:
    """The group that keeps the places of a query."""
    return f"barnabas.query.{topic}"


def commit(cluster: Cluster, definition: Definition, places: Mapping[Key, int], sources: Mapping[str, Source]) -> None:
    """Keep the places. No task may be writing. Raises ClientError."""
    results, letters = _ends(cluster, definition)
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in places.items():
        note = msgspec.json.encode(Place(sources[topic].topic_id, results, letters)).decode()
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata=note)
        )
    request = OffsetCommitRequest(
        group_id=group_of(definition.topic), generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )  # fmt: skip
    wire = cluster.coordinator(request.group_id)
    for answer in wire.ask(request, OffsetCommitResponse, version=_COMMIT_BY_NAME).topics:
        for part in answer.partitions:
            check(part.error_code, f"commit of {definition.topic} for {answer.name}-{part.partition_index}")


def _ends(cluster: Cluster, definition: Definition) -> tuple[list[int], list[int]]:
    """The ends of the results and of the dead letters; of dead letters that there are not yet, zeros."""
    partitions = range(definition.partitions)
    results = list_offsets(cluster, [(definition.topic, p) for p in partitions], LATEST)
    letters = {}
    try:
        letters = list_offsets(cluster, [(definition.topic + DEAD_LETTER_SUFFIX, p) for p in partitions], LATEST)
    except ClientError:
        pass
    name = definition.topic + DEAD_LETTER_SUFFIX
    return [results[definition.topic, p] for p in partitions], [letters.get((name, p), 0) for p in partitions]


def recover(
    cluster: Cluster, log_dir: LogDir, definition: Definition, inputs: Iterable[Key], sources: Mapping[str, Source]
) -> tuple[dict[Key, int], dict[Key, int]]:
    """For each input the source offset from which on there are no results, and no dead letters. Raises ClientError."""
    inputs = list(inputs)
    committed = _committed(cluster, definition, inputs)
    places: dict[Key, int] = {}
    since_results, since_letters = ([0] * definition.partitions for _ in range(2))
    known = [place for _, place in committed.values()]
    if known:
        since_results = [min(found) for found in zip(*(place.results for place in known), strict=True)]
        since_letters = [min(found) for found in zip(*(place.letters for place in known), strict=True)]
    for key in inputs:
        offset, place = committed.get(key, (0, None))
        starts = definition.plan.starts.get(key[0], [])
        if place is None:
            places[key] = starts[key[1]] if key[1] < len(starts) else 0
        else:  # of a topic that was made again, nothing is read yet
            places[key] = offset if place.topic_id == sources[key[0]].topic_id else 0
    dead = dict(places)
    _raise(cluster, log_dir, definition.topic, since_results, places)
    _raise(cluster, log_dir, definition.topic + DEAD_LETTER_SUFFIX, since_letters, dead)
    return places, {key: max(offset, places[key]) for key, offset in dead.items()}


def _committed(cluster: Cluster, definition: Definition, inputs: list[Key]) -> dict[Key, tuple[int, Place]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in inputs:
        topics.setdefault(topic, []).append(partition)
    group = OffsetFetchRequestGroup(
        group_id=group_of(definition.topic),
        topics=[OffsetFetchRequestTopics(name=name, partition_indexes=parts) for name, parts in topics.items()],
    )
    wire = cluster.coordinator(group.group_id)
    answer = wire.ask(OffsetFetchRequest(groups=[group]), OffsetFetchResponse, version=_FETCH_BY_NAME).groups[0]
    check(answer.error_code, f"offsets of {group_of(definition.topic)}")
    found = {}
    for told in answer.topics:
        for part in told.partitions:
            check(part.error_code, f"offsets of {group_of(definition.topic)}")
            if part.committed_offset >= 0:
                place = msgspec.json.decode(part.metadata or "", type=Place)
                found[told.name, part.partition_index] = (part.committed_offset, place)
    return found


def _raise(cluster: Cluster, log_dir: LogDir, topic: str, since: list[int], places: dict[Key, int]) -> None:
    """Move places behind what the records of a topic, from the offsets `since` on, came from."""
    keys = [(topic, partition) for partition in range(len(since))]
    try:
        first, end = (list_offsets(cluster, keys, special) for special in (EARLIEST, LATEST))
    except ClientError:  # no dead letters yet
        return
    ranges = {key: (min(max(first[key], since[key[1]]), end[key]), end[key]) for key in keys}
    for split in plan(log_dir, ranges):
        for batch in read(split, ["headers"]):
            for headers in batch.column("headers").to_pylist():
                told = {header["key"]: header["value"].decode() for header in headers or []}
                key = (told[SOURCE_HEADERS[0]], int(told[SOURCE_HEADERS[1]]))
                if key in places:
                    places[key] = max(places[key], int(told[SOURCE_HEADERS[2]]) + 1)
