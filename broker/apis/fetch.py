"""Fetch (1), versions 4-18: record batches as slices of the log files, with long poll and sessions.

A request that finds `min_bytes` is answered at once. What a limit on the answer's size cuts off counts as found, and
`min_bytes` asks for no more than the limits allow: waiting would not make the answer larger. Nor would it at the end of
an older segment, as a range is of one file. Otherwise it waits on its partitions: each one tells when its high
watermark moves, and only those are read again. In a session the partitions without news are not even looked at.
`max_bytes` is shared in the order of the request (or of the session, see `broker.fetch_sessions`); the first batch is
given whole even if it is larger.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

import trio

from barnabas.broker.config import BrokerConfig
from barnabas.broker.fetch_sessions import Asked, FetchSessions, Plan, asked_for
from barnabas.broker.large import Breath, Large, given
from barnabas.broker.later import Later
from barnabas.broker.order import METADATA, RECORDS
from barnabas.broker.partitions import Partitions
from barnabas.broker.registry import Context, api
from barnabas.broker.turn import Turn
from barnabas.broker.workers import Workers
from barnabas.groupcoord.deadlines import Deadlines
from barnabas.storage.vnode import Check, Vnode
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.wire.types import Message, replace

READ_COMMITTED = 1
# A fetch of more partitions gives way to others while it looks at them.
PARTITIONS_AT_ONCE = 500


@api(FetchRequest, FetchResponse, uses=METADATA | RECORDS)
def handle(
    context: Context,
    request: FetchRequest,
    partitions: Partitions,
    sessions: FetchSessions,
    config: BrokerConfig,
    workers: Workers,
    deadlines: Deadlines,
    turn: Turn,
) -> FetchResponse | Later | Awaitable[Large | Message]:
    try:
        if context.version >= 7:
            plan = sessions.plan(request, trio.current_time())
        else:
            plan = Plan(list(asked_for(request).items()), None, False)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    reading = Reading(context.version, request, plan, partitions, config["fetch.max.bytes"])
    if len(plan.partitions) > PARTITIONS_AT_ONCE:
        return _handle_slowly(reading, workers, deadlines, turn)
    reading.read_all()
    if reading.checks:
        return _handle_checked(reading, workers, deadlines, turn)
    return _answer(reading, deadlines, turn)


async def _handle_slowly(reading: Reading, workers: Workers, deadlines: Deadlines, turn: Turn) -> Large:
    breath = Breath()
    for asked, wanted in reading.plan.partitions:
        reading.read(asked, wanted)
        await breath()
    await reading.check(workers)
    return Large(await given(_answer(reading, deadlines, turn)))


async def _handle_checked(reading: Reading, workers: Workers, deadlines: Deadlines, turn: Turn) -> Message:
    await reading.check(workers)
    return await given(_answer(reading, deadlines, turn))


def _answer(reading: Reading, deadlines: Deadlines, turn: Turn) -> FetchResponse | LongPoll:
    plan, max_wait_ms = reading.plan, reading.request.max_wait_ms
    waits_for = plan.partitions if plan.session is None else plan.session.partitions
    if reading.enough() or max_wait_ms <= 0 or not waits_for:
        return reading.response()
    return LongPoll(reading, deadlines, turn, trio.current_time() + max_wait_ms / 1000)


class Reading:
    """The state of one fetch: what each partition gives so far."""

    def __init__(self, version: int, request: FetchRequest, plan: Plan, partitions: Partitions, max_bytes: int) -> None:
        self.request, self.plan = request, plan
        self._version, self._partitions = version, partitions
        self.results: dict[Asked, PartitionData] = {}
        self.vnodes: dict[Vnode, list[Asked]] = {}
        self.read_from: dict[Asked, Vnode] = {}
        self.wanted = dict(plan.partitions)
        self.size = 0
        self.left: dict[Asked, int] = {}
        """What the answer leaves out of what could be read."""
        self.checks: dict[Asked, tuple[Vnode, Check]] = {}
        """What nobody has looked at yet of what would be sent."""
        self.failed = False
        self.max_bytes = min(request.max_bytes, max_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)

    def enough(self) -> bool:
        """Whether the answer may go: enough bytes, or something that the client must be told now."""
        if self.failed or self.size >= self.min_bytes:
            return True
        if not self.left:
            return False
        return self.size + sum(self.left.values()) >= self.min_bytes or self._is_full()

    def _is_full(self) -> bool:
        """Whether every partition has given as much as its limit allows."""
        asked = self.plan.partitions if self.plan.session is None else self.plan.session.partitions
        return len(self.left) == len(asked)

    def read_all(self) -> None:
        """Look at every partition, in order, within the byte limit."""
        self.size = 0
        self.failed = False
        for asked, wanted in self.plan.partitions:
            self.read(asked, wanted)

    def read_again(self, vnode: Vnode) -> None:
        """Look at one partition that has news."""
        for asked in self.vnodes[vnode]:
            self.read(asked, self.wanted[asked])

    def add(self, asked: Asked, vnode: Vnode) -> None:
        """A partition of the session has woken up."""
        assert self.plan.session is not None
        wanted = self.plan.session.partitions[asked].wanted
        if asked not in self.wanted:
            self.plan.partitions.append((asked, wanted))
            self.vnodes.setdefault(vnode, []).append(asked)
        self.wanted[asked] = wanted

    def read(self, asked: Asked, wanted: FetchPartition) -> None:
        """Look at one partition."""
        before = self.results.get(asked)
        if before is not None and before.records is not None:
            self.size -= len(before.records)
        self.left.pop(asked, None)
        self.checks.pop(asked, None)
        try:
            result = self._partition(asked, wanted)
        except KafkaError as error:
            result = self._refused(asked, error)
        self.results[asked] = result
        if result.records is not None:
            self.size += len(result.records)

    def _refused(self, asked: Asked, error: KafkaError) -> PartitionData:
        self.failed = True
        return PartitionData(
            partition_index=asked.partition,
            error_code=error.code,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )

    async def check(self, workers: Workers) -> None:
        """Look at what nobody has looked at; what is damaged is not sent."""
        while self.checks:
            asked, (vnode, job) = self.checks.popitem()
            before = self.results[asked]
            self.size -= len(job)
            try:
                await workers.read(job.run)
                found = vnode.end_check(job)
                self.size += len(found)
                self.results[asked] = replace(before, records=found)
            except KafkaError as error:
                self.results[asked] = self._refused(asked, error)

    def leave_unchecked(self) -> None:
        """Send nothing that has not been looked at: the client asks again."""
        for asked, (_, job) in self.checks.items():
            self.size -= len(job)
            self.results[asked] = replace(self.results[asked], records=b"")
            self.failed = True  # an answer now, and no further wait
        self.checks.clear()

    def _partition(self, asked: Asked, wanted: FetchPartition) -> PartitionData:
        vnode = self.read_from[asked] = self._vnode(asked)
        self._partitions.check_leader_epoch(vnode, wanted.current_leader_epoch)
        committed = self.request.isolation_level == READ_COMMITTED
        diverging = EpochEndOffset()
        if wanted.last_fetched_epoch >= 0:
            epoch, end = vnode.epoch_end_offset(wanted.last_fetched_epoch)
            if epoch < wanted.last_fetched_epoch or end < wanted.fetch_offset:
                diverging = EpochEndOffset(epoch, end)
                self.failed = True
        records = None
        if diverging.epoch < 0:
            room = self.max_bytes - self.size
            found = vnode.read(
                wanted.fetch_offset,
                max(0, min(room, wanted.partition_max_bytes)),
                min_one_batch=self.size == 0,
                max_offset=vnode.last_stable_offset if committed else vnode.high_watermark,
                verified=True,
            )
            records = found.slice
            if found.check is not None:
                self.checks[asked] = vnode, found.check
            if found.left:
                self.left[asked] = found.left
        return PartitionData(
            partition_index=asked.partition,
            high_watermark=vnode.high_watermark,
            last_stable_offset=vnode.last_stable_offset,
            log_start_offset=vnode.log_start_offset,
            diverging_epoch=diverging,
            aborted_transactions=[] if committed else None,
            records=b"" if records is None else records,
        )

    def known_vnodes(self) -> Iterable[Vnode]:
        """The partitions that exist, each once."""
        for asked, _ in self.plan.partitions:
            try:
                self.vnodes.setdefault(self._vnode(asked), []).append(asked)
            except KafkaError:
                continue
        return self.vnodes

    def _vnode(self, asked: Asked) -> Vnode:
        if self._version >= 13:
            name = self._partitions.topic_name(asked.topic_id)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic of that id")
        else:
            name = asked.topic
        vnode = self._partitions.get(name, asked.partition)
        if vnode is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
        return vnode

    # --- answering ----------------------------------------------------------------------------------------------------

    def response(self) -> FetchResponse:
        """The answer; in a session, partitions without news are left out and those with data go to the back."""
        session = self.plan.session
        by_topic: dict[tuple[str, bytes], list[PartitionData]] = {}
        for asked, _ in self.plan.partitions:
            result = self.results[asked]
            if session is not None:
                cached = session.partitions.get(asked)
                if cached is None:
                    continue
                changed = (
                    bool(result.error_code)
                    or result.diverging_epoch.epoch >= 0
                    or cached.high_watermark != result.high_watermark
                    or cached.log_start_offset != result.log_start_offset
                )
                cached.high_watermark, cached.log_start_offset = result.high_watermark, result.log_start_offset
                has_data = bool(result.records)
                if has_data:
                    session.hot[asked] = None
                    session.hot.move_to_end(asked)
                elif not result.error_code and cached.wanted.fetch_offset >= result.high_watermark:
                    session.quieten(asked, self.read_from[asked])
                if self.plan.incremental and not (changed or has_data):
                    continue
            by_topic.setdefault((asked.topic, asked.topic_id), []).append(result)
        topics = [FetchableTopicResponse(name, topic_id, parts) for (name, topic_id), parts in by_topic.items()]
        return FetchResponse(session_id=0 if session is None else session.id, responses=topics)


class LongPoll(Later):
    """A fetch that has found too little: its partitions tell when they move, until there is enough or time is up."""

    __slots__ = ("_deadline", "_dirty", "_reading", "_turn")

    def __init__(self, reading: Reading, deadlines: Deadlines, turn: Turn, until: float) -> None:
        super().__init__()
        self._reading, self._turn = reading, turn
        self._dirty: set[Vnode] = set()
        for vnode in reading.known_vnodes():
            vnode.on_high_watermark.subscribe(self._moved)
        if reading.plan.session is not None:
            reading.plan.session.on_news[self._woken] = None
        self._deadline = deadlines.at(until, self._answer)

    def _moved(self, vnode: Vnode) -> None:
        self._dirty.add(vnode)
        self._turn.soon(self._look)

    def _woken(self, vnode: Vnode, asked: Asked) -> None:
        self._reading.add(asked, vnode)
        vnode.on_high_watermark.subscribe(self._moved)
        self._moved(vnode)

    def _look(self) -> None:
        try:
            while self._dirty:
                self._reading.read_again(self._dirty.pop())
            self._reading.leave_unchecked()
            if self._reading.enough() and self.message is None:
                self._answer()
        except Exception as error:  # whoever moved the partition must not suffer for it
            self.fail(error)

    def _answer(self) -> None:
        self.abandon()
        try:
            self.finish(self._reading.response())
        except Exception as error:
            self.fail(error)

    def abandon(self) -> None:
        self._deadline.drop()
        for vnode in self._reading.vnodes:
            vnode.on_high_watermark.unsubscribe(self._moved)
        if self._reading.plan.session is not None:
            self._reading.plan.session.on_news.pop(self._woken, None)
