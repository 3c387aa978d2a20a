"""Streams, as the broker sees them: topics whose configuration says what the streams driver writes into them.

The broker knows no SQL. It asks the driver, as for query topics (`broker.jobs.queries`), and stores the answer as the
stream's plan. The topic stays an ordinary one, which other clients may write too. Only the driver may use a stream's
transactional id, and commit offsets in the group that says how far the stream is.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from barnabas.broker.jobs.queries import MayRead, Queries, is_query
from barnabas.broker.metadata.image import Listener, MetadataImage, TopicImage
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.reading.offsets import EARLIEST as EARLIEST_OFFSET
from barnabas.broker.reading.offsets import LATEST, LOG_END, Offsets
from barnabas.broker.settings.config import BrokerConfig
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.queries.keys import DENIED, FORMAT, MAX_QUERY_CHARS, OWNER, SCHEMA
from barnabas.wire.queries.messages import CheckedStream, CheckStream
from barnabas.wire.streams.keys import (
    RUNNING,
    STREAM,
    STREAM_KEYS,
    STREAM_NAME,
    STREAM_PLAN,
    STREAM_STATE,
)
from barnabas.wire.streams.plan import EARLIEST, StreamPlan, StreamReads, stream_plan_of


class Asked(NamedTuple):
    """The driver's answer about a stream, and the stream's first offset in each partition that it reads."""

    answer: CheckedStream
    starts: Mapping[TopicPartition, int]


class Streams(Listener):
    """The streams of a broker."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataImage,
        topics: TopicManager,
        offsets: Offsets,
        queries: Queries,
    ) -> None:
        self._config = config
        self._metadata, self._topics, self._offsets, self._queries = metadata, topics, offsets, queries
        #: By the topic that the stream writes.
        self.plans: dict[str, StreamPlan] = {}
        queries.wanted.append(self._driver_wanted)

    def _driver_wanted(self) -> bool:
        return any(
            self._metadata.topics[name].configs.get(STREAM_STATE, RUNNING) == RUNNING
            for name in self.plans
            if name in self._metadata.topics
        )

    def _note(self, topic: TopicImage) -> bool:
        """Note a topic's stream. Returns whether the topic has or had one."""
        before, plan = self.plans.pop(topic.name, None), stream_plan_of(topic.configs)
        if plan is not None:
            self.plans[topic.name] = plan
            self._queries.driver.need()
        return plan is not None or before is not None

    def topic_changed(self, before: TopicImage | None, after: TopicImage | None) -> None:
        """Note a topic's stream. The driver gets a message if a stream's target or source has changed."""
        if after is not None:
            is_new = self._note(after)
        else:
            assert before is not None
            had = self.plans.pop(before.name, None)
            is_new = had is not None or any(before.name in plan.sources for plan in self.plans.values())
        if is_new:
            self._queries.definitions_changed()

    # --- making -------------------------------------------------------------------------------------------------------

    async def prepare(
        self, name: str, configs: Mapping[str, str | None], timeout_ms: int, may_read: MayRead
    ) -> dict[str, str | None]:
        """The configuration of a new topic with a stream.

        Raises KafkaError: INVALID_CONFIG with the reason for an impossible stream, INVALID_REQUEST if there is no
        driver, REQUEST_TIMED_OUT.
        """
        asked = await self._ask(name, configs, timeout_ms, may_read)
        return {**configs, **self._fixed(name, configs, asked)}

    async def ask(self, topic: TopicImage, configs: Mapping[str, str], timeout_ms: int, may_read: MayRead) -> Asked:
        """Ask the driver about a stream into an existing topic. Raises KafkaError as `prepare` does."""
        await self._check_schema(topic)
        return await self._ask(topic.name, configs, timeout_ms, may_read)

    def answered(self, topic: TopicImage, configs: Mapping[str, str], asked: Asked) -> dict[str, str]:
        """The configuration of a topic with the stream, after the driver's answer. Raises KafkaError."""
        return {**configs, **self._fixed(topic.name, configs, asked)}

    async def _check_schema(self, topic: TopicImage) -> None:
        """Raises KafkaError INVALID_CONFIG for a topic that has records and no known columns."""
        if topic.internal:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{topic.name} is written only by the broker: use another topic."
            )
        if topic.configs.get(SCHEMA):
            return
        ends = await self._offsets.find([(topic.name, index) for index in topic.partitions], LOG_END)
        if any(ends.values()):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{topic.name} has held records, and has no {SCHEMA}: set it (ALTER TOPIC {topic.name} INFER SCHEMA), "
                "or use a new topic.",
            )

    async def _ask(self, name: str, configs: Mapping[str, str | None], timeout_ms: int, may_read: MayRead) -> Asked:
        text = configs.get(STREAM) or ""
        if len(text) > MAX_QUERY_CHARS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"The stream has {len(text)} characters: at most {MAX_QUERY_CHARS} are possible.",
            )
        question = CheckStream(uuid.uuid4().hex, name, text, configs.get(SCHEMA) or "")
        answer = await self._queries.ask_driver(question, timeout_ms)
        assert isinstance(answer, CheckedStream)
        may_read(answer.tried)
        if answer.error is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, answer.error)
        places = [(source, index) for source in answer.sources for index in self._topics.find(source).partitions]
        at = EARLIEST_OFFSET if answer.begins == EARLIEST else LATEST
        return Asked(answer, await self._offsets.find(places, at))

    def _fixed(self, name: str, configs: Mapping[str, str | None], asked: Asked) -> dict[str, str]:
        """The configuration that the broker sets for a stream. Raises KafkaError."""
        answer = asked.answer
        called = configs.get(STREAM_NAME) or name
        most = self._config["barnabas.streams.count.max"]
        if len(self.plans) >= most:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"There are {most} streams, as many as barnabas.streams.count.max allows: drop one, or raise it.",
            )
        for other in self.plans:
            if other != name and self._metadata.topics[other].configs.get(STREAM_NAME) == called:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG, f"A stream named {called} already writes into {other}: use another name."
                )
        self._check_circle(name, answer.sources)
        starts = {source: self._starts(source, known, asked.starts) for source, known in answer.sources.items()}
        reads = {field: getattr(answer, field) for field in StreamReads.__struct_fields__}
        joined = answer.joined
        if joined is not None and not joined.is_table:
            reads["joined"] = msgspec.structs.replace(joined, starts=starts[joined.source])
        plan = StreamPlan(**reads, starts=starts[answer.source])
        values = {FORMAT: answer.output_format, SCHEMA: configs.get(SCHEMA) or answer.output_schema}
        return {**values, STREAM_NAME: called, STREAM_PLAN: plan.encode()}

    def _starts(self, name: str, topic_id: str, starts: Mapping[TopicPartition, int]) -> tuple[int, ...]:
        """The first offsets of a stream in a topic that it reads. Raises KafkaError.

        A partition that the topic got after `starts` were looked up is read from its beginning.
        """
        source = self._topics.find(name)
        if str(uuid.UUID(bytes=source.topic_id)) != topic_id:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} was created again meanwhile: try again.")
        return tuple(starts.get((name, index), 0) for index in source.partitions)

    def _check_circle(self, name: str, sources: Iterable[str]) -> None:
        """Raises KafkaError INVALID_CONFIG for a stream that would read its own results, directly or through others."""
        seen: set[str] = set()
        todo = list(sources)
        while todo:
            source = todo.pop()
            if source == name:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"The stream would read its own results in {name}.")
            if source in seen:
                continue
            seen.add(source)
            query, stream = self._queries.plans.get(source), self.plans.get(source)
            todo += stream.sources if stream is not None else [query.source] if query is not None else []


def is_stream(configs: Mapping[str, str | None]) -> bool:
    """Whether a stream writes a topic with this configuration."""
    return bool(configs.get(STREAM))


def gets_stream(current: Mapping[str, str], target: Mapping[str, str]) -> bool:
    """Whether a change gives a topic a stream."""
    return is_stream(target) and not is_stream(current)


def check_stream_keys(configs: Mapping[str, str | None]) -> None:
    """Raises KafkaError INVALID_CONFIG for keys of a new topic that only the broker sets, or that need a stream."""
    if configs.get(STREAM_PLAN) is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{STREAM_PLAN} is set by the broker: leave it out.")
    _check_together(configs)


def without_stream(current: Mapping[str, str], target: dict[str, str]) -> None:
    """If a change removes a topic's stream, remove the stream's other keys from `target`, too."""
    if is_stream(current) and not is_stream(target):
        for key in (*STREAM_KEYS, OWNER, DENIED):
            target.pop(key, None)


def check_stream_changes(name: str, current: Mapping[str, str], target: Mapping[str, str]) -> None:
    """Raises KafkaError INVALID_CONFIG for a change after which a stream and its state would not fit together."""
    if is_stream(current) and is_stream(target):
        if current[STREAM] != target[STREAM]:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{name} has a stream, whose state is of its SELECT: drop that stream before you make another one.",
            )
        for key in (STREAM_PLAN, STREAM_NAME):
            if current.get(key) != target.get(key):
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} is fixed when a stream is made.")
    elif not is_stream(current) and target.get(STREAM_PLAN) is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{STREAM_PLAN} is set by the broker: leave it out.")
    _check_together(target)


def _check_together(target: Mapping[str, str | None]) -> None:
    if is_stream(target) and is_query(target):
        raise KafkaError(ErrorCode.INVALID_CONFIG, "A topic holds the results of a query or of a stream, not of both.")
    if is_stream(target):
        return
    for key in STREAM_KEYS:
        if target.get(key) is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} needs {STREAM}.")
