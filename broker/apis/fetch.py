"""Fetch (1), versions 4-18: record batches as slices of the log files, with long poll and sessions.

A request that finds `min_bytes` is answered at once. Bytes that a limit on the answer's size cuts off count as found,
and `min_bytes` is capped at those limits: waiting would not make the answer larger. The same holds at the end of an
older segment, as a range is from one file. Otherwise the request waits on its partitions: each one notifies it when the
high watermark moves, and only those partitions are read again. In a session, partitions without news are not read at
all. `max_bytes` is shared in the order of the request (or of the session, see `broker.reading.fetch_sessions`); the
first batch is given whole even if it is larger.

A client that is over its quota gets an answer without partitions, and asks for the same again after the throttle time
(KIP-219). Bytes that are not sent do not count.

Version 4: isolation level. With read_committed the answer ends at the last stable offset, and says which transactions
of its range were aborted: the client passes over their records (KIP-98). Versions 5-6: the log start offset.
Version 7: incremental fetch sessions (KIP-227). Version 8: the same.
Version 9: the leader epoch that the client knows is checked (KIP-320). Versions 10-11: zstd; the client's rack, unused.
Version 12: the epoch last fetched; if the logs diverge, the answer says from which epoch on (KIP-595).
Version 13: topics by id (KIP-516); a session keeps using names or ids, as it began. Versions 14-15: for followers and
tiered storage, which are not served. Version 16: the address of a leader elsewhere (KIP-951). Versions 17-18: as 14.

Other nodes of this broker fetch the metadata log, and nothing else. A client that says to be a replica reads nothing,
as no partition has a second one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

import msgspec
import trio

from barnabas.broker.between.followers import Followers
from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.large import LargeResponse, given
from barnabas.broker.net.order import METADATA, RECORDS
from barnabas.broker.net.turn import Turn
from barnabas.broker.nodes import Nodes
from barnabas.broker.partitions import Partitions
from barnabas.broker.quotas.manager import ClientQuota
from barnabas.broker.reading.fetch_sessions import FetchContext, FetchSessions, TopicIdPartition, partitions_of
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import CLUSTER_ACTION, READ_TOPIC
from barnabas.broker.security.principals import NODE
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.workers import Workers, Yielder
from barnabas.groupcoord.deadlines import Deadlines
from barnabas.storage.vnode import LATER_SEGMENT, Check, ReadResult, Vnode
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from barnabas.wire.types import Message, replace

READ_COMMITTED = 1
LEADERS_SINCE = 12
BY_ID_SINCE = 13
REPLICA_STATE_SINCE = 15
ENDPOINTS_SINCE = 16
_LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
# A fetch of more partitions yields to others while it reads them.
PARTITIONS_AT_ONCE = 500
# About the most aborted transactions in one answer: after a start, the first check of each one reads the log.
MOST_ABORTED = 256


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
    followers: Followers,
    nodes: Nodes,
) -> FetchResponse | DelayedResponse | Awaitable[LargeResponse | Message]:
    if context.connection.principal is NODE:
        followers.fetched(context.connection, request)
        if (first := followers.begin_with(request)) is not None:
            return first
        partitions = followers.door
    try:
        if context.version >= 7:
            by_id = context.version >= BY_ID_SINCE
            authorizer = context.connection.authorizer
            rights = 0 if authorizer is None else authorizer.version
            fetch = sessions.new_context(request, trio.current_time(), context.client, by_id=by_id, rights=rights)
        else:
            fetch = FetchContext(list(partitions_of(request).items()), None, False)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    reading = Reading(context, request, fetch, partitions, config["fetch.max.bytes"], sessions, nodes)
    if len(fetch.partitions) > PARTITIONS_AT_ONCE:
        return _handle_slowly(context, reading, workers, deadlines, turn)
    reading.read_all()
    if reading.checks:
        return _handle_checked(context, reading, workers, deadlines, turn)
    return _answer(reading, deadlines, turn)


async def _handle_slowly(
    context: Context, reading: Reading, workers: Workers, deadlines: Deadlines, turn: Turn
) -> LargeResponse:
    yielder = Yielder()
    for key, wanted in reading.fetch.partitions:
        reading.read(key, wanted)
        await yielder()
    await reading.check(workers)
    return LargeResponse(await given(_answer(reading, deadlines, turn, awaited=True)))


async def _handle_checked(
    context: Context, reading: Reading, workers: Workers, deadlines: Deadlines, turn: Turn
) -> Message:
    await reading.check(workers)
    return await given(_answer(reading, deadlines, turn, awaited=True))


def _answer(
    reading: Reading, deadlines: Deadlines, turn: Turn, *, awaited: bool = False
) -> FetchResponse | DelayedFetch:
    """`awaited` says that other tasks have run since the partitions were read."""
    fetch, max_wait_ms = reading.fetch, reading.request.max_wait_ms
    waits_for = fetch.partitions if fetch.session is None else fetch.session.partitions
    if reading.enough() or max_wait_ms <= 0 or not waits_for:
        return reading.response()
    delayed = DelayedFetch(reading, deadlines, turn, trio.current_time() + max_wait_ms / 1000)
    if awaited:
        delayed.look_again()
    return delayed


class Reading:
    """The state of one fetch: the result of each partition so far."""

    def __init__(
        self,
        context: Context,
        request: FetchRequest,
        fetch: FetchContext,
        partitions: Partitions,
        max_bytes: int,
        sessions: FetchSessions,
        nodes: Nodes,
    ) -> None:
        self._nodes = nodes
        #: Nodes that lead the partitions not led here.
        self._leaders: frozenset[int] = frozenset()
        self.request, self.fetch, self.context = request, fetch, context
        self._sessions = sessions
        self._version, self._partitions = context.version, partitions
        # An authorizer is asked at each read, so that nothing is sent after a right is withdrawn.
        self._checked = None if context.connection.authorizer is None else context
        self.results: dict[TopicIdPartition, PartitionData] = {}
        self.vnodes: dict[Vnode, list[TopicIdPartition]] = {}
        self.read_from: dict[TopicIdPartition, Vnode] = {}
        self.wanted = dict(fetch.partitions)
        self.size = 0
        self._aborted_left = MOST_ABORTED
        self.left: dict[TopicIdPartition, int] = {}
        """Readable bytes that the answer leaves out."""
        self.checks: dict[TopicIdPartition, tuple[Vnode, Check]] = {}
        """Checks of ranges that would be sent and were not checked yet."""
        self.failed = False
        self.max_bytes = min(request.max_bytes, max_bytes)
        if context.bill is not None:
            self.max_bytes = int(min(self.max_bytes, context.bill.quota.most_fetched))
        self.min_bytes = min(request.min_bytes, self.max_bytes)

    def enough(self) -> bool:
        """Whether the answer can be sent: it has enough bytes, or something that the client must learn now."""
        if self.failed or self.size >= self.min_bytes:
            return True
        if not self.left:
            return False
        return self.size + sum(self.left.values()) >= self.min_bytes or self._is_full()

    def _is_full(self) -> bool:
        """Whether every partition has given as much as its limit allows."""
        wanted = self.fetch.partitions if self.fetch.session is None else self.fetch.session.partitions
        return len(self.left) == len(wanted)

    def read_all(self) -> None:
        """Read every partition, in order, within the byte limit."""
        self.size = 0
        self.failed = False
        for key, wanted in self.fetch.partitions:
            self.read(key, wanted)

    def read_again(self, vnode: Vnode) -> None:
        """Read one partition that has news."""
        for key in self.vnodes[vnode]:
            self.read(key, self.wanted[key])

    def add(self, key: TopicIdPartition, vnode: Vnode) -> None:
        """Add a partition of the session that has news."""
        assert self.fetch.session is not None
        wanted = self.fetch.session.partitions[key].wanted
        if key not in self.wanted:
            self.fetch.partitions.append((key, wanted))
            self.vnodes.setdefault(vnode, []).append(key)
        self.wanted[key] = wanted

    def read(self, key: TopicIdPartition, wanted: FetchPartition) -> None:
        """Read one partition."""
        before = self.results.get(key)
        if before is not None and before.records is not None:
            self.size -= len(before.records)
            self._aborted_left += len(before.aborted_transactions or ())
        self.left.pop(key, None)
        self.checks.pop(key, None)
        try:
            result = self._partition(key, wanted)
        except KafkaError as error:
            result = self._refused(key, error)
        self.results[key] = result
        if result.records is not None:
            self.size += len(result.records)

    def _refused(self, key: TopicIdPartition, error: KafkaError) -> PartitionData:
        self.failed = True
        return PartitionData(
            partition_index=key.partition,
            error_code=error.code,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
            current_leader=self._leader(key) if error.code in _LED_ELSEWHERE else LeaderIdAndEpoch(),
        )

    def _leader(self, key: TopicIdPartition) -> LeaderIdAndEpoch:
        """The leader of a partition, so that the client need not ask for it (KIP-951). Older versions have no place."""
        if self._version < LEADERS_SINCE:
            return LeaderIdAndEpoch()
        name = self._partitions.topic_name(key.topic_id) if self._version >= BY_ID_SINCE else key.topic
        leader = self._partitions.leader(name, key.partition)
        if leader is None:
            return LeaderIdAndEpoch()
        self._leaders |= {leader.node}
        return LeaderIdAndEpoch(*leader)

    async def check(self, workers: Workers) -> None:
        """Run the checks; damaged batches are not sent."""
        context = self.context
        while self.checks:
            key, (vnode, job) = self.checks.popitem()
            before = self.results[key]
            self.size -= len(job)
            try:
                await workers.read(context.client, context.paid(job.run))
                found = vnode.end_check(job)
                self.size += len(found)
                self.results[key] = replace(before, records=found)
            except KafkaError as error:
                self.results[key] = self._refused(key, error)

    def leave_unchecked(self) -> None:
        """Leave out ranges that were not checked: the client asks again."""
        for key, (_, job) in self.checks.items():
            self.size -= len(job)
            self.results[key] = replace(self.results[key], records=b"")
            self.failed = True  # answer now, without a further wait
        self.checks.clear()

    def _partition(self, key: TopicIdPartition, wanted: FetchPartition) -> PartitionData:
        vnode = self.read_from[key] = self._vnode(key)
        self._partitions.check_leader_epoch(vnode, wanted.current_leader_epoch)
        committed = self.request.isolation_level == READ_COMMITTED
        diverging = EpochEndOffset()
        aborted: list[AbortedTransaction] | None = [] if committed else None
        if wanted.last_fetched_epoch >= 0:
            epoch, end = vnode.epoch_end_offset(wanted.last_fetched_epoch)
            if epoch < wanted.last_fetched_epoch or end < wanted.fetch_offset:
                diverging = EpochEndOffset(epoch, end)
                self.failed = True
        records = None
        if diverging.epoch < 0:
            found = self._read(vnode, wanted, vnode.last_stable_offset if committed else vnode.high_watermark)
            if committed and found.slice is not None:
                found = self._with_few_aborted(vnode, wanted, found)
            records = found.slice
            if found.check is not None:
                self.checks[key] = vnode, found.check
            if found.left:
                self.left[key] = found.left
            if aborted is not None and records is not None:
                aborted += [
                    AbortedTransaction(each.producer_id, each.first_offset)
                    for each in vnode.aborted_transactions(wanted.fetch_offset, found.end_offset)
                ]
                self._aborted_left -= len(aborted)
        return PartitionData(
            partition_index=key.partition,
            high_watermark=vnode.high_watermark,
            last_stable_offset=vnode.last_stable_offset,
            log_start_offset=vnode.log_start_offset,
            diverging_epoch=diverging,
            aborted_transactions=aborted,
            records=b"" if records is None else records,
        )

    def _read(self, vnode: Vnode, wanted: FetchPartition, max_offset: int) -> ReadResult:
        room = self.max_bytes - self.size if self._aborted_left > 0 else 0
        return vnode.read(
            wanted.fetch_offset,
            max(0, min(room, wanted.partition_max_bytes)),
            min_one_batch=self.size == 0,
            max_offset=max_offset,
            verified=True,
        )

    def _with_few_aborted(self, vnode: Vnode, wanted: FetchPartition, found: ReadResult) -> ReadResult:
        """`found`, or its part before the first abort marker that would be too many."""
        limit = vnode.aborted_limit(wanted.fetch_offset, found.end_offset, max(self._aborted_left, 1))
        if limit == found.end_offset:
            return found
        shorter = self._read(vnode, wanted, limit)
        return found if shorter.slice is None else msgspec.structs.replace(shorter, left=LATER_SEGMENT)

    def known_vnodes(self) -> Iterable[Vnode]:
        """The partitions that exist, each once."""
        for key, _ in self.fetch.partitions:
            try:
                self.vnodes.setdefault(self._vnode(key), []).append(key)
            except KafkaError:
                continue
        return self.vnodes

    def _vnode(self, key: TopicIdPartition) -> Vnode:
        checked, by_replica = self._checked, self._is_by_replica()
        if checked is not None and by_replica and not checked.may(CLUSTER_ACTION):
            raise KafkaError(READ_TOPIC.refusal)
        if self._version >= BY_ID_SINCE:
            name = self._partitions.topic_name(key.topic_id)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        else:
            name = key.topic
        if checked is not None and not by_replica:
            checked.check(READ_TOPIC, name)
        vnode = self._partitions.led(name, key.partition)
        if by_replica and self.context.connection.principal is not NODE:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition has no other replica")
        return vnode

    def _is_by_replica(self) -> bool:
        """Whether the request says that it comes from another broker."""
        request, is_old = self.request, self._version < REPLICA_STATE_SINCE
        return (request.replica_id if is_old else request.replica_state.replica_id) >= 0

    # --- answering ----------------------------------------------------------------------------------------------------

    def response(self) -> FetchResponse:
        """The answer. In a session, partitions without news are left out, and those with data go to the back."""
        session = self.fetch.session
        if self.context.bill is not None and self._is_over(self.context.bill.quota):
            return self._nothing()
        by_topic: dict[tuple[str, bytes], list[PartitionData]] = {}
        for key, _ in self.fetch.partitions:
            result = self.results[key]
            if session is not None:
                cached = session.partitions.get(key)
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
                    session.hot[key] = None
                    session.hot.move_to_end(key)
                elif not result.error_code and cached.wanted.fetch_offset >= result.high_watermark:
                    session.quieten(key, self.read_from[key], result.high_watermark)
                if self.fetch.incremental and not (changed or has_data):
                    continue
            by_topic.setdefault((key.topic, key.topic_id), []).append(result)
        topics = [FetchableTopicResponse(name, topic_id, parts) for (name, topic_id), parts in by_topic.items()]
        endpoints = []
        if self._leaders and self._version >= ENDPOINTS_SINCE:
            found = self._nodes.some(self._leaders, self.context.connection.listener)
            endpoints = [NodeEndpoint(*node) for node in found]
        return FetchResponse(
            session_id=0 if session is None else session.id, responses=topics, node_endpoints=endpoints
        )

    def _is_over(self, quota: ClientQuota) -> bool:
        """Whether the client is over a quota with the bytes that would be sent now.

        A batch that is larger than all windows allow is sent alone: otherwise it would never be sent.
        """
        size, context = self.size, self.context
        goes_alone = size > quota.most_fetched and quota.has_fetched_nothing
        context.throttle(quota.fetched(size))
        context.settle()
        if not context.throttle_ms or goes_alone:
            return False
        quota.not_sent(size)
        return True

    def _nothing(self) -> FetchResponse:
        """An answer without partitions. It begins no session; in a session, the client asks for the same again."""
        session = self.fetch.session
        if session is None:
            return FetchResponse()
        if not self.fetch.incremental:
            self._sessions.close(session)
            return FetchResponse()
        return FetchResponse(session_id=session.id)


class DelayedFetch(DelayedResponse):
    """A fetch that has found too little. Its partitions notify it until there is enough or the time is up."""

    __slots__ = ("_deadline", "_dirty", "_reading", "_turn")

    def __init__(self, reading: Reading, deadlines: Deadlines, turn: Turn, until: float) -> None:
        super().__init__()
        self._reading, self._turn = reading, turn
        self._dirty: set[Vnode] = set()
        for vnode in reading.known_vnodes():
            vnode.on_high_watermark.subscribe(self._moved)
        if reading.fetch.session is not None:
            reading.fetch.session.on_news[self._woken] = None
        self._deadline = deadlines.at(until, self._answer)

    def look_again(self) -> None:
        """Read the partitions that moved before this listened."""
        results = self._reading.results
        for vnode, keys in self._reading.vnodes.items():
            if vnode.error is not None or vnode.high_watermark != results[keys[0]].high_watermark:
                self._dirty.add(vnode)
        self._look()

    def _moved(self, vnode: Vnode) -> None:
        self._dirty.add(vnode)
        self._turn.soon(self._look)

    def _woken(self, vnode: Vnode, key: TopicIdPartition) -> None:
        self._reading.add(key, vnode)
        vnode.on_high_watermark.subscribe(self._moved)
        self._moved(vnode)

    def _look(self) -> None:
        reading = self._reading
        try:
            reading.context.paid(self._read_dirty)()
            if reading.enough() and self.message is None:
                self._answer()
        except Exception as error:  # the request that moved the partition must not fail because of it
            self.fail(error)

    def _read_dirty(self) -> None:
        while self._dirty:
            self._reading.read_again(self._dirty.pop())
        self._reading.leave_unchecked()

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
        if self._reading.fetch.session is not None:
            self._reading.fetch.session.on_news.pop(self._woken, None)
