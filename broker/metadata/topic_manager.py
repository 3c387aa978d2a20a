"""Topics: create, delete, grow. A change is first durable in the metadata log, then in directories, and then visible.

After a crash in between, the log is ahead of the disk, and `reconcile` at the next start does the remaining work. A
folder that is not in the log was copied in from elsewhere: its topic is added, under the id in the folder.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio

from barnabas.broker.log import EventLog
from barnabas.broker.metadata.features import FEATURES
from barnabas.broker.metadata.image import METADATA_TOPIC, Leader, Listener, MetadataImage, TopicImage, metric_name
from barnabas.broker.metadata.placement import Placement
from barnabas.broker.settings.config import BrokerConfig, check_topic_configs
from barnabas.broker.settings.keys import ConfigError
from barnabas.broker.workers import Yielder
from barnabas.storage.config import LogConfig
from barnabas.storage.data_dir import DataDir
from barnabas.storage.errors import StorageError
from barnabas.storage.flusher import Flusher
from barnabas.storage.vnode import Vnode
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.wire.queries.plan import first_offset
from barnabas.wire.records.cluster_metadata import FeatureLevelRecord, PartitionChangeRecord, RemoveTopicRecord
from barnabas.wire.types import ZERO_UUID, Message

MAX_NAME = 249
MAX_PARTITIONS = 100_000
# The batch of a change with at least this many records is made in a thread.
RECORDS_AT_ONCE = 500
# The pause before partitions that the disk has refused are tried again.
_MISSING_SECONDS = 5.0
# The most log settings that are remembered. Most topics have the same ones.
_LOG_CONFIGS = 1000
# How long a partition that leaves this node may take for the last flush that producers wait for.
_LAST_FLUSH_SECONDS = 1.0
# Topics of coordinators: the prefix of their configuration keys, and the compression of their records, as in Kafka.
_COORDINATORS = {
    OFFSETS_TOPIC: ("offsets.topic", "producer"),
    TRANSACTIONS_TOPIC: ("transaction.state.log", "uncompressed"),
}
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def _is_empty(vnode: Vnode) -> bool:
    try:
        return vnode.log_end_offset == 0
    except KafkaError:
        return False


def _has_known_id(vnode: Vnode) -> bool:
    """Whether the folder says which topic it belongs to. A folder that cannot be read does not, and is left alone."""
    try:
        return vnode.topic_id is not None
    except KafkaError:
        return False


def _led_here(metadata: MetadataImage, name: str, index: int) -> TopicImage:
    """A topic as it is now, except that this node leads the given partition."""
    topic = metadata.topics[name]
    return TopicImage(name, topic.topic_id, {index: Leader(metadata.node_id, 0)}, topic.configs)


def new_topic_id() -> bytes:
    """A random id whose printed form does not begin with a dash, which command lines would take for an option."""
    while True:
        made = uuid.uuid4().bytes
        if made[0] >> 2 != 62 and made not in (ZERO_UUID, ZERO_UUID[:-1] + b"\1"):
            return made


class TopicManager(Listener):
    """All changes of topics go through here, one at a time. It keeps the vnodes in line with the image."""

    def __init__(
        self, config: BrokerConfig, metadata: MetadataImage, data_dir: DataDir, flusher: Flusher, log: EventLog
    ) -> None:
        self.config, self.metadata, self.data_dir, self.flusher, self.log = config, metadata, data_dir, flusher, log
        #: The ids of topics whose vnodes have not yet got the settings and leader epochs in the image.
        self._unsettled: dict[bytes, None] = {}
        #: Removed topics that still have folders. Until these are gone, the metadata must list the removals.
        self.unremoved: set[bytes] = set()
        #: Names of removed topics whose folders are being removed. The event is set when that is done.
        self._leaving: dict[str, trio.Event] = {}
        self._log_configs: dict[frozenset[tuple[str, str]], LogConfig] = {}
        self.changes = trio.Lock()
        self._has_missing = trio.Event()
        #: With several nodes: waits until no other node has anything of a removed topic, and then makes the call.
        self.when_let_go: Callable[[Callable[[], Awaitable[None]]], None] | None = None
        #: Chooses the leaders of new partitions.
        self.placement = Placement(metadata, [metadata.node_id])

    # --- checks -------------------------------------------------------------------------------------------------------

    @staticmethod
    def is_valid_name(name: str) -> bool:
        """Kafka's rule: 1 to 249 of letters, digits, `.`, `_` and `-`, and not `.` or `..`."""
        return 0 < len(name) <= MAX_NAME and name not in (".", "..") and bool(_LEGAL.fullmatch(name))

    def check_new(self, name: str, count: int, configs: Mapping[str, str | None]) -> None:
        """Raises KafkaError with Kafka's code if a topic cannot be created like this."""
        if not self.is_valid_name(name) or name == METADATA_TOPIC:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name {name[:300]!r} is illegal")
        if name in self.metadata.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        for other in self.metadata.metric_names.get(metric_name(name), ()):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
        self._check_count(count)
        try:
            check_topic_configs(configs)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None

    def _check_count(self, count: int) -> None:
        if count < 1:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
        if count > MAX_PARTITIONS:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Number of partitions is above {MAX_PARTITIONS}.")

    def find(self, name: str | None, topic_id: bytes = ZERO_UUID) -> TopicImage:
        """The topic with a name or an id. Raises KafkaError if there is none."""
        if topic_id != ZERO_UUID:
            topic = self.metadata.by_id.get(topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
            return topic
        topic = self.metadata.topics.get(name or "")
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        return topic

    # --- changes ------------------------------------------------------------------------------------------------------

    async def commit(
        self,
        records: list[Message],
        make: Callable[[], Awaitable[None]] | None = None,
        *,
        written: Callable[[], None] | None = None,
    ) -> None:
        """Write a metadata change, wait until it is on disk, and make it visible. The caller holds `changes`.

        `written` is called as soon as the change is in the log, before any other task runs. `make` creates what must
        exist when the change becomes visible. Raises KafkaError if the log cannot be written, and the errors of `make`;
        then the change is not visible.
        """
        assert self.changes.locked()
        if len(records) < RECORDS_AT_ONCE or written is not None:
            batch = self.metadata.batch_of(records)
        else:
            batch = await trio.to_thread.run_sync(self.metadata.batch_of, records)
        end = self.metadata.write(batch)
        if written is not None:
            written()
        await self.flusher.flushed(self.metadata.log, end)
        if make is not None:
            await make()
        await self.change_leaders(records, lambda: self.metadata.change(records))

    async def change_leaders(self, records: Sequence[Message], change: Callable[[], None]) -> None:
        """Apply a change. Partitions that this node then leads are opened before, those that leave it closed after."""
        taken, given = self._moving(records) if self.data_dir.is_shared else ([], [])
        if taken:
            await self._take(taken)
        change()
        if given:
            await self._flush(given)
            await self.data_dir.give(given)
        await self.settle()

    async def _flush(self, given: list[TopicPartition]) -> None:
        """Flush partitions that get no more records here, so that waiting producers get their acknowledgements.

        Otherwise they would send these records to the next leader again, which only an idempotent producer may do.
        What cannot be flushed soon, the next leader finds in the log nevertheless.
        """
        vnodes = [vnode for key in given if (vnode := self.data_dir.vnodes.get(key)) is not None and vnode.loaded]
        with trio.move_on_after(_LAST_FLUSH_SECONDS):
            for vnode in vnodes:
                self.flusher.request(vnode)
            for vnode in vnodes:
                with suppress(StorageError):
                    await self.flusher.flushed(vnode, vnode.log_end_offset)

    async def _take(self, partitions: list[TopicPartition]) -> None:
        """Open partitions that this node leads from now on. What the disk refuses is tried again."""
        try:
            await self.data_dir.take(partitions, self.log_config_of)
            for name, index in partitions:
                await self.make_vnodes(_led_here(self.metadata, name, index), range(index, index + 1))
        except KafkaError as error:
            self.missing(error)

    def missing(self, error: KafkaError) -> None:
        """Note that partitions led here could not be opened. Their clients get errors until they are."""
        self.log.error("partition.not_made", error=error, again_after=_MISSING_SECONDS)
        self._has_missing.set()

    async def run_missing(self) -> None:
        """With several nodes: open partitions led here that could not be opened before. Runs until cancelled."""
        while True:
            await self._has_missing.wait()
            self._has_missing = trio.Event()
            await trio.sleep(_MISSING_SECONDS)
            async with self.changes:
                here, vnodes = self.metadata.node_id, self.data_dir.vnodes
                await self._take(
                    [
                        (topic.name, index)
                        for topic in self.metadata.topics.values()
                        for index, leader in topic.partitions.items()
                        if leader.node == here and (topic.name, index) not in vnodes
                    ]
                )
                self._unsettled.update(dict.fromkeys(self.metadata.by_id))
                await self.settle()

    def _moving(self, records: Sequence[Message]) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """The partitions whose leadership comes to this node by a change, and those whose leadership leaves it."""
        taken: list[TopicPartition] = []
        given: list[TopicPartition] = []
        here = self.metadata.node_id
        for record in records:
            if isinstance(record, PartitionChangeRecord):
                topic = self.metadata.by_id[record.topic_id]
                is_led, at = topic.partitions[record.partition_id].node == here, (topic.name, record.partition_id)
                if record.leader == here and not is_led:
                    taken.append(at)
                elif is_led and record.leader != here:
                    given.append(at)
        return taken, given

    def log_config_of(self, name: str) -> LogConfig:
        """The log settings of a topic in the image. Topics with equal settings share one object."""
        topic = self.metadata.topics.get(name)
        return self._log_config({} if topic is None else topic.configs)

    def _log_config(self, configs: Mapping[str, str]) -> LogConfig:
        own = frozenset(configs.items())
        found = self._log_configs.get(own)
        if found is None:
            if len(self._log_configs) >= _LOG_CONFIGS:
                self._log_configs.clear()
            found = self._log_configs[own] = self.config.log_config(configs)
        return found

    def settings_changed(self) -> None:
        self._log_configs.clear()
        self._unsettled.update(dict.fromkeys(self.metadata.by_id))

    def topic_changed(self, before: TopicImage | None, after: TopicImage | None) -> None:
        if after is not None:
            self._unsettled[after.topic_id] = None

    async def settle(self) -> None:
        """Give vnodes the settings and leader epochs in the image. Other tasks run in between."""
        yielder = Yielder()
        while self._unsettled:
            topic_id, _ = self._unsettled.popitem()
            topic = self.metadata.by_id.get(topic_id)
            if topic is None:
                continue
            config = self._log_config(topic.configs)
            for index, leader in list(topic.partitions.items()):
                vnode = self.data_dir.vnodes.get((topic.name, index))
                if vnode is not None:
                    vnode.leader_epoch = leader.epoch
                    if vnode.config is not config and vnode.config != config:
                        vnode.config = config
                await yielder()

    async def finalize_features(self) -> None:
        """Write the levels of the features to the metadata log. Kafka refuses a log without them."""
        missing: list[Message] = [
            FeatureLevelRecord(name=name, feature_level=feature.finalized)
            for name, feature in FEATURES.items()
            if self.metadata.features.get(name) != feature.finalized
        ]
        if missing:
            async with self.changes:
                await self.commit(missing)

    async def create(
        self,
        name: str,
        count: int,
        configs: Mapping[str, str | None] | None = None,
        *,
        leaders: Sequence[int] | None = None,
    ) -> TopicImage:
        """Create a topic. Its partitions get these leaders; by default, the nodes that lead fewest.

        It is complete when it becomes visible. Raises KafkaError.
        """
        with trio.CancelScope(shield=True):  # a client that leaves must not leave half a topic
            async with self._when_gone(name):
                self.check_new(name, count, configs or {})
                values = {key: value for key, value in (configs or {}).items() if value is not None}
                topic = TopicImage(name, new_topic_id(), self.placement.place(range(count), leaders), values)
                made = partial(self.metadata.topic_records, topic)
                records = made() if count < RECORDS_AT_ONCE else await trio.to_thread.run_sync(made)
                try:
                    await self.commit(records, lambda: self.make_vnodes(topic, range(count)))
                except KafkaError:
                    await self._take_back(topic, count)
                    raise
                topic = self.metadata.by_id[topic.topic_id]
        self.log.info("topic.created", topic=name, partitions=count, id=uuid.UUID(bytes=topic.topic_id))
        return topic

    async def _take_back(self, topic: TopicImage, count: int) -> None:
        """Remove a topic again after some of its partitions could not be created, as far as the disk allows."""
        try:
            await self.commit([RemoveTopicRecord(topic_id=topic.topic_id)])
            await self._drop_vnodes(topic, list(range(count)))
        except KafkaError as error:
            self.log.error("topic.half_made", topic=topic.name, error=error)

    def default_count(self, name: str) -> int:
        """The number of partitions of a topic that is created without a number."""
        keys = f"{_COORDINATORS[name][0]}." if name in _COORDINATORS else ""
        count: int = self.config[f"{keys}num.partitions"]
        return count

    async def auto_create(self, name: str) -> TopicImage:
        """Create a topic with the broker's defaults, unless it exists. Raises KafkaError."""
        if name in _COORDINATORS:
            return await self.internal_topic(name)
        try:
            return await self.create(name, self.config["num.partitions"])
        except KafkaError as error:
            if error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                return self.metadata.topics[name]
            raise

    async def internal_topic(self, name: str) -> TopicImage:
        """The topic of a coordinator, created when it is first needed. Raises KafkaError."""
        found = self.metadata.topics.get(name)
        if found is not None:
            return found
        keys, compression = _COORDINATORS[name]
        segment = str(self.config[f"{keys}.segment.bytes"])
        configs = {"cleanup.policy": "compact", "segment.bytes": segment, "compression.type": compression}
        try:
            return await self.create(name, self.config[f"{keys}.num.partitions"], configs)
        except KafkaError as error:
            if error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                return self.metadata.topics[name]
            raise

    async def grow(
        self, name: str, count: int, *, validate_only: bool = False, leaders: Sequence[int] | None = None
    ) -> None:
        """Raise a topic's number of partitions. The new ones get these leaders, as in `create`. Raises KafkaError."""
        with trio.CancelScope(shield=True):
            async with self.changes:
                topic = self.find(name)
                have = len(topic.partitions)
                self._check_count(count)
                if name in _COORDINATORS:
                    raise KafkaError(
                        ErrorCode.INVALID_PARTITIONS,
                        f"{name} keeps its {have} partitions: groups and ids are assigned to them by their number",
                    )
                if count <= have:
                    raise KafkaError(
                        ErrorCode.INVALID_PARTITIONS,
                        f"The topic {name} currently has {have} partition(s); {count} would not be an increase.",
                    )
                if validate_only:
                    return
                added = self.placement.place(range(have, count), leaders)
                grown = TopicImage(name, topic.topic_id, {**topic.partitions, **added}, topic.configs)
                records = list(self.metadata.partition_records(topic.topic_id, added))
                await self.commit(records, lambda: self.make_vnodes(grown, range(have, count)))

    async def delete(self, name: str | None, topic_id: bytes = ZERO_UUID) -> TopicImage:
        """Delete a topic. Readers can still read the data that they have open. Raises KafkaError.

        Other changes continue while its folders are removed. The creation of a topic with the same name waits for that.
        """
        with trio.CancelScope(shield=True):
            async with self.changes:
                topic = self.find(name, topic_id)
                indexes = list(topic.partitions)
                await self.commit([RemoveTopicRecord(topic_id=topic.topic_id)])
                self._leaving[topic.name] = trio.Event()
                self.unremoved.add(topic.topic_id)
            await self._drop_vnodes(topic, indexes)
            if self.when_let_go is None:
                await self._free_name(topic)
            else:  # another node may be in a long recovery: only a new topic of that name waits for it
                self.when_let_go(partial(self._free_name, topic))
        self.log.info("topic.deleted", topic=topic.name, id=uuid.UUID(bytes=topic.topic_id))
        return topic

    async def _free_name(self, topic: TopicImage) -> None:
        """Allow new topics of this name, once nothing of the removed one is left on any node."""
        if any(leader.node < 0 for leader in topic.partitions.values()):  # closed, not opened by a new leader
            try:
                await self.data_dir.sweep({topic.topic_id})
            except OSError as error:
                self.unremoved.add(topic.topic_id)
                self.log.error("partition.not_deleted", topic=topic.name, error=error)
        self._leaving.pop(topic.name).set()

    async def _drop_vnodes(self, topic: TopicImage, indexes: list[int]) -> None:
        """Remove the partitions of a removed topic. Folders that cannot be removed are deleted at the next start."""
        yielder, resists = Yielder(), False
        for index in indexes:
            if (topic.name, index) in self.data_dir.vnodes:
                try:
                    self.data_dir.delete_vnode(topic.name, index)
                except KafkaError as error:
                    resists = True
                    self.unremoved.add(topic.topic_id)
                    self.log.error("partition.not_deleted", topic=topic.name, partition=index, error=error)
                    self.data_dir.vnodes.pop((topic.name, index), None)
            await yielder()
        if not resists:
            self.unremoved.discard(topic.topic_id)

    @asynccontextmanager
    async def _when_gone(self, name: str) -> AsyncIterator[None]:
        """Hold the lock of all changes, once no folder of a removed topic of that name is left."""
        while True:
            async with self.changes:
                leaving = self._leaving.get(name)
                if leaving is None:
                    yield
                    return
            await leaving.wait()

    async def make_vnodes(self, topic: TopicImage, indexes: range) -> None:
        """Create missing partitions that are led here. Empty ones of a query topic move to their first offset.

        There are such partitions after a topic became a query topic, or after an unfinished change. Raises KafkaError.
        """
        config = self._log_config(topic.configs)
        yielder = Yielder()  # a large topic must not delay other tasks
        for index in indexes:
            if topic.partitions[index].node != self.metadata.node_id:
                continue
            first = first_offset(topic.configs, index)
            made = self.data_dir.vnodes.get((topic.name, index))
            if made is not None and first and made.error is None and made.log_end_offset == 0:
                made.begin_at(first)
            if made is None:
                self.data_dir.create_vnode(topic.name, index, topic.topic_id, config, first_offset=first)
                await yielder()

    async def reconcile(self) -> None:
        """After a start: bring the directories in line with the metadata log, and add topics of copied folders.

        Other nodes may ask for changes by then; these wait.
        """
        async with self.changes:
            await self._delete_strays()
            await self._adopt()
            await self._make_all_vnodes()

    async def _vnodes(self) -> AsyncIterator[tuple[TopicPartition, Vnode]]:
        """All partitions except the metadata log that say which topic they belong to. Other tasks run in between."""
        yielder = Yielder()
        for key in list(self.data_dir.vnodes):
            await yielder()
            vnode = self.data_dir.vnodes.get(key)
            if vnode is not None and key[0] != METADATA_TOPIC and _has_known_id(vnode):
                yield key, vnode

    async def _delete_strays(self) -> None:
        metadata = self.metadata
        async for (name, index), vnode in self._vnodes():
            topic = metadata.by_id.get(vnode.topic_id)
            if vnode.topic_id == ZERO_UUID and name in metadata.topics and not _is_empty(vnode):
                topic = metadata.topics[name]  # it was added without an id at an earlier start
            if topic is not None and topic.name == name and index in topic.partitions:
                continue
            # A folder without an id and records belongs to no topic: power was lost before its id was on disk.
            is_nothing = vnode.topic_id == ZERO_UUID and _is_empty(vnode)
            if is_nothing or vnode.topic_id in metadata.removed_ids or topic is not None or name in metadata.topics:
                self.log.warning("partition.stray", topic=name, partition=index, action="deleted")
                self.data_dir.delete_vnode(name, index)

    async def _adopt(self) -> None:
        metadata = self.metadata
        adopted: dict[str, list[TopicPartition]] = {}
        async for key, _ in self._vnodes():
            if key[0] not in metadata.topics:
                adopted.setdefault(key[0], []).append(key)
        for name, keys in adopted.items():
            # A folder from before topic ids has none. The topic gets one here, which only the metadata log has.
            topic_id = self.data_dir.vnodes[keys[0]].topic_id
            if topic_id == ZERO_UUID:
                topic_id = new_topic_id()
            count = max(index for _, index in keys) + 1
            here = {index: Leader(metadata.node_id, 0) for index in range(count)}
            await self.commit(metadata.topic_records(TopicImage(name, topic_id, here)))
            self.log.info("topic.adopted", topic=name, partitions=count)

    async def sweep(self) -> None:
        """Remove folders of topics that were removed while the node with the folders was down. Raises StorageError."""
        if not self.metadata.removed_ids:
            return
        try:
            gone = await self.data_dir.sweep(self.metadata.removed_ids)
        except OSError as error:
            raise StorageError(f"cannot look for folders of removed topics: {error}") from error
        for name, index in gone:
            self.log.warning("partition.stray", topic=name, partition=index, action="deleted")

    async def make_all_vnodes(self) -> None:
        """Create the missing partitions that are led here. Raises KafkaError."""
        async with self.changes:
            await self._make_all_vnodes()

    async def _make_all_vnodes(self) -> None:
        yielder = Yielder()
        for topic in list(self.metadata.topics.values()):
            await self.make_vnodes(topic, range(len(topic.partitions)))
            await yielder()
