"""Large events do not hold the event loop."""

from __future__ import annotations

import threading

import pytest

from barnabas.connect.binlog import subscribe
from barnabas.connect.binlog.reader import TableUnknownError


async def test_a_large_event_is_worked_on_beside_the_event_loop() -> None:
    mine = threading.get_ident()
    assert await subscribe._beside(b"small", threading.get_ident) == mine
    assert await subscribe._beside(bytes(subscribe._LARGE_BYTES), threading.get_ident) != mine


async def test_what_is_missing_for_a_large_event_is_told() -> None:
    def unknown() -> None:
        raise TableUnknownError("d", "t")

    with pytest.raises(TableUnknownError):
        await subscribe._beside(bytes(subscribe._LARGE_BYTES), unknown)
