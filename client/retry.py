"""When a client repeats a request: which ones may be repeated, and the pauses before (KIP-580).

Which error codes are temporary is Kafka's table, `ErrorCode.retriable`. Clock, sleep and randomness are injected.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from barnabas.client.errors import ClientError
from barnabas.wire.types import Message

T = TypeVar("T")

#: Kafka's retry.backoff.ms and retry.backoff.max.ms, and the random share of a pause.
FIRST_SECONDS, LAST_SECONDS = 0.1, 1.0
JITTER = 0.2
#: How long a client keeps trying: less than default.api.timeout.ms, because a person is waiting.
PATIENCE_SECONDS = 30.0

#: Requests that change nothing, or nothing more when repeated. A member that repeats a join, sync or heartbeat gets the
#: same answer as for one.
_REPEATABLE = frozenset(
    {
        "ApiVersionsRequest",
        "DescribeClusterRequest",
        "DescribeConfigsRequest",
        "DescribeGroupsRequest",
        "DescribeLogDirsRequest",
        "FetchRequest",
        "FindCoordinatorRequest",
        "HeartbeatRequest",
        "JoinGroupRequest",
        "ListGroupsRequest",
        "ListOffsetsRequest",
        "MetadataRequest",
        "OffsetFetchRequest",
        "SaslAuthenticateRequest",
        "SaslHandshakeRequest",
        "SyncGroupRequest",
    }
)


def is_repeatable(request: Message) -> bool:
    """Whether a request does no harm if it is carried out twice."""
    return type(request).__name__ in _REPEATABLE


@dataclass(frozen=True, slots=True)
class Timing:
    """The sources of time and randomness."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random  # from 0 to 1


class Backoff:
    """The pauses between attempts: each is twice as long as the one before, until a deadline."""

    def __init__(self, patience: float, timing: Timing) -> None:
        self._timing = timing
        self._until = timing.clock() + patience
        self._next = FIRST_SECONDS

    def pause(self) -> bool:
        """Sleep before the next attempt. Returns False, without sleeping, if the deadline would pass meanwhile."""
        seconds = self._next * (1 + JITTER * (2 * self._timing.chance() - 1))
        self._next = min(self._next * 2, LAST_SECONDS)
        if self._timing.clock() + seconds > self._until:
            return False
        self._timing.sleep(seconds)
        return True


def again(attempt: Callable[[], T], patience: float, timing: Timing) -> T:
    """The result of `attempt`, retried until it raises no repeatable ClientError or the deadline has come."""
    backoff = Backoff(patience, timing)
    while True:
        try:
            return attempt()
        except ClientError as error:
            if not error.may_repeat or not backoff.pause():
                raise
