"""A signal during a start ends it. The directory stays as it was, and the next start does the remaining work."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.broker import main, workers
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import MetadataImage
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


async def with_topics(path: Path, count: int) -> None:
    """Make a data directory with topics."""
    async with trio.open_nursery() as nursery:
        node = Node(settings(path), EventLog(io.StringIO()))
        await nursery.start(node.run)
        for number in range(count):
            await node.topics.create(f"t{number}", 1, {})
        node.stop()
        await node.stopped.wait()


@pytest.mark.parametrize("step", ["apply", "_tell_topic"])
async def test_a_signal_while_the_metadata_are_gone_through_ends_the_start_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    await with_topics(tmp_path, 40)
    monkeypatch.setattr(workers, "HOLD_SECONDS", -1.0)
    done: list[Any] = []
    original = getattr(MetadataImage, step)

    def counted(image: MetadataImage, *args: Any) -> None:
        done.append(args)
        if len(done) == 10:
            os.kill(os.getpid(), signal.SIGTERM)
        original(image, *args)

    monkeypatch.setattr(MetadataImage, step, counted)
    with trio.fail_after(60):
        await main._serve(settings(tmp_path), EventLog(io.StringIO()), 0.0, None, None)
    assert 10 <= len(done) < 40


async def test_others_may_have_their_turn_all_through_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While two records for each topic are replayed, listeners are told, settings are applied, and folders are compared
    three times."""
    count = 30
    await with_topics(tmp_path, count)
    offered: list[None] = []
    original = workers.Yielder.__call__

    async def offering(yielder: workers.Yielder) -> None:
        offered.append(None)
        await original(yielder)

    monkeypatch.setattr(workers.Yielder, "__call__", offering)
    async with trio.open_nursery() as nursery:
        node = Node(settings(tmp_path), EventLog(io.StringIO()))
        await nursery.start(node.run)
        assert len(offered) >= 7 * count
        node.stop()


async def test_topics_with_equal_settings_share_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start computes the settings of the logs for each combination of topic settings, not for each topic."""
    await with_topics(tmp_path, 30)
    made: list[Any] = []
    original = BrokerConfig.log_config

    def noted(config: BrokerConfig, overrides: Any) -> Any:
        made.append(overrides)
        return original(config, overrides)

    monkeypatch.setattr(BrokerConfig, "log_config", noted)
    async with trio.open_nursery() as nursery:
        node = Node(settings(tmp_path), EventLog(io.StringIO()))
        await nursery.start(node.run)
        assert len(made) <= 2  # before and after the dynamic settings of the broker are known
        assert len({id(vnode.config) for (name, _), vnode in node.vnodes.items() if name.startswith("t")}) == 1
        node.stop()
