"""The parts of one broker, and who gets which: what takes parts says so in its annotations.

parts = Parts(config, log)
topics = parts.make(TopicManager)      # its constructor asks for `config: BrokerConfig, log: EventLog`
parts.bound(handle, after=2)           # a handler is called with a context and a request, and then with its parts
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

P = TypeVar("P")


class Parts:
    """One part of each class."""

    def __init__(self, *parts: object) -> None:
        self._known: dict[type, object] = {}
        for part in parts:
            self.add(part)

    def add(self, part: P) -> P:
        """A part is found by its class and by those that the class is made from."""
        self._known.update(dict.fromkeys(type(part).__mro__[:-1], part))
        return part

    def make(self, kind: type[P], **given: object) -> P:
        """A new part, made from those that its constructor asks for; `given` by name is what no part is.

        Raises TypeError for one that is not there.
        """
        wanted = get_type_hints(kind.__init__)
        names = [name for name in list(inspect.signature(kind).parameters) if name not in given]
        return self.add(kind(**given, **{name: self._find(wanted[name], kind.__name__) for name in names}))

    def find(self, kind: type[P]) -> P:
        """The part of a class. Raises TypeError where there is none."""
        return self._find(kind, "somebody")  # type: ignore[return-value]

    def bound(self, function: Callable[..., Any], *, after: int, name: str) -> list[object]:
        """What a function takes behind its first `after` arguments. Raises TypeError for what is not there."""
        hints = get_type_hints(function)
        return [self._find(hints[each], name) for each in list(inspect.signature(function).parameters)[after:]]

    def _find(self, kind: type, who: str) -> object:
        """A part, or a dataclass of several."""
        if kind in self._known:
            return self._known[kind]
        if not is_dataclass(kind):
            raise TypeError(f"{who} wants what no broker has: {kind.__name__}")
        hints = get_type_hints(kind)
        return kind(**{field.name: self._find(hints[field.name], who) for field in fields(kind)})
