"""Query topics, as the broker sees them: made from a SELECT, and written only by the streams driver, through the
broker.

The broker knows no SQL. It sends questions to the driver, through a log of their own (`__barnabas_queries`), and stores
the answer as the topic's plan:

    CreateTopics -> "check" in the log -> the driver analyses -> "checked" -> plan in the metadata log, vnodes -> answer
    AlterConfigs, of a topic that has never held a record -> the same
    the same, if other nodes lead partitions -> "closing" in the metadata log -> they tell their log end offsets -> plan
    any change of query topics -> "changed" in the log -> the driver reads the definitions again

With several nodes, the owner of the metadata does all this, and leads the log. The other nodes learn the plans and the
driver's producer id from the metadata. As leaders of query topics, they accept results with that producer id.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import trio

from barnabas.broker.clock import Clock
from barnabas.broker.identity import Identity
from barnabas.broker.jobs.driver_process import DriverProcess
from barnabas.broker.jobs.driver_secret import DriverSecret
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import RESOURCE_TOPIC, Listener, MetadataImage, TopicImage
from barnabas.broker.metadata.producer_ids import ProducerIds
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.partitions import Partitions
from barnabas.broker.reading.offsets import EARLIEST, LATEST, LOG_END, Offsets
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.workers import Workers
from barnabas.storage.errors import StorageError
from barnabas.storage.flusher import Flusher
from barnabas.storage.io import Io
from barnabas.storage.vnode import AppendResult, Origin, Vnode
from barnabas.wire.aliases import BytesLike, TopicPartition
from barnabas.wire.batch import Record, build_batch, check, iter_records, parse_header
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import INTERNAL_TOPICS, QUERIES_TOPIC
from barnabas.wire.patterns import PatternError
from barnabas.wire.patterns import pattern as compiled
from barnabas.wire.queries.keys import (
    CLOSING,
    DEAD_LETTER_OF,
    DENIED,
    EVENTS,
    FORMAT,
    MAX_QUERY_CHARS,
    ON_ERROR,
    OWNER,
    PLAN,
    QUERY,
    SCHEMA,
    START,
    VALUES,
    WRITER,
    dead_letters_of,
)
from barnabas.wire.queries.messages import (
    Answer,
    Changed,
    Check,
    Checked,
    CheckedStream,
    Conversation,
    Question,
    Status,
    decode,
    encode,
)
from barnabas.wire.queries.plan import QueryPlan, Reads, plan_of
from barnabas.wire.types import Message

# The log only carries messages: a driver that starts later does not need the old ones.
_LOG_CONFIGS = {"retention.ms": "3600000", "segment.bytes": str(4 << 20), "cleanup.policy": "delete"}
_MIN_WAIT_SECONDS, _MAX_WAIT_SECONDS = 20.0, 120.0


# The first offset of a query in each partition of its sources, looked up when the query was checked.
Starts = Mapping[TopicPartition, int]
#: A plan still without offsets, and the configuration of the topic's values.
Planned = tuple[QueryPlan, dict[str, str], Starts]
#: Raises KafkaError if the asker may not read one of these topics.
MayRead = Callable[[Sequence[str]], None]


class _Pending:
    """A question that waits for the driver's answer."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.done = trio.Event()
        self.answer: Answer | None = None
        self.problem: str | None = None


class Queries(Listener):
    """The query topics of a broker."""

    def __init__(
        self,
        config: BrokerConfig,
        identity: Identity,
        metadata: MetadataImage,
        topics: TopicManager,
        partitions: Partitions,
        offsets: Offsets,
        flusher: Flusher,
        producer_ids: ProducerIds,
        workers: Workers,
        clock: Clock,
        log: EventLog,
        io: Io,
    ) -> None:
        self._config, self._metadata, self._topics, self._partitions = config, metadata, topics, partitions
        self._flusher, self._producer_ids, self._workers, self._clock = flusher, producer_ids, workers, clock
        self._offsets, self._log = offsets, log
        self._pending: dict[str, _Pending] = {}
        self.plans: dict[str, QueryPlan] = {}
        #: Topics that clients may not write.
        self.closed: set[str] = set(INTERNAL_TOPICS)
        #: The producer id of the driver; None until a driver has asked for one.
        self.writer: int | None = None
        #: A client that knows this secret is a driver. The last driver that got a producer id may write query topics.
        self.secret = DriverSecret(Path(config.data_dir), is_made=identity.is_supervised)
        self.driver = DriverProcess(config, identity, log, io, self._driver_failed, self._driver_wanted)
        #: Further functions that say whether a driver is needed.
        self.wanted: list[Callable[[], bool]] = []
        self._is_new = False  # whether there is a change that the driver has not been told of
        #: The last status of all queries and streams that the driver has sent.
        self.status: Status | None = None
        #: Waits until all nodes have applied the metadata log; None if there is only this node.
        self.everywhere: Callable[[], Awaitable[None]] | None = None

    # --- definitions --------------------------------------------------------------------------------------------------

    def topic_changed(self, before: TopicImage | None, after: TopicImage | None) -> None:
        """Note a topic's plan. If queries read the topic, add partitions to their topics when it has got more."""
        self._note_nodes(before, after)
        if after is None:
            assert before is not None
            self._forget(before)
            return
        if self._note(after) or self._is_matched(after):
            self.definitions_changed()
        source_id = str(uuid.UUID(bytes=after.topic_id))
        for name, plan in self.plans.items():
            if plan.source_id == source_id or name == after.name:
                self._grow_with_source(name, plan)

    def _note_nodes(self, before: TopicImage | None, after: TopicImage | None) -> None:
        """Note what only several nodes write into a configuration: closed topics, and the driver's producer id."""
        was, is_ = ({} if topic is None else topic.configs for topic in (before, after))
        if CLOSING in is_:
            assert after is not None
            self.closed.add(after.name)
        elif CLOSING in was and PLAN not in is_:
            assert before is not None
            self.closed.discard(before.name)
        if WRITER in is_ and after is not None and after.name == QUERIES_TOPIC:
            self.writer = int(is_[WRITER])

    def change_applied(self) -> None:
        """Tell the driver about all parts of a change with one message."""
        if self._is_new:
            self._is_new = False
            self.say(Changed())

    def definitions_changed(self) -> None:
        """Note that the driver has to read the definitions again. It gets the message at the end of this change."""
        self._is_new = True

    def _note(self, topic: TopicImage) -> bool:
        """Note a topic's plan. Returns whether it has one."""
        plan = plan_of(topic.configs)
        if plan is None:
            return False
        self.plans[topic.name] = plan
        self.closed.add(topic.name)
        self.driver.need()
        return True

    def _forget(self, topic: TopicImage) -> None:
        if self.plans.pop(topic.name, None) is not None:
            self.closed.discard(topic.name)
            self.definitions_changed()
        elif any(plan.source == topic.name or plan.pattern for plan in self.plans.values()):
            self.definitions_changed()

    def _grow_with_source(self, name: str, plan: QueryPlan) -> None:
        """Give a query topic as many partitions as its source, also after a crash between the growth of the two."""
        source = self._metadata.by_id.get(uuid.UUID(plan.source_id).bytes) if plan.source_id else None
        if source is not None and len(source.partitions) > len(self._metadata.topics[name].partitions):
            self._workers.start(self._grow, name, len(source.partitions))

    async def delete_dead_letters(self, topic: TopicImage) -> None:
        """Delete the dead letters of a query topic that was deleted. Raises KafkaError."""
        letters = dead_letters_of(topic.name)
        plan = self.plans.get(letters)
        if plan is not None and plan.dead_letter_of == str(uuid.UUID(bytes=topic.topic_id)):
            await self._topics.delete(letters)

    async def _grow(self, name: str, count: int) -> None:
        try:
            await self._topics.grow(name, count)
        except KafkaError as error:
            self._log.warning("query.not_grown", topic=name, error=error)

    # --- making and changing ------------------------------------------------------------------------------------------

    async def prepare(
        self, name: str, count: int, configs: Mapping[str, str | None], timeout_ms: int, may_read: MayRead
    ) -> tuple[int, dict[str, str | None]]:
        """Partition count and configuration of a new query topic. Raises KafkaError: INVALID_CONFIG with the reason for
        an impossible query, INVALID_PARTITIONS, INVALID_REQUEST if there is no driver, REQUEST_TIMED_OUT.
        """
        plan, output = await self._plan(name, configs, timeout_ms, may_read)
        starts = await self._starts(plan, name, configs)
        return self._fixed(name, count, plan, {**configs, **output}, starts)

    def _fixed(
        self, name: str, count: int, plan: QueryPlan, configs: Mapping[str, str | None], starts: Starts
    ) -> tuple[int, dict[str, str | None]]:
        """Partition count and configuration, with the plan's offsets. Raises KafkaError.

        A partition that a source got after `starts` were looked up is read from its beginning.
        """
        if configs.get(EVENTS) == "true" and not plan.pattern:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{EVENTS} is for queries FROM topics('PATTERN'): leave it out.")
        if plan.pattern:
            found = [topic for topic in self.matching(plan.pattern) if topic.name != name]
            begins = {t.name: [starts.get((t.name, index), 0) for index in t.partitions] for t in found}
            if count == -1:
                count = max((len(topic.partitions) for topic in found), default=1)
            plan = msgspec.structs.replace(plan, starts=begins)
            return count, {**configs, PLAN: plan.encode()}
        source = self._topics.find(plan.source)
        if count not in (-1, len(source.partitions)):
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"A query topic has its source's partitions: {plan.source} has {len(source.partitions)}, not {count}.",
            )
        offsets = [starts.get((plan.source, index), 0) for index in source.partitions]
        plan = msgspec.structs.replace(plan, offsets=offsets)
        return len(source.partitions), {**configs, PLAN: plan.encode()}

    async def prepare_dead_letters(
        self, name: str, configs: Mapping[str, str | None]
    ) -> tuple[int, dict[str, str | None]]:
        """Partition count and configuration of the topic for records that a query cannot read. Raises KafkaError.

        It begins at the query's current end offsets, and its later records have the offsets of the source. For a query
        over a pattern, the topic has offsets of its own.
        """
        query = configs.get(DEAD_LETTER_OF) or ""
        plan = self.plans.get(query)
        if plan is None or plan.dead_letter_of or name != dead_letters_of(query):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{DEAD_LETTER_OF} is for {dead_letters_of('NAME')} of a query topic NAME."
            )
        topic = self._topics.find(query)
        if plan.pattern:
            offsets = [0] * len(topic.partitions)
        else:
            ends = await self._offsets.find([(query, index) for index in topic.partitions], LOG_END)
            offsets = [ends[query, index] for index in topic.partitions]
        letters = QueryPlan(offsets=offsets, dead_letter_of=str(uuid.UUID(bytes=topic.topic_id)), pattern=plan.pattern)
        return len(offsets), {**configs, PLAN: letters.encode()}

    async def ask(self, topic: TopicImage, configs: Mapping[str, str], timeout_ms: int, may_read: MayRead) -> Planned:
        """Ask the driver about a query for an existing topic. Raises KafkaError as `prepare` does."""
        if is_query(topic.configs):
            plan, output = await self._plan(topic.name, configs, timeout_ms, may_read)
            return plan, output, {}
        self._check_unused(topic)  # checked first, so that no driver is started in vain
        self._check_empty(topic, await self._ends_elsewhere(topic))
        plan, output = await self._plan(topic.name, configs, timeout_ms, may_read)
        return plan, output, await self._starts(plan, topic.name, configs)

    def answered(self, topic: TopicImage, configs: Mapping[str, str], answer: Planned) -> dict[str, str]:
        """The new configuration of a topic, after the driver's answer and in the present state. Raises KafkaError."""
        return (self._changed if is_query(topic.configs) else self._converted)(topic, configs, *answer)

    def _changed(
        self, topic: TopicImage, configs: Mapping[str, str], plan: QueryPlan, output: Mapping[str, str], starts: Starts
    ) -> dict[str, str]:
        """For a query topic: it may get another SELECT over the same source."""
        old = self.plans[topic.name]
        if (plan.source_id, plan.pattern) != (old.source_id, old.pattern):
            reads, other = (p.source or f"topics('{p.pattern}')" for p in (old, plan))
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{topic.name} reads {reads}: make a new query topic over {other}."
            )
        plan = msgspec.structs.replace(plan, offsets=old.offsets, starts=old.starts)
        return {**configs, **output, PLAN: plan.encode()}

    def _converted(
        self, topic: TopicImage, configs: Mapping[str, str], plan: QueryPlan, output: Mapping[str, str], starts: Starts
    ) -> dict[str, str]:
        """For an ordinary topic: it becomes a query topic if it is empty. The query decides its values' format."""
        self._check_unused(topic)
        name, have = topic.name, len(topic.partitions)
        if plan.source == name:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} cannot read itself.")
        kept = {key: value for key, value in configs.items() if key not in VALUES}
        count, made = self._fixed(name, have if plan.pattern else -1, plan, {**kept, **output}, starts)
        if have > count:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"A query topic has its source's partitions: {plan.source} has {count}, {name} has {have}. "
                f"Delete {name}, and make it again with {count}.",
            )
        return {key: value for key, value in made.items() if value is not None}

    async def convert(self, topic: TopicImage, configs: Mapping[str, str], changes: Sequence[Message]) -> None:
        """Turn an ordinary topic into a query topic, with the configuration that `answered` returned. Raises
        KafkaError.

        The caller holds the lock of all changes, and has let no other task run since `answered`. No other task runs
        until the topic is closed to clients, so it contains no record.

        After a kill at any moment, the topic is ordinary and empty as before, or it is a query topic. One batch of the
        metadata log decides, and this batch is on disk before any log is touched. Without it, nothing has changed. With
        it, the next start does the remaining work (`Topics.reconcile`): it creates missing partitions, and moves logs
        that end at 0 to the offsets in the plan. If the logs were moved first, a kill could leave an ordinary topic
        whose logs begin at a later offset, as if they had held records.

        If the metadata log fails after the write, it is unknown whether the change is on disk. Then the topic stays
        closed until the next start, which finds out. A log that could not be moved because of a disk error is offline
        until then.
        """
        topics, plan = self._topics, plan_of(configs)
        assert plan is not None
        have = len(topic.partitions)
        if CLOSING not in topic.configs and any(
            self._partitions.elsewhere(topic.name, index) is not None for index in topic.partitions
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic.name} has moved meanwhile: try again.")
        count = max(have, len(plan.offsets))
        added = topics.placement.place(range(have, count))
        made = TopicImage(topic.name, topic.topic_id, {**topic.partitions, **added}, dict(configs))

        async def make() -> None:
            for index in range(count):
                try:
                    await topics.make_vnodes(made, range(index, index + 1))
                except KafkaError as error:
                    self._log.error("partition.not_made", topic=topic.name, partition=index, error=error)

        records: list[Message] = [*self._metadata.partition_records(topic.topic_id, added)]
        if CLOSING in topic.configs:
            records.append(self._metadata.config_record(RESOURCE_TOPIC, topic.name, CLOSING, None))
        await topics.commit([*changes, *records], make, written=lambda: self.closed.add(topic.name))
        self._log.info("topic.converted", topic=topic.name, partitions=count)

    def _check_unused(self, topic: TopicImage) -> None:
        """Raises KafkaError INVALID_CONFIG for a topic that can no longer become a query topic."""
        name, topic_id = topic.name, str(uuid.UUID(bytes=topic.topic_id))
        readers = [
            reader
            for reader, plan in self.plans.items()
            if not plan.dead_letter_of
            and (plan.source_id == topic_id or (plan.pattern and self._matches(plan.pattern, topic)))
        ]
        problem = None
        if topic.internal or name in self.plans:
            problem = "is written only by the broker"
        elif readers:
            problem = f"is read by the query topic {readers[0]}"
        if problem is not None:
            raise _unusable(name, problem)
        here = [index for index in topic.partitions if self._partitions.elsewhere(name, index) is None]
        self._check_empty(topic, {(name, index): self._partitions.led(name, index).log_end_offset for index in here})

    @staticmethod
    def _check_empty(topic: TopicImage, ends: Mapping[TopicPartition, int]) -> None:
        if any(ends.values()):
            raise _unusable(topic.name, "has held records")

    async def _ends_elsewhere(self, topic: TopicImage) -> Mapping[TopicPartition, int]:
        """The log end offsets of a topic's partitions that other nodes lead. Raises KafkaError."""
        places = [(topic.name, index) for index in topic.partitions]
        return await self._offsets.find([at for at in places if self._partitions.elsewhere(*at) is not None], LOG_END)

    @asynccontextmanager
    async def closing(self, topic: TopicImage) -> AsyncIterator[None]:
        """In this block, no node accepts writes to an ordinary topic, which may become a query topic in it.

        Raises KafkaError if the topic has held records. If no other node leads any of its partitions, it stays open
        until it is a query topic. If the owner ends while a topic is closed, the next start opens the topic.
        """
        name = topic.name
        if self.everywhere is None or all(
            self._partitions.elsewhere(name, index) is None for index in topic.partitions
        ):
            yield
            return
        await self._close(topic)
        try:
            await self.everywhere()
            self._check_empty(topic, await self._ends_elsewhere(topic))
            yield
        finally:
            await self._open(topic.topic_id)

    async def _close(self, topic: TopicImage) -> None:
        with trio.CancelScope(shield=True):
            async with self._topics.changes:
                if CLOSING in self._topics.find(topic.name, topic.topic_id).configs:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST, f"{topic.name} is becoming a query topic just now: try again."
                    )
                await self._topics.commit([self._metadata.config_record(RESOURCE_TOPIC, topic.name, CLOSING, "true")])

    async def _open(self, topic_id: bytes) -> None:
        """Open a closed topic again, unless it has become a query topic or was deleted."""
        with trio.CancelScope(shield=True):
            async with self._topics.changes:
                topic = self._metadata.by_id.get(topic_id)
                if topic is not None and CLOSING in topic.configs:
                    try:
                        await self._topics.commit(
                            [self._metadata.config_record(RESOURCE_TOPIC, topic.name, CLOSING, None)]
                        )
                    except KafkaError as error:  # the next start opens it
                        self._log.error("topic.stays_closed", topic=topic.name, error=error)

    async def open_all(self) -> None:
        """At a start of the owner: open the topics that were still closed when the owner ended."""
        for topic in list(self._metadata.topics.values()):
            if CLOSING in topic.configs:
                await self._open(topic.topic_id)

    def _tried(self, pattern: str) -> list[TopicImage]:
        return self.matching(pattern) if pattern else []

    async def _plan(
        self, name: str, configs: Mapping[str, str | None], timeout_ms: int, may_read: MayRead
    ) -> tuple[QueryPlan, dict[str, str]]:
        """Ask the driver. Its answer may quote sources, so the right to read them is checked before it is used."""
        query = configs.get(QUERY) or ""
        if len(query) > MAX_QUERY_CHARS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"The query has {len(query)} characters: at most {MAX_QUERY_CHARS} are possible.",
            )
        answer = await self.ask_driver(Check(uuid.uuid4().hex, name, query), timeout_ms)
        assert isinstance(answer, Checked)
        may_read([*answer.tried, *(topic.name for topic in self._tried(answer.pattern) if topic.name != name)])
        if answer.error is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, answer.error)
        plan = QueryPlan(**{name: getattr(answer, name) for name in Reads.__struct_fields__})
        output = {FORMAT: answer.output_format, SCHEMA: answer.output_schema}
        return plan, {key: value for key, value in output.items() if value}

    async def _starts(self, plan: QueryPlan, name: str, configs: Mapping[str, str | None]) -> Starts:
        """Look up the offsets at which a query starts, in all partitions of its sources. Raises KafkaError."""
        start = configs.get(START) or "earliest"
        topics = self.matching(plan.pattern) if plan.pattern else [self._topics.find(plan.source)]
        places = [(topic.name, index) for topic in topics if topic.name != name for index in topic.partitions]
        asked = {"earliest": EARLIEST, "latest": LATEST}
        return await self._offsets.find(places, asked[start] if start in asked else int(start))

    def matching(self, pattern: str) -> list[TopicImage]:
        """The topics that a query over a pattern reads: neither internal topics nor results of queries."""
        return [topic for topic in self._metadata.topics.values() if self._matches(pattern, topic)]

    def _matches(self, pattern: str, topic: TopicImage) -> bool:
        if topic.internal or topic.name in self.plans:
            return False
        try:
            return compiled(pattern).matches(topic.name)
        except PatternError:  # accepted by an older version: the driver reports that the query has failed
            return False

    def _is_matched(self, topic: TopicImage) -> bool:
        """Whether a query over a pattern reads a topic."""
        return any(plan.pattern and self._matches(plan.pattern, topic) for plan in self.plans.values())

    # --- the driver ---------------------------------------------------------------------------------------------------

    async def ask_driver(self, question: Question, timeout_ms: int) -> Answer:
        """Ask the driver, and start it if necessary.

        Raises KafkaError: INVALID_REQUEST with the reason if there is no driver, REQUEST_TIMED_OUT.
        """
        await self._make_log()
        pending = _Pending(question)
        self._pending[pending.question.id] = pending
        wait = min(max(timeout_ms / 1000, _MIN_WAIT_SECONDS), _MAX_WAIT_SECONDS)
        try:
            self.driver.need()
            self.say(pending.question)
            with trio.move_on_after(wait):
                await pending.done.wait()
        finally:
            del self._pending[pending.question.id]
        if pending.answer is not None:
            return pending.answer
        if pending.problem is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, pending.problem)
        is_ours = self._config["barnabas.streams.driver"] == "auto"
        remedy = "its log says why" if is_ours else "start it with `barnabas streams`"
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, f"The streams driver did not answer within {wait:.0f} s: {remedy}."
        )

    def _driver_wanted(self) -> bool:
        """Whether any query or stream runs, or a question waits for an answer."""
        asked = any(not pending.done.is_set() for pending in self._pending.values())
        queries = any(plan.source or plan.pattern for plan in self.plans.values())
        return asked or queries or any(wants() for wants in self.wanted)

    def _driver_failed(self, problem: str) -> None:
        for pending in self._pending.values():
            pending.problem = problem
            pending.done.set()

    async def _make_log(self) -> None:
        try:
            if QUERIES_TOPIC not in self._metadata.topics:
                here = [self._metadata.node_id]
                await self._topics.create(QUERIES_TOPIC, 1, dict(_LOG_CONFIGS), leaders=here)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def say(self, message: Conversation) -> None:
        """Append a message to the driver's log. Does nothing if there has never been a driver."""
        vnode = self._partitions.get(QUERIES_TOPIC, 0)
        if vnode is None:
            return
        now = self._clock.wall_ms()
        try:
            vnode.append(build_batch([Record(None, encode(message), now)]), now_ms=now, origin=Origin.COORDINATOR)
        except KafkaError as error:
            self._log.error("queries.log", error=error)
            return
        self._flusher.request(vnode)

    async def heard(self) -> None:
        """Wait until the driver can read all that was said to it."""
        vnode = self._partitions.get(QUERIES_TOPIC, 0)
        if vnode is not None:
            with suppress(StorageError):  # the log of the driver has failed, which is reported elsewhere
                await self._flusher.flushed(vnode, vnode.log_end_offset)

    async def new_writer(self) -> int:
        """A producer id for a driver that starts, or starts again. Earlier drivers may write no more.

        Raises KafkaError if no id can be reserved. When this returns, all running nodes know the id.
        """
        await self._make_log()
        producer_id = await self._producer_ids.next()
        if self.everywhere is not None:
            with trio.CancelScope(shield=True):
                async with self._topics.changes:
                    record = self._metadata.config_record(RESOURCE_TOPIC, QUERIES_TOPIC, WRITER, str(producer_id))
                    await self._topics.commit([record])
            await self.everywhere()
        self.writer = producer_id
        for pending in self._pending.values():  # the driver may have started after these were sent
            self.say(pending.question)
        return self.writer

    def append(self, vnode: Vnode, data: BytesLike, now_ms: int) -> AppendResult:
        """Append a batch from the driver: to a query topic, at the offsets in the batch, or to the driver's log.

        Raises KafkaError: UNKNOWN_PRODUCER_ID until the driver has asked this broker for an id, INVALID_PRODUCER_EPOCH
        if another driver has taken over, and the errors of the vnode.
        """
        producer_id = parse_header(data).producer_id
        if producer_id != self.writer:
            if self.writer is None or producer_id < 0:
                raise KafkaError(ErrorCode.UNKNOWN_PRODUCER_ID, "ask for a producer id first")
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "another streams driver has taken over")
        if vnode.topic != QUERIES_TOPIC:
            if self.plans[vnode.topic].pattern:  # such topics have their own offsets
                data = vnode.log_end_offset.to_bytes(8, "big") + bytes(data[8:])
            return vnode.append(data, now_ms=now_ms, origin=Origin.QUERY)
        check(data)
        values = [record.value or b"" for record in iter_records(data)]
        batch = build_batch([Record(None, value, now_ms) for value in values])
        result = vnode.append(batch, now_ms=now_ms, origin=Origin.COORDINATOR)
        for value in values:
            self._heard(value)
        return result

    async def latest_status(self) -> Status | None:
        """The last status of all queries and streams that the driver has sent; None if there is none."""
        return self.status

    def _heard(self, message: bytes) -> None:
        answer = decode(message)
        if isinstance(answer, Status):
            self.status = answer
        if not isinstance(answer, Checked | CheckedStream):
            return
        pending = self._pending.get(answer.id)
        if pending is not None and isinstance(answer, Checked) == isinstance(pending.question, Check):
            pending.answer, pending.problem = (answer, None) if answer.no_spark is None else (None, answer.no_spark)
            pending.done.set()


def _unusable(name: str, problem: str) -> KafkaError:
    why = f"{name} {problem}, so it cannot become a query topic: use a new topic."
    return KafkaError(ErrorCode.INVALID_CONFIG, why)


def is_query(configs: Mapping[str, str | None]) -> bool:
    """Whether a topic with this configuration is made from a query."""
    return bool(configs.get(QUERY))


def check_keys(configs: Mapping[str, str | None]) -> None:
    """Raises KafkaError INVALID_CONFIG for keys of a new topic that only the broker sets, or that need a query."""
    for key in (PLAN, OWNER, DENIED):
        if configs.get(key) is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} is set by the broker: leave it out.")
    if not is_query(configs):
        _check_without_query({}, configs)


def check_changes(name: str, current: Mapping[str, str], target: Mapping[str, str]) -> None:
    """Raises KafkaError INVALID_CONFIG for a change after which a topic's records and its query would not fit together.

    An ordinary topic may get a query and the keys for it, if the topic has never held a record. That is not checked
    here.
    """
    if name == QUERIES_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{name} is written only by the broker: its configuration cannot be changed."
        )
    if current.get(PLAN) != target.get(PLAN):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{PLAN} is set by the broker: leave it out.")
    for key in (DEAD_LETTER_OF, *((START, EVENTS) if is_query(current) else ())):
        if current.get(key) != target.get(key):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} is fixed when a topic is created.")
    if is_query(current) and not is_query(target):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is a query topic: give it another query, or delete it.")
    if not is_query(target):
        _check_without_query(current, target)


def _check_without_query(current: Mapping[str, str | None], target: Mapping[str, str | None]) -> None:
    for key in (START, ON_ERROR, EVENTS):
        if current.get(key) != target.get(key):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} needs {QUERY}.")
