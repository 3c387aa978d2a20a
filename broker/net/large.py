"""Requests with many elements, handled without holding up other clients.

frame -> decoded in a thread -> cut into pieces -> each piece handled, others have their turn in between
      -> answers joined -> encoded in a thread

A handler is called for each piece as if it were a request of its own, so it needs no second implementation. There is
one visible difference: an element that is named twice is noticed within a piece, but not across two pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import trio

from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.registry import Answer, Context, Endpoint
from barnabas.broker.workers import Turns, Yielder, let_go
from barnabas.wire.errors import ErrorCode
from barnabas.wire.types import Message, SizedChunk, replace

# The elements of a request of this size can take more than a few milliseconds.
LARGE_FRAME = 8 << 10
# A fetch has more bytes per element, and yields to other tasks by itself.
LARGE_FETCH = 64 << 10
PIECE = 500
# A long text counts for more than one element: a group's id is hashed, character by character.
CHARACTERS = 64
PRODUCE, FETCH, DESCRIBE_TOPIC_PARTITIONS = 0, 1, 75
# The most elements of a request that can be cut into pieces, and of other requests.
MAX_ELEMENTS = 200_000
MAX_WHOLE_ELEMENTS = 5_000
MAX_OF = {PRODUCE: 12_000, FETCH: 50_000, DESCRIBE_TOPIC_PARTITIONS: 50_000}


def is_large(key: int, size: int) -> bool:
    """Whether a request may take too long to be handled at once. Produce handles that itself."""
    return size > LARGE_FRAME and key != PRODUCE and (key != FETCH or size > LARGE_FETCH)


class Cut(NamedTuple):
    """The path to the elements of a request, lists in lists; and the path in its response, with the naming fields."""

    request: tuple[str, ...]
    response: tuple[str, ...]


TOPICS = Cut(("topics",), ("topics",))
TOPIC_PARTITIONS = Cut(("topics", "partitions"), ("topics", "partitions"))
CONFIGS = Cut(("resources",), ("responses",))
CUTS: dict[str, Cut] = {
    "AlterClientQuotas": Cut(("entries",), ("entries",)),
    "AlterConfigs": CONFIGS,
    "AlterPartitionReassignments": Cut(("topics", "partitions"), ("responses", "partitions")),
    "AlterReplicaLogDirs": Cut(("dirs", "topics", "partitions"), ("results", "partitions")),
    "CreateAcls": Cut(("creations",), ("results",)),
    "CreatePartitions": Cut(("topics",), ("results",)),
    "CreateTopics": TOPICS,
    "DeleteAcls": Cut(("filters",), ("filter_results",)),
    "DeleteGroups": Cut(("groups_names",), ("results",)),
    "DeleteRecords": TOPIC_PARTITIONS,
    "DescribeConfigs": Cut(("resources",), ("results",)),
    "DescribeGroups": Cut(("groups",), ("groups",)),
    "DescribeQuorum": TOPIC_PARTITIONS,
    "DescribeUserScramCredentials": Cut(("users",), ("results",)),
    "ElectLeaders": Cut(("topic_partitions", "partitions"), ("replica_election_results", "partition_result")),
    "FindCoordinator": Cut(("coordinator_keys",), ("coordinators",)),
    "IncrementalAlterConfigs": CONFIGS,
    "ListPartitionReassignments": Cut(("topics", "partition_indexes"), ("topics",)),
    "ListOffsets": TOPIC_PARTITIONS,
    "Metadata": TOPICS,
    "OffsetCommit": TOPIC_PARTITIONS,
    "OffsetDelete": TOPIC_PARTITIONS,
    "OffsetForLeaderEpoch": TOPIC_PARTITIONS,
}


def cut_of(name: str, version: int) -> Cut | None:
    """How the requests of an API are cut; None if they are not."""
    if name == "OffsetFetch":
        if version < 8:
            return Cut(("topics", "partition_indexes"), ("topics", "partitions"))
        return Cut(("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions"))
    if name == "AddPartitionsToTxn" and version >= 4:  # before, it is for one transaction: all or nothing is added
        return Cut(("transactions",), ("results_by_transaction",))
    if name == "DeleteTopics":
        return Cut(("topics" if version >= 6 else "topic_names",), ("responses",))
    return CUTS.get(name)


def most_elements(key: int, name: str, version: int) -> int:
    """The most elements that a request of this API may have."""
    found = MAX_OF.get(key)
    return found or (MAX_ELEMENTS if cut_of(name, version) else MAX_WHOLE_ELEMENTS)


class LargeResponse:
    """An answer that takes long to encode, perhaps in pieces that are joined to one answer."""

    def __init__(
        self, message: Message, *more: Message, path: tuple[str, ...] = (), owned: Sequence[list[Any]] = ()
    ) -> None:
        """`owned` are long lists of the message that nobody else uses: they are emptied when it is encoded."""
        self._messages, self._path, self._owned = [message, *more], path, owned

    @property
    def message(self) -> Message:
        """The whole answer."""
        found: Message = join(self._messages, self._path)
        return found

    async def encoded(self, endpoint: Endpoint, context: Context, turns: Turns) -> list[SizedChunk]:
        """The encoded answer; a thread makes it."""
        context.settle()
        chunks = await turns.run(context.client, context.paid(lambda: endpoint.encode(self.message, context)))
        context.settle_rest()
        for rows in self._owned:
            await let_go(rows)
        return chunks


async def handle(endpoint: Endpoint, frame: bytes, position: int, context: Context, turns: Turns) -> LargeResponse:
    """Decode and handle a large request; gives its answer. Raises ProtocolError."""
    api = endpoint.api
    most = most_elements(api.key, api.name, endpoint.version)
    request, _ = await turns.run(context.client, context.paid(lambda: endpoint.decode(frame, position, most)))
    cut = cut_of(api.name, endpoint.version)
    if cut is None:
        return LargeResponse(await given(endpoint.handle(context, request)))
    yielder = Yielder()
    answers: list[Message] = []
    for piece in pieces(request, cut.request, PIECE):
        answers.append(await given(endpoint.handle(context, piece)))
        if getattr(answers[-1], "error_code", ErrorCode.NONE):
            break  # it refuses the whole request
        await yielder()
    return LargeResponse(*answers, path=cut.response)


async def given(answer: Answer) -> Message:
    """Wait for the answer."""
    if isinstance(answer, Message):
        return answer
    assert answer is not None
    if not isinstance(answer, DelayedResponse):
        found = await answer
        return found.message if isinstance(found, LargeResponse) else found
    if not answer.finished:
        done = trio.Event()
        failures: list[Exception] = []

        def failed(error: Exception) -> None:
            failures.append(error)
            done.set()

        answer.on_finish, answer.on_error = done.set, failed
        try:
            await done.wait()
        except trio.Cancelled:
            answer.on_finish = answer.on_error = None
            answer.abandon()
            raise
        if failures:
            raise failures[0]
    assert answer.message is not None
    return answer.message


def pieces(message: Any, path: tuple[str, ...], most: int) -> Iterator[Any]:
    """Copies of a struct with at most `most` of the elements at `path` each; the struct itself if it has no more.

    An element with long texts counts for more than one, and may be alone in a copy.
    """
    field, deeper = path[0], path[1:]
    elements = getattr(message, field)
    if not elements:
        yield message
        return
    if isinstance(elements[0], int):
        for start in range(0, len(elements), most):
            yield replace(message, **{field: elements[start : start + most]})
        return
    gathered: list[Any] = []
    size = 0
    for element in elements:
        for piece in pieces(element, deeper, most) if deeper else (element,):
            weight = _size(piece, deeper)
            if gathered and size + weight > most:
                yield replace(message, **{field: gathered})
                gathered, size = [], 0
            gathered.append(piece)
            size += weight
    yield replace(message, **{field: gathered})


def _size(element: Any, path: tuple[str, ...]) -> int:
    """The weight of an element: the elements in it, or one, and its own texts."""
    if isinstance(element, str):
        return 1 + len(element) // CHARACTERS
    texts = sum(len(text) for field in element.__struct_fields__ if isinstance(text := getattr(element, field), str))
    inner = (getattr(element, path[0]) or ()) if path else ()
    count = len(inner) if inner and isinstance(inner[0], int) else sum(_size(each, path[1:]) for each in inner)
    return max(1, count) + texts // CHARACTERS


def join(answers: list[Any], path: tuple[str, ...]) -> Any:
    """Join the elements of all answers in one struct; elements that were cut in two are joined again."""
    if len(answers) == 1:
        return answers[0]
    field, deeper = path[0], path[1:]
    if not deeper:
        elements = [element for answer in answers for element in getattr(answer, field)]
        return replace(answers[-1], **{field: elements})
    groups: list[list[Any]] = []
    for answer in answers:
        for element in getattr(answer, field):
            if groups and _is_same(groups[-1][0], element, deeper[0]):
                groups[-1].append(element)
            else:
                groups.append([element])
    return replace(answers[-1], **{field: [join(group, deeper) for group in groups]})


def _is_same(one: Any, other: Any, inner: str) -> bool:
    return all(getattr(one, field) == getattr(other, field) for field in one.__struct_fields__ if field != inner)
