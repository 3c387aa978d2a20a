"""Several nodes on one directory against a model: partitions move, nodes and machines die, and one process takes over.

A kill loses any part of the unflushed bytes of the active segment, and leaves junk behind it. So a partition that is
wrongly treated as in order is found.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from barnabas.storage.claim import Claim
from barnabas.storage.config import LogConfig
from barnabas.storage.data_dir import DataDir
from barnabas.storage.io import Io
from barnabas.storage.layout import CLEAN_FILE, NODES_FOLDER
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.tests.support import NOW, RecordedEvents, produced, values_of
from barnabas.wire import batch
from barnabas.wire.tests.strategies import examples

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=120)
ALONE = 1  # the id of the first node, and of a broker of one process
NODES = (1, 2, 3)
numbers = st.integers(0, 1 << 30)


class Quick(Io):
    """An Io without syncs: the machine does not fail here, only processes do."""

    def fdatasync(self, fd: int) -> None:
        pass

    def fsync(self, fd: int) -> None:
        pass


class Part:
    """What a partition must contain. One producer writes its records, which count up from 0."""

    def __init__(self, name: str, number: int, holder: int) -> None:
        self.key = name, 0
        self.topic_id = bytes([number % 250 + 1]) * 16
        self.end = self.flushed = self.start = self.start_asked = 0
        #: The node that has it, None if it was given away.
        self.holder: int | None = holder


class NodesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp())
        self.claim: Claim | None = None
        self.dirs: dict[int, DataDir] = {}
        self.parts: dict[str, Part] = {}
        self.made = 0

    def teardown(self) -> None:
        for each in self.dirs.values():
            each.claim.release()
        if self.claim is not None:
            self.claim.release()
        shutil.rmtree(self.path)

    # -- what is done --------------------------------------------------------------------------------------------------

    def run(self, call: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await call()

        trio.run(main)

    def vnode(self, part: Part) -> LocalVnode:
        assert part.holder is not None
        return self.dirs[part.holder].vnodes[part.key]

    def served(self) -> list[Part]:
        return [part for part in self.parts.values() if part.holder in self.dirs]

    def pick(self, number: int) -> Part | None:
        served = self.served()
        return served[number % len(served)] if served else None

    def check(self, part: Part) -> None:
        """Check a partition that a node has just opened."""
        vnode = self.vnode(part)
        assert vnode.topic_id == part.topic_id
        assert part.flushed <= vnode.log_end_offset <= part.end
        part.end = part.flushed = vnode.log_end_offset
        assert part.start <= vnode.log_start_offset <= part.start_asked
        part.start = part.start_asked = vnode.log_start_offset
        assert values_of(vnode) == [b"%d" % number for number in range(part.start, part.end)]
        if part.end:
            repeated = vnode.append(produced(part.end - 1), now_ms=NOW)
            assert (repeated.duplicate, repeated.base_offset) == (True, part.end - 1)

    async def open_node(self, node: int) -> None:
        opened = DataDir.open(self.path, node_id=node, member=True, io=Quick(), tell=RecordedEvents())
        self.dirs[node] = opened
        mine = [part for part in self.parts.values() if part.holder == node]
        await opened.load(config_of=lambda topic: CONFIG, keys=[part.key for part in mine])
        for part in mine:
            self.check(part)

    @precondition(lambda self: not self.dirs and not self.claim)
    @rule(count=st.integers(1, 3), shift=numbers)
    def start_nodes(self, count: int, shift: int) -> None:
        async def work() -> None:
            self.claim = Claim.take(Quick(), str(self.path), node_id=ALONE, cluster_id=None, for_nodes=True)
            for number, part in enumerate(self.parts.values()):
                part.holder = NODES[(number + shift) % count]
            for node in NODES[:count]:
                await self.open_node(node)

        self.run(work)

    @precondition(lambda self: not self.dirs and not self.claim)
    @rule()
    def start_one_process(self) -> None:
        async def work() -> None:
            opened = self.dirs[ALONE] = DataDir.open(self.path, node_id=ALONE, io=Quick(), tell=RecordedEvents())
            await opened.load(config_of=lambda topic: CONFIG)
            assert sorted(opened.vnodes) == sorted(part.key for part in self.parts.values())
            for part in self.parts.values():
                part.holder = ALONE
                self.check(part)

        self.run(work)

    @precondition(lambda self: self.claim and len(self.dirs) < 3)
    @rule(node=st.sampled_from(NODES))
    def start_again(self, node: int) -> None:
        """Start a node that died, or one more."""
        if node not in self.dirs:
            self.run(lambda: self.open_node(node))

    @precondition(lambda self: self.dirs)
    @rule(name=st.sampled_from("abcd"), at=numbers)
    def create(self, name: str, at: int) -> None:
        async def work() -> None:
            known = self.parts.get(name)
            if known is not None:
                if known.holder not in self.dirs:
                    return
                self.dirs[known.holder].delete_vnode(*known.key)
            self.made += 1
            node = sorted(self.dirs)[at % len(self.dirs)]
            part = self.parts[name] = Part(name, self.made, node)
            self.dirs[node].create_vnode(name, 0, part.topic_id, CONFIG)

        self.run(work)

    @rule(at=numbers, count=st.integers(1, 12), flush=st.booleans())
    def append(self, at: int, count: int, flush: bool) -> None:
        if part := self.pick(at):
            vnode = self.vnode(part)
            for _ in range(count):
                assert vnode.append(produced(part.end), now_ms=NOW).base_offset == part.end
                part.end += 1
            if flush:
                vnode.flush()
                part.flushed = part.end

    @rule(at=numbers)
    def roll(self, at: int) -> None:
        if part := self.pick(at):
            self.vnode(part).roll(NOW)

    @rule(at=numbers, to=numbers, acknowledged=st.booleans())
    def delete_records(self, at: int, to: int, acknowledged: bool) -> None:
        async def work() -> None:
            if (part := self.pick(at)) and part.flushed > part.start_asked:
                part.start_asked += to % (part.flushed - part.start_asked + 1)
                self.vnode(part).truncate_prefix(part.start_asked)
                if acknowledged:
                    await self.dirs[part.holder or 0].checkpoint()
                    part.start = part.start_asked

        self.run(work)

    @precondition(lambda self: self.dirs)
    @rule(at=numbers)
    def checkpoint(self, at: int) -> None:
        self.run(self.dirs[sorted(self.dirs)[at % len(self.dirs)]].checkpoint)

    @precondition(lambda self: self.claim)
    @rule(at=numbers)
    def give(self, at: int) -> None:
        async def work() -> None:
            if part := self.pick(at):
                vnode = self.vnode(part)
                await self.dirs[part.holder or 0].give([part.key])
                assert vnode.error is not None
                part.holder, part.flushed = None, part.end

        self.run(work)

    @precondition(lambda self: self.claim and self.dirs)
    @rule(at=numbers)
    def take(self, at: int) -> None:
        """Take all partitions that no living node has."""

        async def work() -> None:
            node = sorted(self.dirs)[at % len(self.dirs)]
            free = [part for part in self.parts.values() if part.holder not in self.dirs]
            assert await self.dirs[node].take([part.key for part in free], lambda topic: CONFIG) == []
            for part in free:
                part.holder = node
                self.check(part)

        self.run(work)

    # -- how it ends ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.dirs)
    @rule(at=numbers, cut=numbers)
    def kill(self, at: int, cut: int) -> None:
        self.kill_node(sorted(self.dirs)[at % len(self.dirs)], cut)

    def kill_node(self, node: int, cut: int) -> None:
        dead = self.dirs.pop(node)
        for part in self.parts.values():
            if part.holder == node:
                tear(dead.vnodes[part.key], part.flushed, cut)
        dead.claim.release()

    @precondition(lambda self: self.dirs or self.claim)
    @rule(cut=numbers)
    def kill_all(self, cut: int) -> None:
        for node in list(self.dirs):
            self.kill_node(node, cut)
        self.end_supervisor()

    def end_supervisor(self) -> None:
        if self.claim is not None:
            self.claim.release()
            self.claim = None

    @precondition(lambda self: self.dirs)
    @rule(at=numbers)
    def stop(self, at: int) -> None:
        self.stop_node(sorted(self.dirs)[at % len(self.dirs)])

    def stop_node(self, node: int) -> None:
        self.run(self.dirs.pop(node).close)
        for part in self.parts.values():
            if part.holder == node:
                part.flushed, part.start = part.end, part.start_asked

    @precondition(lambda self: self.dirs or self.claim)
    @rule()
    def stop_all(self) -> None:
        for node in list(self.dirs):
            self.stop_node(node)
        if self.claim is not None:
            self.claim.fold()
            assert not (self.path / NODES_FOLDER).exists()
        self.end_supervisor()

    @precondition(lambda self: self.claim and self.dirs)
    @rule(at=numbers)
    def stop_all_cleanly(self, at: int) -> None:
        """Stop all nodes. The directory is then as if one process had stopped cleanly."""
        self.take(at)
        self.stop_all()
        assert (self.path / CLEAN_FILE).exists()


def tear(vnode: LocalVnode, flushed: int, cut: int) -> None:
    """Replace any part of the active segment's unflushed bytes by junk."""
    if not vnode.loaded:
        return
    active = vnode.segments[-1]
    size = 0
    for header, _ in batch.iter_batches(Path(active.path()).read_bytes()[: active.size]):
        if header.last_offset < flushed:
            size += header.size_in_bytes
    if active.base_offset > flushed:
        return  # the tear would have to be in the segment before
    with open(active.path(), "r+b") as log:
        log.truncate(size + cut % (active.size - size + 1))
        log.seek(0, 2)
        log.write(b"junk" * (cut % 3))


TestNodes = NodesMachine.TestCase
TestNodes.settings = settings(examples(20, 300), stateful_step_count=40, deadline=None)
