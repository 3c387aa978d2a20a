"""How storage tells the operator what it found or did: one event with its fields, one line in the broker's log."""

from __future__ import annotations

import logging
from typing import Protocol

from barnabas.wire.logfmt import told

_log = logging.getLogger("storage")


class Tell(Protocol):
    """Takes an event and its fields. May be called from any thread."""

    def __call__(self, event: str, /, **fields: object) -> None: ...


def tell_logging(event: str, /, **fields: object) -> None:
    """A `Tell` for users of storage without a log of their own."""
    _log.warning(told(event, fields))
