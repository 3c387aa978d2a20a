"""Reading and changing the configuration of topics and of the broker (DescribeConfigs and the two AlterConfigs).

AlterConfigs accepts what DescribeConfigs shows of a topic. So no shown value is null, and a request may name keys that
only the broker sets, with their present values. Unknown keys of a broker are kept, as in Kafka, and shown without
value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from barnabas.broker.between.peers import Peers, Unreachable
from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.identity import Identity
from barnabas.broker.jobs.owners import Owners, check_owner
from barnabas.broker.jobs.queries import Queries, check_changes, is_query
from barnabas.broker.jobs.streams import Streams, check_stream_changes, gets_stream, without_stream
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    Listener,
    MetadataImage,
    TopicImage,
)
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.nodes import Nodes
from barnabas.broker.partitions import Partitions
from barnabas.broker.security.askers import Asker
from barnabas.broker.security.tls import TlsListeners
from barnabas.broker.settings import client_metrics, loggers, ssl_keys
from barnabas.broker.settings.config import BROKER, TOPIC, BrokerConfig, broker_key, check_topic_configs
from barnabas.broker.settings.keys import (
    SOURCE_CLIENT_METRICS,
    SOURCE_DEFAULT,
    SOURCE_DYNAMIC_BROKER,
    SOURCE_DYNAMIC_DEFAULT,
    SOURCE_LOGGER,
    SOURCE_STATIC,
    SOURCE_TOPIC,
    ConfigError,
    ConfigKey,
)
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.queries.keys import CLOSING, DEAD_LETTER_OF, DENIED, EVENTS, ON_ERROR, OWNER, PLAN, QUERY, START
from barnabas.wire.streams.keys import STREAM, STREAM_KEYS, STREAM_RUN, STREAM_STATE
from barnabas.wire.types import Message

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
# Keys that AlterConfigs keeps if a request does not name them: a query topic or a stream is created with them.
_KEPT = (PLAN, START, DEAD_LETTER_OF, OWNER, DENIED, *STREAM_KEYS)
# Keys for query topics and streams only. A request for another topic may name them with their default.
_OF_QUERIES = (START, ON_ERROR, EVENTS, STREAM_STATE, STREAM_RUN)
_QUERY_CHECK_MS = 30_000
# The places of committed offsets. All nodes need the same, because any of them may coordinate a group.
_OF_STORES = ("offsets.storage", "dual.commit.enabled")
# How long another node may take to object to a change.
_NODE_SECONDS = 15.0
# The name of the API in the log of refusals.
_ALTERS = "AlterConfigs"
# The most unknown keys that are kept for a broker. Kafka keeps any number.
MAX_UNKNOWN_KEYS = 100
# The most characters in the name of a client-metrics resource.
MOST_NAME_CHARS = 249
# A read-only key that shows the state of ZooKeeper's offsets, if a broker keeps offsets there.
OFFSETS_STATE = ConfigKey(
    "barnabas.offsets.state", "string", None, "Offsets on their way to ZooKeeper, as JSON. Read-only."
)


@dataclass
class ConfigEntry:
    """A key as DescribeConfigs shows it. `synonyms` are (name, value, source), beginning with the effective one."""

    key: ConfigKey
    name: str
    value: str | None
    source: int
    read_only: bool = False
    sensitive: bool = False
    synonyms: list[tuple[str, str | None, int]] = field(default_factory=list)


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """All topic keys, with the effective values for a topic that sets `overrides`."""
    entries = []
    for name, key in sorted(TOPIC.items()):
        synonyms: list[tuple[str, str | None, int]] = []
        if name in overrides:
            synonyms.append((name, overrides[name], SOURCE_TOPIC))
        if key.synonym:
            for source, values in ((SOURCE_DYNAMIC_DEFAULT, config.dynamic), (SOURCE_STATIC, config.static)):
                if values.get(key.synonym) is not None:
                    synonyms.append((key.synonym, key.show(values[key.synonym]), source))
            broker_default = key.show(BROKER[key.synonym].default)
            if broker_default is not None:
                synonyms.append((key.synonym, broker_default, SOURCE_DEFAULT))
        if name in overrides:
            value, source = key.show(key.parse(overrides[name])), SOURCE_TOPIC
        else:
            default, source = config.topic_default(name)
            value = key.show(default)
        if value is not None:
            entries.append(ConfigEntry(key, name, value, source, synonyms=synonyms))
    return entries


def broker_entries(
    config: BrokerConfig, per_broker: Mapping[str, str], cluster: Mapping[str, str]
) -> list[ConfigEntry]:
    """All broker keys, with the effective values."""
    entries = []
    for name, key in sorted(BROKER.items()):
        synonyms: list[tuple[str, str | None, int]] = []
        if name in per_broker:
            synonyms.append((name, _shown(key, per_broker[name]), SOURCE_DYNAMIC_BROKER))
        if name in cluster:
            synonyms.append((name, _shown(key, cluster[name]), SOURCE_DYNAMIC_DEFAULT))
        if name in config.static:
            synonyms.append((name, key.show(config.static[name]), SOURCE_STATIC))
        synonyms.append((name, key.show(key.default), SOURCE_DEFAULT))
        _, value, source = synonyms[0]
        entries.append(ConfigEntry(key, name, value, source, not key.dynamic, key.sensitive, synonyms=synonyms))
    return [*entries, *_of_listeners(config, per_broker)] + [
        _unknown(name, source)
        for source, values in ((SOURCE_DYNAMIC_BROKER, per_broker), (SOURCE_DYNAMIC_DEFAULT, cluster))
        for name in sorted(values)
        if broker_key(name) is None and not (source == SOURCE_DYNAMIC_DEFAULT and name in per_broker)
    ]


def _shown(key: ConfigKey, text: str) -> str | None:
    """A value as it was given; None if the value is sensitive."""
    return None if key.sensitive else text


def _of_listeners(config: BrokerConfig, per_broker: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """The keys that are set for a single listener."""
    given = {name: key for name in (*per_broker, *config.static) if (key := _key_of_listener(name)) is not None}
    for name, key in sorted(given.items()):
        synonyms: list[tuple[str, str | None, int]] = []
        if name in per_broker:
            synonyms.append((name, _shown(key, per_broker[name]), SOURCE_DYNAMIC_BROKER))
        if name in config.static:
            synonyms.append((name, key.show(config.static[name]), SOURCE_STATIC))
        _, value, source = synonyms[0]
        yield ConfigEntry(key, name, value, source, not key.dynamic, key.sensitive, synonyms=synonyms)


def _key_of_listener(name: str) -> ConfigKey | None:
    return None if name in BROKER else broker_key(name)


def _unknown(name: str, source: int) -> ConfigEntry:
    """An unknown key that is only kept. Its value may be a secret."""
    key = ConfigKey(name, "unknown", None, "Not a key of this broker: kept, and not used.", dynamic=True, used=False)
    return ConfigEntry(key, name, None, source, read_only=True, sensitive=True, synonyms=[(name, None, source)])


def _set_for_all(name: str, value: str) -> ConfigEntry:
    if name not in BROKER:
        return _unknown(name, SOURCE_DYNAMIC_DEFAULT)
    synonyms: list[tuple[str, str | None, int]] = [(name, value, SOURCE_DYNAMIC_DEFAULT)]
    return ConfigEntry(BROKER[name], name, value, SOURCE_DYNAMIC_DEFAULT, synonyms=synonyms)


def _client_metrics_entries(configs: Mapping[str, str]) -> list[ConfigEntry]:
    """All keys of a client-metrics resource, with the effective values; empty if there is no such resource."""
    if not configs:
        return []
    entries = []
    for name, key in sorted(client_metrics.KEYS.items()):
        source = SOURCE_CLIENT_METRICS if name in configs else SOURCE_DEFAULT
        value = configs.get(name, key.show(key.default) or "")
        entries.append(ConfigEntry(key, name, value, source, synonyms=[(name, value, source)]))
    return entries


_ROOT = ConfigKey(loggers.ROOT, "unknown", "INFO", "The level of the broker's log.", dynamic=True)


def changed(current: Mapping[str, str], target: Mapping[str, str]) -> dict[str, str]:
    """The keys whose values change."""
    return {key: value for key, value in target.items() if current.get(key) != value}


def _gets_query(current: Mapping[str, str], target: Mapping[str, str]) -> bool:
    """Whether a change gives a topic a query, or replaces its query."""
    return target.get(QUERY) not in (None, current.get(QUERY))


def _says_nothing(current: Mapping[str, str], name: str, operation: int, value: str | None) -> bool:
    """Whether a change only names the default of a key for query topics or streams."""
    if operation != SET or name not in _OF_QUERIES or name in current:
        return False
    key = TOPIC[name]
    return value == key.show(key.default)


def _check_scope(resource: str, name: str, key: ConfigKey) -> None:
    """Raises KafkaError unless a key store is changed for a single listener of a single broker."""
    if name == key.name:
        why = f"{name} can be changed for one listener only: name it listener.name.NAME.{name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    if not resource:
        why = f"Cannot update these configs at default cluster level, broker id must be specified: {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)


def tell_unused(log: EventLog, keys: Mapping[str, ConfigKey], given: Mapping[str, str]) -> None:
    """Log once that keys have no effect here, for each one that is set to a value other than its default."""
    unused = [
        name
        for name, value in sorted(given.items())
        if name in keys
        and not keys[name].used
        and keys[name].parse(value) != keys[name].default
        and log.is_new(f"config.unused {name}")
    ]
    if unused:
        log.info("config.unused", keys=",".join(unused), effect="none")


class ResourceConfigs(Listener):
    """The configuration of topics and of the broker: shows it, changes it and applies it."""

    def __init__(
        self,
        config: BrokerConfig,
        identity: Identity,
        metadata: MetadataImage,
        topics: TopicManager,
        partitions: Partitions,
        queries: Queries,
        streams: Streams,
        owners: Owners,
        groups: Groups,
        nodes: Nodes,
        log: EventLog,
        tls: TlsListeners,
    ) -> None:
        self._config, self._identity, self._metadata, self._topics = config, identity, metadata, topics
        self._partitions, self._queries, self._streams = partitions, queries, streams
        self._groups, self._nodes, self._log, self._tls, self._owners = groups, nodes, log, tls, owners
        self._least_replicas = config["min.insync.replicas"]
        #: The other nodes; None if there are none.
        self.peers: Peers | None = None

    def settings_changed(self) -> None:
        """Apply the settings of the broker. Raises ConfigError at a start that cannot use them."""
        config, metadata = self._config, self._metadata
        merged = config.cluster_wide(metadata.broker_configs.get("", {}))
        merged.update(self._own_configs())
        config.set_dynamic(merged)
        self._tls.settings_changed()
        self._groups.apply_offset_stores()
        replicas = config["min.insync.replicas"]
        if replicas != self._least_replicas:
            self._least_replicas = replicas
            for topic in metadata.topics.values():
                self.topic_changed(topic, topic)

    def _own_configs(self) -> dict[str, str]:
        """The settings of this broker. For the places of offsets, the settings of the first node apply to all nodes."""
        configs = self._metadata.broker_configs
        own = configs.get(str(self._identity.node_id), {})
        first = configs.get(str(self._nodes.controller_id), {})
        kept = {key: value for key, value in own.items() if key not in _OF_STORES}
        return kept | {key: value for key, value in first.items() if key in _OF_STORES}

    def topic_changed(self, before: TopicImage | None, after: TopicImage | None) -> None:
        """Note whether a topic requires more in-sync replicas than exist."""
        short = self._partitions.without_enough_replicas
        if before is not None:
            short.discard(before.name)
        if after is not None:
            wanted = after.configs.get("min.insync.replicas", self._config["min.insync.replicas"])
            if int(wanted) > 1:
                short.add(after.name)

    def describe(self, kind: int, name: str) -> list[ConfigEntry]:
        """The entries of a resource. Raises KafkaError if the resource does not exist."""
        if kind == RESOURCE_TOPIC:
            if not self._topics.is_valid_name(name):
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name {name[:300]!r} is illegal")
            return topic_entries(self._config, self._topics.find(name).configs)
        if kind == RESOURCE_BROKER:
            self._check_broker(name)
            configs = self._metadata.broker_configs
            cluster = self._config.cluster_wide(configs.get("", {}))
            if name == "":
                return [_set_for_all(*item) for item in sorted(cluster.items())]
            return broker_entries(self._config, self._own_configs(), cluster) + self._offsets_state()
        if kind == RESOURCE_BROKER_LOGGER:
            loggers.check_name(self._identity.node_id, name)
            return [ConfigEntry(_ROOT, loggers.ROOT, loggers.level(self._log), SOURCE_LOGGER)]
        if kind == RESOURCE_CLIENT_METRICS:
            return _client_metrics_entries(self._metadata.client_metrics.get(name, {}))
        if kind == RESOURCE_GROUP:
            return []
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {kind}")

    def _offsets_state(self) -> list[ConfigEntry]:
        zookeeper = self._groups.zookeeper
        if zookeeper is None:
            return []
        return [ConfigEntry(OFFSETS_STATE, OFFSETS_STATE.name, zookeeper.state(), SOURCE_DEFAULT, read_only=True)]

    def _check_offset_stores(self, name: str, target: Mapping[str, str]) -> None:
        """Raises ConfigError if offsets cannot be kept in the places that a broker's new settings name."""
        given = {key: BROKER[key].parse(text) for key, text in target.items() if key in BROKER}
        self._config.check_offset_stores(given)
        first = str(self._nodes.controller_id)
        if name not in ("", first):
            current = self._metadata.broker_configs.get(name, {})
            for key in _OF_STORES:
                if target.get(key) not in (None, current.get(key)):
                    raise ConfigError(f"{key} applies to all nodes: set it for broker {first}, or as the default")
            return
        other = self._metadata.broker_configs.get("" if name else first, {})
        merged = {**other, **target} if name else {**target, **other}
        dynamic = {key: BROKER[key].parse(text) for key, text in merged.items() if key in BROKER}
        self._groups.check_offset_stores(self._config.offset_stores(dynamic))

    async def _prepare_listeners(self, name: str, target: Mapping[str, str]) -> None:
        """Read the key stores in a broker's new settings. Raises KafkaError if they cannot be used."""
        if name not in ("", str(self._identity.node_id)):
            return  # the other broker reads them
        cluster = self._metadata.broker_configs.get("", {})
        mine = self._metadata.broker_configs.get(str(self._identity.node_id), {})
        dynamic = self._config.parse_dynamic({**cluster, **target} if name else {**target, **mine})
        try:
            await self._tls.prepare(dynamic)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None

    async def _others_agree(self, name: str, current: Mapping[str, str], target: Mapping[str, str]) -> None:
        """Ask the nodes that a broker's new settings apply to whether they object. Raises KafkaError if one does.

        A node reads its own key stores, and knows which of its groups' offsets are not yet in ZooKeeper.
        """
        first, here = str(self._nodes.controller_id), str(self._identity.node_id)
        if self.peers is None or here != first:
            return
        altered = [AlterableConfig(key, SET, value) for key, value in changed(current, target).items()]
        altered += [AlterableConfig(key, DELETE, None) for key in current if key not in target]
        asked = [] if name in ("", here) else [int(name)]
        if name in ("", here) and any(each.name in _OF_STORES for each in altered):
            asked = [node for node in self._metadata.nodes if str(node) != here]
        request = IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(RESOURCE_BROKER, name, altered)], validate_only=True
        )
        for node in asked if altered else ():
            try:
                with trio.fail_after(_NODE_SECONDS):
                    answer = await self.peers.ask(node, request)
            except (Unreachable, trio.TooSlowError):
                why = f"Node {node}, to which this applies, does not answer: try again when all nodes serve."
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, why) from None
            for told in answer.responses:
                if told.error_code:
                    raise KafkaError(ErrorCode(told.error_code), f"node {node}: {told.error_message}")

    def _check_broker(self, name: str, *, any_node: bool = False) -> None:
        """Raises KafkaError unless `name` means this broker, all brokers, or with `any_node` another node."""
        here = str(self._identity.node_id)
        if name not in ("", here) and not (any_node and name in map(str, self._metadata.nodes)):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {here} or empty string, but got {name}",
            )

    async def alter(
        self,
        kind: int,
        name: str,
        changes: list[tuple[str, int, str | None]],
        *,
        whole: bool,
        validate_only: bool,
        asker: Asker,
    ) -> None:
        """Change a resource's keys: (key, operation, value). `whole` removes the keys that are not named.

        If this gives a topic a query or a stream, the asker becomes its owner. Raises KafkaError; then nothing has
        changed.
        """
        if kind == RESOURCE_BROKER_LOGGER and not whole:
            loggers.check_name(self._identity.node_id, name)
            loggers.alter(self._log, changes, validate_only=validate_only)
            return
        current, target = self._target(kind, name, changes, whole, asker)
        if kind == RESOURCE_BROKER:
            await self._prepare_listeners(name, target)
            await self._others_agree(name, current, target)
        before, asked, stream = self._query_of(kind, name), None, None
        may_read = partial(self._owners.check_reads, asker, api=_ALTERS)
        if _gets_query(current, target):  # asks the streams driver, which may take long
            asked = await self._queries.ask(self._topics.find(name), target, _QUERY_CHECK_MS, may_read)
        elif kind == RESOURCE_TOPIC and gets_stream(current, target):
            stream = await self._streams.ask(self._topics.find(name), target, _QUERY_CHECK_MS, may_read)

        async def change() -> None:
            with trio.CancelScope(shield=True):
                async with self._topics.changes:
                    current, target = self._target(kind, name, changes, whole, asker)
                    is_made = asked is not None or stream is not None
                    gets = _gets_query(current, target) or (kind == RESOURCE_TOPIC and gets_stream(current, target))
                    if (is_made or gets) and before != self._query_of(kind, name):
                        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} has changed meanwhile: try again.")
                    if asked is not None:
                        target = self._queries.answered(self._topics.find(name), target, asked)
                    if stream is not None:
                        target = self._streams.answered(self._topics.find(name), target, stream)
                    if kind == RESOURCE_TOPIC and (is_made or target.get(OWNER) != current.get(OWNER)):
                        target = self._owned(asker, name, target)
                    records = self._records(kind, name, current, target)
                    if not records or validate_only:
                        return
                    if asked is not None and not is_query(current):
                        await self._queries.convert(self._topics.find(name), target, records)
                    else:
                        await self._topics.commit(records)
                    if kind != RESOURCE_CLIENT_METRICS:
                        tell_unused(self._log, TOPIC if kind == RESOURCE_TOPIC else BROKER, changed(current, target))

        if asked is None or is_query(current) or validate_only:
            await change()
        else:
            async with self._queries.closing(self._topics.find(name)):
                await change()
        if asked is not None:
            await self._queries.heard()  # so that the new query is the one for records that the client produces next

    def _records(self, kind: int, name: str, current: dict[str, str], target: dict[str, str]) -> list[Message]:
        """The records that change the keys of a resource to those of `target`."""
        record = self._metadata.config_record
        set_: list[Message] = [
            record(kind, name, key, value) for key, value in target.items() if current.get(key) != value
        ]
        return set_ + [record(kind, name, key, None) for key in current if key not in target]

    def _owned(self, asker: Asker, name: str, target: dict[str, str]) -> dict[str, str]:
        """The configuration of a topic whose query or stream belongs to the asker from now on. Raises KafkaError."""
        owned: dict[str, str | None] = dict(target)
        self._owners.check(asker, name, owned, _ALTERS)
        return {key: value for key, value in owned.items() if value is not None}

    def _query_of(self, kind: int, name: str) -> tuple[bytes, str | None, str | None] | None:
        """A topic's id, query and stream, to find out whether they change; None for other resources."""
        topic = self._metadata.topics.get(name) if kind == RESOURCE_TOPIC else None
        return None if topic is None else (topic.topic_id, topic.configs.get(QUERY), topic.configs.get(STREAM))

    def _target(
        self, kind: int, name: str, changes: list[tuple[str, int, str | None]], whole: bool, asker: Asker
    ) -> tuple[dict[str, str], dict[str, str]]:
        """A resource's keys before and after the changes, which are checked. Raises KafkaError."""
        if kind == RESOURCE_TOPIC:
            current = {key: value for key, value in self._topics.find(name).configs.items() if key != CLOSING}
            keys: Mapping[str, ConfigKey] = TOPIC
        elif kind == RESOURCE_BROKER:
            self._check_broker(name, any_node=True)
            current = dict(self._metadata.broker_configs.get(name, {}))
            keys = BROKER
        elif kind == RESOURCE_CLIENT_METRICS:
            current, keys = self._client_metrics(name), client_metrics.KEYS
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {kind}")
        if len({key for key, _, _ in changes}) != len(changes):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        target = {key: value for key, value in current.items() if not whole or key in _KEPT}
        if kind == RESOURCE_TOPIC:
            changes = [change for change in changes if not _says_nothing(current, *change)]
        for key, operation, value in changes:
            self._change(kind, name, keys, target, key, operation, value)
        try:
            if kind == RESOURCE_TOPIC:
                without_stream(current, target)
                check_topic_configs(target)
                check_owner(current, target, asker)
                check_changes(name, current, target)
                check_stream_changes(name, current, target)
            elif kind == RESOURCE_CLIENT_METRICS:
                client_metrics.check(target)
            else:
                self._check_offset_stores(name, target)
                self._config.parse_dynamic(target)
                if sum(broker_key(key) is None for key in target) > MAX_UNKNOWN_KEYS:
                    raise ConfigError(f"Too many keys that are unknown here: at most {MAX_UNKNOWN_KEYS} are kept")
        except ConfigError as error:
            code = ErrorCode.INVALID_REQUEST if kind == RESOURCE_BROKER else ErrorCode.INVALID_CONFIG
            raise KafkaError(code, str(error)) from None
        return current, target

    def _client_metrics(self, name: str) -> dict[str, str]:
        """The keys of a client-metrics resource. Raises KafkaError for an impossible name, or if there are too many."""
        known = self._metadata.client_metrics
        if not name or len(name) > MOST_NAME_CHARS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid resource name for client metrics")
        if name not in known and len(known) >= client_metrics.MOST:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"There are {client_metrics.MOST} client metrics resources")
        return dict(known.get(name, {}))

    def _change(
        self,
        kind: int,
        resource: str,
        keys: Mapping[str, ConfigKey],
        target: dict[str, str],
        name: str,
        operation: int,
        value: str | None,
    ) -> None:
        if operation == DELETE:
            target.pop(name, None)
            return
        if value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for {name}")
        key = self._changeable(kind, resource, keys, name, is_set=operation == SET)
        if operation == SET:
            target[name] = value
            return
        if operation not in (APPEND, SUBTRACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown config operation {operation}")
        if key is None or key.type != "list":
            action = "append to" if operation == APPEND else "subtract from"
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Can't {action} config {name} because it is not a list")
        shown = target.get(name)
        items = [item for item in (self._shown_default(kind, name, key) if shown is None else shown).split(",") if item]
        given = [item.strip() for item in value.split(",")]
        if operation == APPEND:
            items += [item for item in given if item not in items]
        else:
            items = [item for item in items if item not in given]
        target[name] = ",".join(items)

    def _changeable(
        self, kind: int, resource: str, keys: Mapping[str, ConfigKey], name: str, *, is_set: bool
    ) -> ConfigKey | None:
        """The key with this name; None for an unknown key of a broker, which can only be set. Raises KafkaError."""
        if kind != RESOURCE_BROKER:
            if (key := keys.get(name)) is None:
                kind_name = "topic" if kind == RESOURCE_TOPIC else "client metrics"
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown {kind_name} config name: {name}")
            return key
        key = broker_key(name)
        if key is None and not is_set:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown broker config name: {name}")
        if name == OFFSETS_STATE.name or (key is not None and not key.dynamic):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {name}; set it in the config file"
            )
        if key is not None and key.name in ssl_keys.DYNAMIC:
            _check_scope(resource, name, key)
        return key

    def _shown_default(self, kind: int, name: str, key: ConfigKey) -> str:
        """The value of a key that is not set for the resource."""
        default: Any = key.default
        if kind == RESOURCE_TOPIC:
            default = self._config.topic_default(name)[0]
        elif kind == RESOURCE_BROKER:
            default = self._config[name]
        return key.show(default) or ""
