"""Incremental fetch sessions (KIP-227): the broker remembers a client's partitions, requests carry only changes, and
answers only partitions that have something new.

A session reads only its hot partitions: those that may have news. A partition that is read to its end becomes quiet,
and its vnode notifies the session when it moves, so idle partitions cost nothing, however many there are. Hot
partitions are served in order; one that gave data goes to the back, so that a small `max_bytes` starves none.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.storage.vnode import Vnode
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
EVICTION_SECONDS = 120.0
# The most partitions of all sessions together; requests beyond this are served without a session.
MAX_PARTITIONS = 500_000


class TopicIdPartition(NamedTuple):
    """A partition as a request names it: by name up to version 12, by topic id after that."""

    topic: str
    topic_id: bytes
    partition: int


class CachedPartition:
    """A session's partition: what the client wants, and what its last answer said."""

    __slots__ = ("high_watermark", "log_start_offset", "wanted")

    def __init__(self, wanted: FetchPartition) -> None:
        self.wanted = wanted
        self.high_watermark = self.log_start_offset = -1


class FetchSession:
    """One client's session. `epoch` is that of the next request; `on_news` is called when a partition turns hot.

    All of its requests name topics in one way: `by_id` or by name.
    """

    __slots__ = ("_quiet", "by_id", "client", "epoch", "hot", "id", "last_used", "on_news", "partitions", "rights")

    def __init__(self, session_id: int, now: float, client: str, *, by_id: bool) -> None:
        self.id, self.epoch, self.last_used, self.by_id = session_id, 1, now, by_id
        self.client = client
        #: The version of all rights at which the client's rights were last checked.
        self.rights = 0
        self.partitions: dict[TopicIdPartition, CachedPartition] = {}
        self.hot: OrderedDict[TopicIdPartition, None] = OrderedDict()
        self._quiet: dict[Vnode, TopicIdPartition] = {}
        self.on_news: dict[Callable[[Vnode, TopicIdPartition], None], None] = {}

    def want(self, key: TopicIdPartition, wanted: FetchPartition) -> None:
        """Add a partition, or update the request for it."""
        known = self.partitions.get(key)
        if known is None:
            self.partitions[key] = CachedPartition(wanted)
        else:
            known.wanted = wanted
        self.hot[key] = None

    def forget(self, key: TopicIdPartition) -> None:
        """Remove a partition. A quiet one wakes once more, without effect."""
        self.partitions.pop(key, None)
        self.hot.pop(key, None)

    def quieten(self, key: TopicIdPartition, vnode: Vnode, high_watermark: int) -> None:
        """Let a partition be quiet until its vnode moves on from where it was read."""
        if vnode.error is None and vnode.high_watermark == high_watermark and self._quiet.setdefault(vnode, key) == key:
            self.hot.pop(key, None)
            vnode.on_high_watermark.subscribe(self._moved)

    def _moved(self, vnode: Vnode) -> None:
        # Once is enough: a session whose client is gone costs its partitions no more than this.
        vnode.on_high_watermark.unsubscribe(self._moved)
        key = self._quiet.pop(vnode)
        if key in self.partitions:
            self.hot[key] = None
            for call in list(self.on_news):
                call(vnode, key)

    def heed(self, rights: int) -> None:
        """Read all partitions again if rights have changed: the client may have lost its right to quiet ones."""
        if rights != self.rights:
            self.rights = rights
            self.hot.update(dict.fromkeys(key for key in self._quiet.values() if key in self.partitions))
            self.close()

    def close(self) -> None:
        """End all subscriptions."""
        for vnode in self._quiet:
            vnode.on_high_watermark.unsubscribe(self._moved)
        self._quiet.clear()


def next_epoch(epoch: int) -> int:
    """Epochs wrap to 1, as 0 opens a session."""
    return 1 if epoch == 2**31 - 1 else epoch + 1


class FetchContext(NamedTuple):
    """The result of a request: the partitions to read, in order, and the session of the answer, if any.

    `incremental` reads the hot partitions only, and its answers leave out what has not changed.
    """

    partitions: list[tuple[TopicIdPartition, FetchPartition]]
    session: FetchSession | None
    incremental: bool


def partitions_of(request: FetchRequest) -> dict[TopicIdPartition, FetchPartition]:
    """The partitions that a request names; if it names one twice, the last counts."""
    return {TopicIdPartition(t.topic, t.topic_id, p.partition): p for t in request.topics for p in t.partitions}


class FetchSessions:
    """All sessions of a broker, at most `slots`. The one idle for longest makes room, if it is idle for long enough.

    Otherwise the client with the most makes room for one with fewer: its least recently used session is closed. A
    consumer whose session is gone gets an error, and opens another one.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._partitions = 0  # of all sessions
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first
        self._of: dict[str, OrderedDict[int, FetchSession]] = {}  # each client's, in the same order
        self._partitions_of: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    def new_context(
        self, request: FetchRequest, now: float, client: str = "", *, by_id: bool = True, rights: int = 0
    ) -> FetchContext:
        """Apply a client's request, which names topics by id or by name, to its session.

        `rights` is a number that changes when clients' rights do.
        Raises KafkaError for an unknown session, an epoch out of turn, or a session whose topics are named otherwise.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id:
                self._close(request.session_id)
            asked = partitions_of(request)
            session = self._open(asked, now, client, by_id) if request.session_epoch == INITIAL_EPOCH else None
            if session is not None:
                session.rights = rights
            return FetchContext(list(asked.items()), session, False)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"session epoch is {session.epoch}, not {request.session_epoch}"
            )
        if session.by_id != by_id:  # a client whose metadata has no id for a topic goes back to names
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"session {session.id} names topics {'by id' if session.by_id else 'by name'}: open another one",
            )
        session.epoch = next_epoch(session.epoch)
        session.last_used = now
        self._sessions.move_to_end(session.id)
        self._of[session.client].move_to_end(session.id)
        session.heed(rights)
        before = len(session.partitions)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.forget(TopicIdPartition(topic.topic, topic.topic_id, index))
        for key, wanted in partitions_of(request).items():
            session.want(key, wanted)
        self._count(session.client, len(session.partitions) - before)
        if not self._has_room_for_partitions(session.client, 0):
            self._close(session.id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "no room for more partitions in fetch sessions")
        return FetchContext([(key, session.partitions[key].wanted) for key in session.hot], session, True)

    def close(self, session: FetchSession) -> None:
        """End a session that its client does not know of."""
        self._close(session.id)

    def _close(self, session_id: int) -> None:
        gone = self._sessions.pop(session_id, None)
        if gone is not None:
            self._count(gone.client, -len(gone.partitions))
            of = self._of[gone.client]
            del of[session_id]
            if not of:
                del self._of[gone.client]
            gone.close()

    def _count(self, client: str, partitions: int) -> None:
        self._partitions += partitions
        self._partitions_of[client] += partitions
        if not self._partitions_of[client]:
            del self._partitions_of[client]

    def _has_slot(self, client: str, now: float) -> bool:
        """Whether there is a slot for one more session; another one may be closed for it."""
        if len(self._sessions) < self.slots:
            return True
        oldest = next(iter(self._sessions.values()))
        if now - oldest.last_used >= EVICTION_SECONDS:
            self._close(oldest.id)
            return True
        return self._close_one_of_most({each: len(of) for each, of in self._of.items()}, client, 1)

    def _has_room_for_partitions(self, client: str, more: int) -> bool:
        """Whether there is room for more partitions of a client; sessions of others may be closed for them."""
        while self._partitions + more > MAX_PARTITIONS:
            if not self._close_one_of_most(self._partitions_of, client, more):
                return False
        return True

    def _close_one_of_most(self, has: Mapping[str, int], client: str, more: int) -> bool:
        """Close a session of the client that has the most, unless this client would then have as much."""
        most = max(has, key=lambda each: has[each], default=client)
        if has.get(most, 0) <= has.get(client, 0) + more:
            return False
        self._close(next(iter(self._of[most])))
        return True

    def _open(
        self, asked: dict[TopicIdPartition, FetchPartition], now: float, client: str, by_id: bool
    ) -> FetchSession | None:
        """A new session, or None if there is no room or nothing to keep."""
        if not asked or self.slots == 0:
            return None
        if not (self._has_room_for_partitions(client, len(asked)) and self._has_slot(client, now)):
            return None
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = random.randrange(1, 2**31)
        session = self._sessions[session_id] = FetchSession(session_id, now, client, by_id=by_id)
        self._of.setdefault(client, OrderedDict())[session_id] = session
        for key, wanted in asked.items():
            session.want(key, wanted)
        self._count(client, len(asked))
        return session
