"""The position of a query over a pattern of topics, whose own offsets do not show it.

Every result names its source record in its headers. Now and then the driver commits its position in each source, as a
consumer group of the query, with the ends of the results at that time. A driver that starts reads through the results
written since then. So nothing is written twice, and the group shows the query's lag to any Kafka tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from barnabas.client import groups
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, check
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.streams.query.definitions import Definition, Source
from barnabas.streams.query.events import EVENT_HEADER, TopicState, decode_event
from barnabas.streams.query.sink import SOURCE_HEADERS
from barnabas.streams.wal import LogDir, plan, read
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.queries.keys import dead_letters_of


class Place(msgspec.Struct, frozen=True):
    """A committed place in one source partition: its topic's id, and the ends of results and dead letters then."""

    topic_id: str
    results: list[int]
    letters: list[int]
    told: str = ""  # in partition 0: a digest of the last event about the topic, if there was one


def group_of(topic: str) -> str:
    """The group with the places of a query."""
    return f"barnabas.query.{topic}"


class Progress(NamedTuple):
    """A query's progress.

    For each input, it has the source offsets from which results and dead letters are missing; and for each topic, its
    state after the last event.
    """

    places: dict[TopicPartition, int]
    dead: dict[TopicPartition, int]
    states: dict[str, TopicState]


def commit(
    cluster: Cluster,
    definition: Definition,
    places: Mapping[TopicPartition, int],
    states: Mapping[str, TopicState],
    sources: Mapping[str, Source],
) -> None:
    """Commit the places, and the states of the topics after their last events. No task may be writing.

    Raises ClientError.
    """
    results, letters = _ends(cluster, definition)
    kept = {}
    for (topic, partition), offset in places.items():
        digest = states[topic].digest if partition == 0 and topic in states else ""
        note = msgspec.json.encode(Place(sources[topic].topic_id, results, letters, digest)).decode()
        kept[topic, partition] = groups.Committed(offset, note)
    for (topic, partition), code in groups.commit(cluster, group_of(definition.topic), kept).items():
        check(code, f"commit of {definition.topic} for {topic}-{partition}")


def _ends(cluster: Cluster, definition: Definition) -> tuple[list[int], list[int]]:
    """The ends of the results and of the dead letters; zeros if there are no dead letters yet."""
    partitions = range(definition.partitions)
    results = list_offsets(cluster, [(definition.topic, p) for p in partitions], LATEST)
    letters = {}
    try:
        letters = list_offsets(cluster, [(dead_letters_of(definition.topic), p) for p in partitions], LATEST)
    except ClientError:
        pass
    name = dead_letters_of(definition.topic)
    return [results[definition.topic, p] for p in partitions], [letters.get((name, p), 0) for p in partitions]


def recover(
    cluster: Cluster,
    log_dir: LogDir,
    definition: Definition,
    inputs: Iterable[TopicPartition],
    sources: Mapping[str, Source],
) -> Progress:
    """The query's progress in these inputs. Raises ClientError."""
    inputs = list(inputs)
    committed = _committed(cluster, definition, inputs)
    places: dict[TopicPartition, int] = {}
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
        else:  # the topic was created again, so nothing is read yet
            places[key] = offset if place.topic_id == sources[key[0]].topic_id else 0
    dead = dict(places)
    states = {
        topic: TopicState(place.topic_id, place.told) for (topic, _), (_, place) in committed.items() if place.told
    }
    _raise(cluster, log_dir, definition.topic, since_results, places, states)
    _raise(cluster, log_dir, dead_letters_of(definition.topic), since_letters, dead, {})
    return Progress(places, {key: max(offset, places[key]) for key, offset in dead.items()}, states)


def _committed(
    cluster: Cluster, definition: Definition, inputs: list[TopicPartition]
) -> dict[TopicPartition, tuple[int, Place]]:
    found = groups.committed(cluster, group_of(definition.topic), inputs)
    return {key: (at.offset, msgspec.json.decode(at.metadata, type=Place)) for key, at in found.items()}


def _raise(
    cluster: Cluster,
    log_dir: LogDir,
    topic: str,
    since: list[int],
    places: dict[TopicPartition, int],
    states: dict[str, TopicState],
) -> None:
    """Move the places past the records in a topic from the offsets `since` on, and note its events."""
    keys = [(topic, partition) for partition in range(len(since))]
    try:
        first, end = (list_offsets(cluster, keys, special) for special in (EARLIEST, LATEST))
    except ClientError:  # no dead letters yet
        return
    ranges = {key: (min(max(first[key], since[key[1]]), end[key]), end[key]) for key in keys}
    for split in plan(log_dir, ranges):
        for batch in read(split, ["headers", "value"]):
            for headers, value in zip(batch.column("headers").to_pylist(), batch.column("value"), strict=True):
                named = {header["key"]: header["value"] for header in headers or []}
                if EVENT_HEADER in named:
                    event = decode_event(value.as_py())
                    states[event.topic] = event.state
                    continue
                source, partition, offset = (named[name].decode() for name in SOURCE_HEADERS)
                key = (source, int(partition))
                if key in places:
                    places[key] = max(places[key], int(offset) + 1)
