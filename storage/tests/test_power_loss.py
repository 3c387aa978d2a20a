"""The power fails at any point in the life of a data directory: acknowledged records are there, and no others.

It prints the numbers of states and records checked, and of dropped fsyncs found. A failure names its seed.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from barnabas.storage.claim import Claim
from barnabas.storage.config import LogConfig
from barnabas.storage.data_dir import DataDir
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.tests.power import Disk, Op, Site, functions_of, survivor, sync_lines
from barnabas.storage.tests.support import NOW, RecordedEvents
from barnabas.storage.vnode import ZERO_ID
from barnabas.wire import batch
from barnabas.wire.batch import Record

# A producer whose records are deleted soon: then only snapshots know it.
EARLY = 77
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, retention_ms=-1)


def topic_id(number: int) -> bytes:
    return bytes([number]) * 16


def value_of(identity: bytes, offset: int) -> bytes:
    return b"%d of topic %d" % (offset, identity[0])


def time_of(offset: int) -> int:
    """Times out of order: a segment's newest record is seldom its last."""
    return NOW + offset * 10 + (45 if offset % 7 == 3 else 0)


class Life:
    """A data directory that is used, killed, damaged and opened again, all on one recorded disk."""

    def __init__(self, root: Path, seed: int) -> None:
        root.mkdir()
        self.disk = Disk(root)
        self.root = root
        self.pick = random.Random(seed)
        self.topics = self.opened = 0
        self.sequences: Counter[tuple[int, bytes]] = Counter()

    async def open(self) -> None:
        self.opened += 1
        self.dir = DataDir.open(self.root, node_id=1, io=self.disk, tell=RecordedEvents())
        self.disk.mark(("cluster", b"", self.dir.claim.cluster_id))
        await self.dir.load(config_of=lambda topic: CONFIG)
        for vnode in self.dir.vnodes.values():
            self.promise_visible(vnode)
            self.promise_kept(vnode)

    def promise_visible(self, vnode: LocalVnode) -> None:
        """Promise that all present records stay: consumers may have seen them."""
        self.disk.mark(("visible", vnode.topic_id, [r.offset for r in records_of(vnode)], vnode.log_end_offset))

    def promise_kept(self, vnode: LocalVnode) -> None:
        """Promise that damaged bytes that were set aside stay."""
        files = {path.name: path.read_bytes() for path in Path(vnode.directory).glob("*.damaged-*")}
        if files:
            self.disk.mark(("kept", vnode.topic_id, files))

    def kill(self) -> None:
        self.dir.claim.release()

    def create(self, name: str) -> LocalVnode:
        self.topics += 1
        vnode = self.dir.create_vnode(name, 0, topic_id(self.topics), CONFIG)
        vnode.flush()
        self.disk.mark(("created", vnode.topic_id))
        return vnode

    def append(self, vnode: LocalVnode, count: int) -> None:
        for _ in range(count):
            offset = vnode.log_end_offset
            record = Record(b"k", value_of(vnode.topic_id, offset), time_of(offset))
            producer = EARLY if offset < 3 else EARLY + self.opened
            sequence = self.sequences[producer, vnode.topic_id]
            self.sequences[producer, vnode.topic_id] += 1
            data = batch.build_batch([record], producer_id=producer, producer_epoch=0, base_sequence=sequence)
            vnode.leader_epoch = offset // 25
            vnode.append(data, now_ms=time_of(offset))

    def flush(self, vnode: LocalVnode) -> None:
        vnode.flush()
        self.disk.mark(("acked", vnode.topic_id, vnode.log_end_offset))

    async def delete_records(self, vnode: LocalVnode, offset: int) -> None:
        self.disk.mark(("deleting below", vnode.topic_id, offset))
        vnode.truncate_prefix(offset)
        await self.dir.checkpoint()
        self.disk.mark(("deleted below", vnode.topic_id, offset))

    def delete(self, name: str) -> None:
        self.disk.mark(("gone", self.dir.vnodes[name, 0].topic_id))
        self.dir.delete_vnode(name, 0)

    async def live(self) -> None:
        """Do everything that a broker does to a data directory."""
        await self.open()
        vnode = self.create("a")
        other = self.create("b")
        for step in range(6):
            self.append(vnode, self.pick.randint(3, 9))
            self.flush(vnode)
            if step == 2:
                self.append(other, 12)
                self.flush(other)
                await self.dir.checkpoint()
            if step == 3:
                await self.delete_records(vnode, 7)
        self.append(vnode, 2)
        await self.dir.checkpoint()
        await self.delete_records(vnode, vnode.segments[-1].base_offset - 1)
        await self.dir.upkeep.delete_discarded()
        self.append(vnode, 1)
        self.flush(vnode)
        self.append(vnode, 3)
        self.kill()
        await self.open()
        vnode = self.dir.vnodes["a", 0]
        await self.dir.checkpoint()
        self.append(vnode, 4)
        self.flush(vnode)
        await self.dir.checkpoint()
        self.delete("b")
        again = self.create("b")
        self.append(again, 20)
        self.flush(again)
        await self.dir.upkeep.delete_discarded()
        self.append(self.create("d"), 5)
        self.flush(self.dir.vnodes["d", 0])
        self.delete("d")
        await self.dir.upkeep.delete_discarded()
        moved = self.create("c")
        moved.begin_at(1000)
        moved.flush()
        self.disk.mark(("visible", moved.topic_id, [], 1000))
        self.append(again, 3)
        self.kill()
        self.damage(again, 0, 300)
        self.disk.damage(f"{again.directory}/leader-epoch-checkpoint", 0, 3)
        await self.open()
        await self.dir.checkpoint()
        again = self.dir.vnodes["b", 0]
        self.append(again, 3)
        self.flush(again)
        self.append(again, 15)
        self.flush(again)
        await self.dir.checkpoint()
        self.damage(again, -1, -5)
        self.kill()
        await self.open()
        again = self.dir.vnodes["b", 0]
        self.append(again, 10)
        self.flush(again)
        await self.dir.close()
        self.disk.write_back()
        await self.open()
        vnode = self.dir.vnodes["a", 0]
        self.append(vnode, 20)
        self.flush(vnode)
        self.damage(vnode, -2, 400)
        vnode.found_damage(vnode.segments[-2].base_offset, ValueError("seen by a reader"))
        await self.dir.upkeep.mend_damaged()
        self.promise_visible(vnode)
        self.promise_kept(vnode)
        self.append(vnode, 5)
        self.flush(vnode)
        self.kill()

    async def join(self, node_id: int, *names: str) -> DataDir:
        node = DataDir.open(self.root, node_id=node_id, member=True, io=self.disk, tell=RecordedEvents())
        await node.load(config_of=lambda topic: CONFIG, keys=[(name, 0) for name in names])
        for vnode in node.vnodes.values():
            self.promise_visible(vnode)
        return node

    async def move(self, name: str, source: DataDir, target: DataDir) -> LocalVnode:
        """Move a partition; the next records are appended at the target."""
        await source.give([(name, 0)])
        await target.take([(name, 0)], lambda topic: CONFIG)
        self.promise_visible(target.vnodes[name, 0])
        self.dir = target
        return target.vnodes[name, 0]

    def supervise(self) -> Claim:
        return Claim.take(self.disk, str(self.root), node_id=1, cluster_id=None, for_nodes=True, tell=RecordedEvents())

    async def live_as_nodes(self) -> None:
        """Two nodes between two lives of one process: partitions move, a node dies, all stop, all die."""
        await self.open()
        vnode = self.create("a")
        self.append(vnode, 20)
        self.flush(vnode)
        await self.delete_records(vnode, 5)
        await self.dir.close()
        self.disk.write_back()
        claim = self.supervise()
        left, right = await self.join(1, "a"), await self.join(2)
        self.dir = left
        vnode = left.vnodes["a", 0]
        self.append(vnode, 9)
        self.flush(vnode)
        await self.delete_records(vnode, 11)
        other = self.create("b")
        self.append(other, 12)
        self.flush(other)
        self.append(vnode, 2)
        vnode = await self.move("a", left, right)
        self.append(vnode, 8)
        self.flush(vnode)
        await self.delete_records(vnode, 24)
        await right.checkpoint()
        self.append(vnode, 2)
        right.claim.release()  # it dies
        right = await self.join(2, "a")
        vnode = await self.move("a", right, left)
        self.append(vnode, 3)
        self.flush(vnode)
        await left.checkpoint()
        self.delete("b")
        self.dir = right
        again = self.create("b")
        self.append(again, 15)
        self.flush(again)
        await left.upkeep.delete_discarded()
        again = await self.move("b", right, left)
        self.append(again, 5)
        self.flush(again)
        await self.delete_records(again, 13)
        await right.close()
        await left.close()
        claim.fold()
        claim.release()
        await self.open()
        vnode = self.dir.vnodes["a", 0]
        self.append(vnode, 4)
        self.flush(vnode)
        await self.delete_records(vnode, 30)
        await self.dir.close()
        claim = self.supervise()
        left, right = await self.join(1, "b"), await self.join(2, "a")
        self.dir = right
        vnode = right.vnodes["a", 0]
        self.append(vnode, 6)
        self.flush(vnode)
        await self.delete_records(vnode, 35)
        vnode = await self.move("a", right, left)
        self.append(vnode, 6)
        self.flush(vnode)
        await left.checkpoint()
        self.append(vnode, 1)
        for each in (left.claim, right.claim, claim):
            each.release()
        await self.open()
        vnode = self.dir.vnodes["a", 0]
        self.append(vnode, 3)
        self.flush(vnode)
        self.kill()

    def damage(self, vnode: LocalVnode, number: int, at: int) -> None:
        segment = vnode.segments[number] if vnode.loaded else LocalVnode.segments.fget(vnode)[number]  # type: ignore[attr-defined]
        self.disk.mark(("damaged", vnode.topic_id))
        self.disk.damage(segment.path(), at % segment.size)


def records_of(vnode: LocalVnode) -> list[Record]:
    found: list[Record] = []
    offset = vnode.log_start_offset
    while (piece := vnode.read(offset, 400).slice) is not None:
        for header, view in batch.iter_batches(piece.read()):
            batch.check(view)
            found += [record for record in batch.iter_records(view) if record.offset >= offset]
            offset = header.last_offset + 1
    return found


class Promised:
    """What must hold after a prefix of the journal."""

    def __init__(self, journal: list[Op], upto: int) -> None:
        self.there: dict[bytes, set[int]] = defaultdict(set)
        self.end: dict[bytes, int] = defaultdict(int)
        self.starts: dict[bytes, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self.created: set[bytes] = set()
        self.acked: dict[bytes, int] = defaultdict(int)
        self.cluster_id: str | None = None
        self.kept: dict[bytes, dict[str, bytes]] = defaultdict(dict)
        damaged: set[bytes] = set()
        for number, op in enumerate(journal):
            if op.kind != "mark":
                continue
            what, *rest = op.detail
            identity = rest[0] if rest else b""
            if number >= upto:
                if what == "visible" and identity in damaged:  # recovery, which comes next, keeps these
                    self.there[identity] &= set(rest[1])
                    damaged.discard(identity)
            elif what == "created":
                self.created.add(identity)
            elif what == "acked":
                self.there[identity] |= set(range(self.end[identity], rest[1]))
                self.end[identity] = self.acked[identity] = rest[1]
            elif what == "deleting below":
                self.starts[identity] = self.starts[identity][0], rest[1]
            elif what == "deleted below":
                self.starts[identity] = rest[1], rest[1]
            elif what == "gone":
                self.created.discard(identity)
            elif what == "cluster":
                self.cluster_id = rest[1]
            elif what == "kept":
                self.kept[identity] |= rest[1]
            elif what == "visible":
                self._see(identity, rest[1], rest[2])
                damaged.discard(identity)
            elif what == "damaged":
                damaged.add(identity)

    def _see(self, identity: bytes, offsets: list[int], end: int) -> None:
        self.there[identity] = set(offsets)
        self.end[identity] = max(end, self.end[identity])


async def check(path: Path, promised: Promised) -> int:
    """Open what is left as the next start does; gives the number of records checked."""
    data_dir = DataDir.open(path, node_id=1, tell=RecordedEvents())
    await data_dir.load(config_of=lambda topic: CONFIG)
    assert promised.cluster_id in (None, data_dir.claim.cluster_id)
    looked = 0
    found_ids = set()
    for vnode in data_dir.vnodes.values():
        identity = vnode.topic_id
        found_ids.add(identity)
        if identity == ZERO_ID:  # like a folder that was copied in from elsewhere
            assert not records_of(vnode), "what is left of a deleted partition is a partition"
        if identity not in promised.created:
            continue
        records = records_of(vnode)
        looked += len(records)
        for record in records:
            assert record.value == value_of(identity, record.offset), "a record of another topic or offset"
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        least, most = promised.starts[identity]
        assert least <= vnode.log_start_offset, "deleted records are back"
        kept = {offset for offset in promised.there[identity] if offset >= most}
        assert kept <= set(offsets), f"lost {sorted(kept - set(offsets))}"
        assert vnode.log_end_offset >= promised.end[identity], "offsets would be given out again"
        for record in records:
            at = next(other.offset for other in records if other.timestamp >= record.timestamp)
            assert vnode.offset_for_timestamp(record.timestamp) == (at, time_of(at))
        if promised.end[identity] >= 3 and least:
            assert EARLY in vnode.producers.producers, "a producer is forgotten"
        if records:
            last = records[-1].offset
            first = max(offsets[0], most)
            assert vnode.epoch_of(first) == first // 25, "leader epochs are lost"
            assert vnode.epoch_of(last) == last // 25, "leader epochs are lost"
            if vnode.log_end_offset == last + 1:
                assert vnode.epoch_end_offset(last // 25) == (last // 25, vnode.log_end_offset)
        for name, data in promised.kept[identity].items():
            assert Path(vnode.directory, name).read_bytes() == data, "what was set aside is lost"
        known = {b.base_offset for p in vnode.producers.producers.values() for b in p.batches}
        known = {offset for offset in known if offset >= max(vnode.log_start_offset, promised.acked[identity])}
        assert known <= set(offsets), "what is lost would be taken for a duplicate when it is sent again"
    assert promised.created <= found_ids, "a partition is lost"
    data_dir.claim.release()
    return looked


class Run:
    """One life, and what may be left of it after a power loss."""

    def __init__(self, place: Path, seed: int, live: Callable[[Life], Awaitable[None]] = Life.live) -> None:
        self.seed = seed
        life = Life(place / f"life{seed}", seed)
        trio.run(live, life)
        self.journal = life.disk.journal
        self.place = place
        self.states = self.records = 0

    def syncs(self) -> dict[Site, int]:
        """Every kind of sync, and its first position in the journal."""
        found: dict[Site, int] = {}
        for number, op in enumerate(self.journal):
            if op.kind == "sync" and op.detail.lines:
                found.setdefault(op.detail, number)
        return found

    def look(self, upto: int, seed: int, mode: str, dropped: Callable[[Site], bool] | None = None) -> None:
        """Check the promises. Raises AssertionError, or any error of storage, if something promised is missing."""
        target = self.place / "state"
        shutil.rmtree(target, ignore_errors=True)
        survivor(self.journal[:upto], target, random.Random(seed), mode=mode, dropped=dropped)
        self.records += trio.run(check, target, Promised(self.journal, upto))
        self.states += 1

    def find(self, site: Site, tries: int) -> bool:
        """Whether a check finds something lost when the syncs of a site are left out."""
        pick = random.Random(self.seed)
        made = [number for number, op in enumerate(self.journal) if op.kind == "sync" and op.detail == site]
        marks = [number + 1 for number, op in enumerate(self.journal) if op.kind == "mark" and number > made[0]]
        after = [at + step for at in made[-3:] for step in range(1, 16)]
        points = [(upto, "none") for upto in marks]
        points += [(min(upto, len(self.journal)), mode) for upto in after for mode in ("names", "some")]
        points += [(pick.randint(made[0], len(self.journal)), "some") for _ in range(tries)]
        for number, (upto, mode) in enumerate(points):
            try:
                self.look(upto, number, mode, lambda made: made == site)
            except Exception:
                self.look(upto, number, mode)  # it is only due to that sync
                return True
        return False


def random_states(run: Run, count: int) -> None:
    pick = random.Random(run.seed)
    for number in range(count):
        upto, mode = pick.randint(0, len(run.journal)), ("some", "none", "some", "all")[number % 4]
        try:
            run.look(upto, number, mode)
        except BaseException:
            print(
                f"life {run.seed}, state {number}: power lost after {upto} of {len(run.journal)} changes, {mode} kept"
            )
            raise


def test_a_power_loss_anywhere_loses_nothing_acknowledged(tmp_path: Path) -> None:
    run = Run(tmp_path, 1)
    random_states(run, 400)
    print(f"\npower loss: {run.states} states, {run.records} records checked")


def test_a_power_loss_of_several_nodes_loses_nothing_acknowledged(tmp_path: Path) -> None:
    run = Run(tmp_path, 1, Life.live_as_nodes)
    random_states(run, 300)
    print(f"\npower loss: {run.states} states, {run.records} records checked")


def test_the_indexes_of_a_segment_rolled_after_the_last_flush_are_on_disk_before_a_checkpoint_says_so(
    tmp_path: Path,
) -> None:
    """The checkpoint has the offset at which that segment ends, and recovery checks nothing below it."""

    async def live() -> None:
        life = Life(tmp_path / "life", 1)
        disks.append(life.disk)
        await life.open()
        vnode = life.create("a")
        life.append(vnode, 5)  # the newest timestamp is not that of the last record
        life.flush(vnode)
        vnode.roll(time_of(5))
        await life.dir.checkpoint()
        life.kill()

    disks: list[Disk] = []
    trio.run(live)
    journal = disks[0].journal
    for seed in range(20):
        target = tmp_path / f"state{seed}"
        survivor(journal, target, random.Random(seed), mode="some")
        trio.run(check, target, Promised(journal, len(journal)))


def test_records_deleted_up_to_a_segments_beginning_do_not_come_back(tmp_path: Path) -> None:
    """Once the folder's names are on disk, they show that start; until then a checkpoint does."""

    async def live(life: Life) -> None:
        await life.open()
        vnode = life.create("a")
        life.append(vnode, 30)
        life.flush(vnode)
        await life.delete_records(vnode, vnode.segments[-1].base_offset)
        life.kill()

    run = Run(tmp_path, 1, live)
    for seed, mode in enumerate(("none", "some", "some", "all", "names")):
        run.look(len(run.journal), seed, mode)


# Syncs that no check misses, by function and kind of file, and why they are made all the same.
SPARED = {
    ("put_away", "*.index"): "at a clean stop: the first use would build it anew, on the event loop",
    ("put_away", "*.timeindex"): "at a clean stop: as for the index",
    ("put_away", "*.snapshot"): "at a clean stop: the first use would read the whole log for it",
    ("put_away", "partition folder"): "at a clean stop: as for the snapshot, whose name it is",
    ("write", "*.index"): "before a recovery point is stated: lost entries cost a longer scan",
    ("fold", "data directory"): "test_nodes.py: what is in the folder goes only when its new name is on disk",
    ("replace_indexes", "*.index"): "lost entries cost a longer scan",
    ("recover_segment", "*.index"): "lost entries cost a longer scan",
    ("recover_segment", "*.timeindex"): "no life here loses only some of its entries",
    ("recover_partition", "*.snapshot"): "lost, it costs a longer replay",
    ("recover_partition", "partition folder"): "the files that it names can be made again",
    ("recover_partition", "leader-epoch-checkpoint"): "lost, it is made again as long as the log is scanned",
    ("copy_ranges", "*.log"): "a segment beside the log is synced again when it has been looked at",
    ("set_aside", "partition folder"): "only the copy of the damaged bytes is at stake",
}


#: Files whose syncs are made in no life here, and the tests that check them.
ELSEWHERE = {
    "storage/compaction.py": "test_compaction.py drops each of them",
    "storage/snapshots.py": "the lives of broker/tests/test_power_loss.py",
    "storage/takeover.py": "an import that is cut off is begun again from its source",
}


@pytest.mark.slow
def test_every_fsync_is_missed_when_it_is_left_out(tmp_path: Path) -> None:
    sites: set[Site] = set()
    missed: list[Site] = []
    for seed, live in ((1, Life.live), (2, Life.live_as_nodes)):
        run = Run(tmp_path, seed, live)
        new = [site for site in run.syncs() if site not in sites]
        sites.update(new)
        missed += [site for site in new if not run.find(site, 15)]
        print(f"\npower loss: {len(sites) - len(missed)} of {len(sites)} dropped fsyncs found, {run.states} states")
    functions = functions_of("storage")
    assert [str(site) for site in missed if (functions.get(site.lines[-1], "put_away"), site.role) not in SPARED] == []
    made = {line for site in sites for line in site.lines}
    here = {line for line in sync_lines("storage") if line.partition(":")[0] not in ELSEWHERE}
    here -= {line for line in here if functions[line] == "sync"}  # DataDir.sync: broker/tests/test_power_loss.py
    assert here - made == set(), "no life has come by there"
