"""What a client may not do with some of a request's topics: they are refused at once, the others take their way.

allowed, refused = split(request.topics, may)
coordinator.commit(replace(request, topics=allowed), reply=RepliedWith([answer_of(each) for each in refused]))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from barnabas.broker.coordinators.groups import Reply
from barnabas.wire.types import Message, Struct, replace

T = TypeVar("T")


def split(asked: Sequence[T], may: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """What may be done, and what may not, each in its order."""
    allowed: list[T] = []
    refused: list[T] = []
    for each in asked:
        (allowed if may(each) else refused).append(each)
    return allowed, refused


class RepliedWith(Reply[Message]):
    """A reply to which the answers about refused topics are added."""

    __slots__ = ("_refused",)

    def __init__(self, refused: Sequence[Struct], *, applied: bool = True) -> None:
        super().__init__(applied=applied)
        self._refused = refused

    def __call__(self, answer: Message) -> None:
        topics = [*answer.topics, *self._refused]  # type: ignore[attr-defined]
        super().__call__(replace(answer, topics=topics) if self._refused else answer)
