"""A signal during a start ends it. The directory stays as it was, and the next start does the remaining work."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.broker import main
from barnabas.broker.log import EventLog
from barnabas.broker.node import Node
from barnabas.broker.settings.config import BrokerConfig
from barnabas.storage import recovery
from barnabas.storage.layout import CLEAN_FILE


def settings(path: Path) -> BrokerConfig:
    return BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dir": str(path)})


async def test_a_signal_in_the_middle_of_recovery_ends_the_start_and_the_next_one_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trio.open_nursery() as nursery:
        node = Node(settings(tmp_path), EventLog(io.StringIO()))
        await nursery.start(node.run)
        await node.topics.create("t", 1, {})
        node.stop()
        await node.stopped.wait()
    (tmp_path / CLEAN_FILE).unlink()
    recovered: list[str] = []

    def slow(storage: Any, directory: str, *rest: Any) -> int:
        recovered.append(directory)
        if len(recovered) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return recovery.recover_partition(storage, directory, *rest)

    monkeypatch.setattr("barnabas.storage.starting.recover_partition", slow)
    monkeypatch.setattr("barnabas.storage.starting.untouched_end", lambda *_: None)
    log = io.StringIO()
    with trio.fail_after(60):
        await main._serve(settings(tmp_path), EventLog(log), 0.0, None, None)
    assert "stopped" in log.getvalue()
    assert recovered
    assert not (tmp_path / CLEAN_FILE).exists()
