"""The parts of one broker. A function or constructor that takes parts names them in its annotations.

parts = Parts(config, log)
topics = parts.make(TopicManager)      # its constructor asks for `config: BrokerConfig, log: EventLog`
parts.bound(handle, after=2)           # the parts that a handler takes after a context and a request
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

P = TypeVar("P")


class Parts:
    """At most one part of each class."""

    def __init__(self, *parts: object) -> None:
        self._known: dict[type, object] = {}
        for part in parts:
            self.add(part)

    def add(self, part: P) -> P:
        """Add a part. It is found by its class and by all its base classes."""
        self._known.update(dict.fromkeys(type(part).__mro__[:-1], part))
        return part

    def make(self, kind: type[P], **given: object) -> P:
        """Make a part from the parts that its constructor asks for. `given` are further arguments by name, which are no
        parts.

        Raises TypeError for a part that does not exist.
        """
        wanted = get_type_hints(kind.__init__)
        names = [name for name in list(inspect.signature(kind).parameters) if name not in given]
        return self.add(kind(**given, **{name: self._find(wanted[name], kind.__name__) for name in names}))

    def find(self, kind: type[P]) -> P:
        """The part of a class. Raises TypeError if there is none."""
        return self._find(kind, "somebody")  # type: ignore[return-value]

    def bound(self, function: Callable[..., Any], *, after: int, name: str) -> list[object]:
        """The parts that a function takes after its first `after` arguments. Raises TypeError for an unknown part."""
        hints = get_type_hints(function)
        return [self._find(hints[each], name) for each in list(inspect.signature(function).parameters)[after:]]

    def _find(self, kind: type, who: str) -> object:
        """A part, or a dataclass whose fields are parts."""
        if kind in self._known:
            return self._known[kind]
        if not is_dataclass(kind):
            raise TypeError(f"{who} takes a part that does not exist: {kind.__name__}")
        hints = get_type_hints(kind)
        return kind(**{field.name: self._find(hints[field.name], who) for field in fields(kind)})
