"""`barnabas log clean`: compact logs of a data directory that no broker serves. Their dirty ratio does not matter."""

from __future__ import annotations

import argparse
import sys

import trio

from barnabas.broker.clock import Clock
from barnabas.broker.main import load_config
from barnabas.broker.metadata.image import METADATA_TOPIC, MetadataImage
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.keys import ConfigError
from barnabas.storage.claim import node_id_of
from barnabas.storage.cleaner import Cleaner, CleanerSettings
from barnabas.storage.compaction_terms import CompactionFigures
from barnabas.storage.data_dir import DataDir
from barnabas.storage.errors import StorageError
from barnabas.storage.vnode import Vnode
from barnabas.wire.logfmt import told
from barnabas.wire.text import visible

_BAR = 30
_DRAW_SECONDS = 0.2


def run(args: argparse.Namespace) -> int:
    """Returns exit status 1 if something could not be cleaned."""
    try:
        config = load_config(args.config, args.dir, [], args.override)
        return trio.run(_run, config, args.topic)
    except (ConfigError, StorageError) as error:
        print(f"barnabas: {visible(str(error))}", file=sys.stderr)
        return 1


async def _run(config: BrokerConfig, wanted: str | None) -> int:
    path = config.data_dir
    node_id = node_id_of(path)
    problems: list[str] = []

    def tell(event: str, /, **fields: object) -> None:
        if event != "log.cleaned":
            problems.append(event)
            print(told(event, fields), file=sys.stderr)

    async with DataDir.open(path, node_id=node_id, tell=tell) as directory:
        await directory.load()
        vnodes = _chosen(config, directory, wanted)
        problems.clear()  # the start has already repaired these
        settings = config.cleaner_settings(config.cleaner_throttle())
        cleaner = Cleaner({}, lambda: settings, Clock().wall_ms, tell)
        before = after = 0
        for vnode in vnodes:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_draw, cleaner, vnode)
                directory.close_segment((vnode.topic, vnode.partition), Clock().wall_ms())
                figures = await _clean(cleaner, vnode, settings)
                nursery.cancel_scope.cancel()
            before += sum(each.bytes_before for each in figures)
            after += sum(each.bytes_after for each in figures)
            _say(vnode, figures)
        await directory.upkeep.delete_discarded()
        print(f"{len(vnodes)} partitions, {before - after} bytes saved")
    return 1 if problems else 0


def _chosen(config: BrokerConfig, directory: DataDir, wanted: str | None) -> list[Vnode]:
    """The partitions to clean, with their topics' settings. Raises StorageError for an unknown topic."""
    if (METADATA_TOPIC, 0) not in directory.vnodes:
        raise StorageError(f"{directory.path} has no metadata log: start a broker on it once")
    metadata = MetadataImage(config.node_id, Clock())
    metadata.load(directory.vnodes[METADATA_TOPIC, 0], directory.snapshots(METADATA_TOPIC, 0))
    merged = config.cluster_wide(metadata.broker_configs.get("", {}))
    merged.update(metadata.broker_configs.get(str(config.node_id), {}))
    config.set_dynamic(merged)
    topic, partition = wanted, -1
    if wanted is not None and wanted not in metadata.topics:
        before, _, number = wanted.rpartition("-")
        if before in metadata.topics and number.isdecimal():
            topic, partition = before, int(number)
    chosen: list[Vnode] = []
    for (name, index), vnode in sorted(directory.vnodes.items()):
        known = metadata.topics.get(name)
        if known is None or topic not in (None, name) or partition not in (-1, index):
            continue
        vnode.config = config.log_config(known.configs)
        if vnode.config.compacts:
            chosen.append(vnode)
        elif wanted is not None:
            raise StorageError(f"topic {name} is not compacted: its cleanup.policy is {vnode.config.cleanup_policy}")
    if wanted is not None and not chosen:
        raise StorageError(f"there is no topic or partition {wanted} in {directory.path}")
    return chosen


async def _clean(cleaner: Cleaner, vnode: Vnode, settings: CleanerSettings) -> list[CompactionFigures]:
    """Clean the whole log, in as many passes as its keys need."""
    found: list[CompactionFigures] = []
    while vnode.compaction_need(Clock().wall_ms()).dirty_bytes:
        figures = await cleaner.clean(vnode, settings)
        if figures is None:
            break
        found.append(figures)
    return found


async def _draw(cleaner: Cleaner, vnode: Vnode) -> None:
    """Show a progress bar, if there is a terminal."""
    if not sys.stderr.isatty():
        return
    try:
        while True:
            await trio.sleep(_DRAW_SECONDS)
            job = cleaner.jobs.get((vnode.topic, vnode.partition))
            if job is not None:
                done = job.figures.bytes_read / max(job.figures.bytes_to_read, 1)
                bar = "#" * int(done * _BAR)
                sys.stderr.write(f"\r{visible(vnode.topic)}-{vnode.partition} [{bar:<{_BAR}}] {done:4.0%}")
                sys.stderr.flush()
    finally:
        sys.stderr.write("\r\x1b[K")


def _say(vnode: Vnode, figures: list[CompactionFigures]) -> None:
    name = f"{visible(vnode.topic)}-{vnode.partition}"
    if not figures:
        print(f"{name}: nothing to clean")
        return
    seconds = sum(each.seconds for each in figures)
    print(
        f"{name}: {figures[0].bytes_before} bytes are {figures[-1].bytes_after} now, "
        f"{figures[0].records_before} records {figures[-1].records_after}; "
        f"{len(figures)} passes, {seconds:.1f} s"
    )
