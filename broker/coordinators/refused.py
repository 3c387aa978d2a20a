"""Answers about topics that a client may not use: they are refused at once, and the other topics are processed.

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
    """The allowed items and the refused items, each in their original order."""
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
