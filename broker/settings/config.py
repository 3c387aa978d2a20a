"""Configuration: Kafka's `server.properties` keys, with types, defaults, bounds and what topics inherit.

The two tables are the single source: parsing, validation, DescribeConfigs, AlterConfigs and the docs come from them.
Their second part, Kafka's keys without an effect here, is in `broker.settings.unused_keys`.
An unknown key logs a warning, as in Kafka. A value that cannot be served stops the start, with the reason and remedy.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.broker.security.authorizer import STANDARD, parse_super_users
from barnabas.broker.settings.keys import (
    INT_MAX,
    LONG_MAX,
    SOURCE_DEFAULT,
    SOURCE_DYNAMIC_DEFAULT,
    SOURCE_STATIC,
    ConfigError,
    ConfigKey,
)
from barnabas.broker.settings.listeners import (
    Listener,
    parse_http,
    parse_listener,
    parse_protocols,
    scoped,
    scoped_name,
)
from barnabas.broker.settings.quota_keys import QUOTA_KEYS
from barnabas.broker.settings.sasl_keys import SASL_KEYS, jaas
from barnabas.broker.settings.ssl_keys import KERNEL_TLS, SSL_KEYS
from barnabas.broker.settings.unused_keys import INTERNAL, UNUSED_BROKER, UNUSED_TOPIC, one_replica
from barnabas.client.zookeeper.layout import parse_connect
from barnabas.groupcoord.config import GroupConfig
from barnabas.groupcoord.transactions.config import TransactionConfig
from barnabas.storage.cleaner import CleanerSettings
from barnabas.storage.compaction_terms import CompactionLimits, Throttle
from barnabas.storage.config import LogConfig
from barnabas.storage.pace import FULL_SPEED
from barnabas.wire.jaas import JaasEntry
from barnabas.wire.properties import parse_properties
from barnabas.wire.streams.keys import STATES

# Of log.cleaner.io.buffer.load.factor and log.cleaner.io.buffer.size: Kafka takes any value.
_MOST_LOAD, _LEAST_READ = 0.99, 4096
VALUE_FORMATS = ("raw", "json", "csv", "avro")
# The values of offsets.storage, and whether the log has the offsets.
_STORAGES = {"kafka": True, "ads": True, "zookeeper": False}
CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def _separator(value: str) -> None:
    if value != "\\t" and (len(value.encode()) != 1 or value in '"\r\n'):
        expected = "one ASCII character, no quote or end of a line, or \\t for a tab"
        raise ConfigError(f"Invalid value {value!r} for barnabas.value.csv.separator: expected {expected}")


def _query_start(value: str) -> None:
    if value not in ("earliest", "latest") and not value.isdigit():
        expected = "earliest, latest, or milliseconds since 1970"
        raise ConfigError(f"Invalid value {value!r} for barnabas.query.start: expected {expected}")


def _authorizer(value: str) -> None:
    if value and value != STANDARD:
        why = "it is of Kafka with ZooKeeper" if value.endswith("AclAuthorizer") else "classes of Java cannot be run"
        raise ConfigError(f"authorizer.class.name={value} is not supported, as {why}: set it to {STANDARD}")


def _super_users(value: str) -> None:
    try:
        parse_super_users(value)
    except ValueError as error:
        raise ConfigError(f"Invalid value {value!r} for super.users: {error}; semicolons separate several") from None


def _positive(name: str) -> Callable[[float], None]:
    def check(value: float) -> None:
        if value <= 0:
            raise ConfigError(f"Invalid value {value} for {name}: must be above 0")

    return check


def _offsets_storage(value: str) -> None:
    if value.lower() not in _STORAGES:
        raise ConfigError(
            f"Wrong value {value} of offsets.storage; valid values are kafka (or its alias ads) and zookeeper"
        )


def _http_listen(value: str) -> None:
    if value:
        parse_http(value)


def _zookeeper_connect(value: str) -> None:
    try:
        if value:
            parse_connect(value)
    except ValueError as error:
        raise ConfigError(f"Invalid value {value!r} for zookeeper.connect: {error}") from None


def _credentials(value: str) -> None:
    user, colon, password = value.partition(":")
    if value and not (user and colon and password):
        raise ConfigError("Invalid value for barnabas.zookeeper.credentials: expected USER:PASSWORD")


def _keys(keys: Iterable[ConfigKey]) -> dict[str, ConfigKey]:
    return {key.name: key for key in keys}


BROKER = _keys([
    ConfigKey("node.id", "int", 1, "Id of this broker.", minimum=0),
    ConfigKey("broker.id", "int", -1, "Old name of node.id."),
    ConfigKey("broker.rack", "string", None, "The rack of this broker; announced to clients."),
    ConfigKey("process.roles", "list", ("broker", "controller"), "Roles of this process; both are always served here.",
        choices=("broker", "controller")),
    ConfigKey("listeners", "list", ("PLAINTEXT://127.0.0.1:9092",), "Addresses to listen on: NAME://HOST:PORT, ..."),
    ConfigKey("advertised.listeners", "list", None, "Addresses announced to clients; default: listeners."),
    ConfigKey("controller.listener.names", "list", (), "Listeners of the controller's quorum; not opened, because "
        "there is no quorum."),
    ConfigKey("authorizer.class.name", "string", "", "The authorizer: none, or "
        f"`{STANDARD}`, which decides by the ACLs.", check=_authorizer),
    ConfigKey("super.users", "string", "", "Principals who may do everything, as `User:admin;User:CN=ops,O=Example`: "
        "separated by semicolons.", check=_super_users),
    ConfigKey("allow.everyone.if.no.acl.found", "boolean", False, "Whether all clients have all rights to a resource "
        "without ACLs."),
    ConfigKey("listener.security.protocol.map", "string", "PLAINTEXT:PLAINTEXT",
        "Security protocol of each listener name."),
    ConfigKey("log.dirs", "list", None, "The data directory (one).", ),
    ConfigKey("log.dir", "list", ("data",), "The data directory; log.dirs has precedence."),
    ConfigKey("cluster.id", "string", None,
        "Id of the cluster; default: what the data directory says, else a new one."),
    ConfigKey("num.partitions", "int", 1, "Partitions of topics that are created without a count.", minimum=1),
    ConfigKey("default.replication.factor", "int", 1, "Replicas of topics that are created without a factor.",
        check=one_replica),
    ConfigKey("auto.create.topics.enable", "boolean", True, "Create topics when a client asks for their metadata."),
    ConfigKey("delete.topic.enable", "boolean", True, "Allow DeleteTopics."),
    ConfigKey("min.insync.replicas", "int", 1, "Replicas that must have a record before acks=all is answered.",
        minimum=1, dynamic=True),
    ConfigKey("socket.request.max.bytes", "int", 104857600, "Largest request.", minimum=1),
    ConfigKey("socket.send.buffer.bytes", "int", -1, "SO_SNDBUF; -1 for the system's default."),
    ConfigKey("socket.receive.buffer.bytes", "int", -1, "SO_RCVBUF; -1 for the system's default."),
    ConfigKey("socket.listen.backlog.size", "int", 1024, "Connections that may wait to be accepted.", minimum=1),
    ConfigKey("connections.max.idle.ms", "long", 600000, "Connections that are idle for longer are closed.",
        dynamic=False),
    *QUOTA_KEYS,
    ConfigKey("queued.max.request.bytes", "long", 512 << 20, "Bytes of requests being received or handled at one time.",
        minimum=1),
    ConfigKey("fetch.max.bytes", "int", 57671680, "Most bytes in one fetch response.", minimum=1024),
    ConfigKey("max.request.partition.size.limit", "int", 2000,
        "Most partitions in one answer of DescribeTopicPartitions.", minimum=1),
    ConfigKey("max.incremental.fetch.session.cache.slots", "int", 1000, "Fetch sessions kept.", minimum=0),
    ConfigKey("message.max.bytes", "int", 1048588, "Largest record batch.", minimum=0, dynamic=True),
    ConfigKey("compression.type", "string", "producer", "Final compression.", choices=CODECS, dynamic=True),
    ConfigKey("log.message.timestamp.type", "string", "CreateTime", "Which timestamp records carry.",
        choices=("CreateTime", "LogAppendTime"), dynamic=True),
    ConfigKey("log.message.timestamp.before.max.ms", "long", LONG_MAX, "How far timestamps may lie in the past.",
        minimum=0, dynamic=True),
    ConfigKey("log.message.timestamp.after.max.ms", "long", 3600000, "How far timestamps may lie in the future.",
        minimum=0, dynamic=True),
    ConfigKey("log.segment.bytes", "int", 1 << 30, "Size at which a segment rolls.", minimum=1024, dynamic=True),
    ConfigKey("log.roll.ms", "long", None, "Age at which a segment rolls.", minimum=1, dynamic=True),
    ConfigKey("log.roll.hours", "int", 168, "Age at which a segment rolls; log.roll.ms has precedence.", minimum=1),
    ConfigKey("log.index.interval.bytes", "int", 4096, "Bytes between index entries.", minimum=0, dynamic=True),
    ConfigKey("log.index.size.max.bytes", "int", 10 << 20, "Largest index; the segment rolls when it is full.",
        minimum=4, dynamic=True),
    ConfigKey("log.retention.ms", "long", None, "How long records are kept; -1 forever.", dynamic=True),
    ConfigKey("log.retention.minutes", "int", None, "How long records are kept; log.retention.ms has precedence."),
    ConfigKey("log.retention.hours", "int", 168, "How long records are kept; the finer keys have precedence."),
    ConfigKey("log.retention.bytes", "long", -1, "Bytes kept in each partition; -1 for no limit.", dynamic=True),
    ConfigKey("log.retention.check.interval.ms", "long", 300000, "How often the broker checks for segments to delete.",
        minimum=1),
    ConfigKey("log.cleanup.policy", "list", ("delete",), "What happens to old records.", choices=("delete", "compact"),
        dynamic=True),
    ConfigKey("log.cleaner.enable", "boolean", True, "Compact the logs of topics with cleanup.policy=compact."),
    ConfigKey("log.cleaner.threads", "int", 1, "Logs that are compacted at one time.", minimum=0, dynamic=True),
    ConfigKey("log.cleaner.io.max.bytes.per.second", "double", sys.float_info.max,
        "Most bytes that compaction reads and writes in a second, all threads together. While none is set: 40 MB as "
        "long as clients keep the broker busy.", dynamic=True,
        check=_positive("log.cleaner.io.max.bytes.per.second")),
    ConfigKey("log.cleaner.dedupe.buffer.size", "long", 128 << 20,
        "Memory for the keys of the logs that are being compacted, all threads together; each key takes 24 bytes. A "
        "log with more keys takes several passes.", minimum=1, dynamic=True),
    ConfigKey("log.cleaner.io.buffer.load.factor", "double", 0.9, "How full that memory gets: more keys in one pass, "
        "which takes longer; at most 0.99.", dynamic=True, check=_positive("log.cleaner.io.buffer.load.factor")),
    ConfigKey("log.cleaner.io.buffer.size", "int", 512 << 10, "Bytes that compaction reads at one time; at least 4096. "
        "Larger for larger batches.", minimum=0, dynamic=True),
    ConfigKey("log.cleaner.backoff.ms", "long", 15000, "How long the cleaner waits when no log needs compaction.",
        minimum=0, dynamic=True),
    ConfigKey("log.cleaner.min.cleanable.ratio", "double", 0.5,
        "A log is compacted when more than this fraction of its bytes was written since the last compaction.",
        minimum=0, maximum=1, dynamic=True),
    ConfigKey("log.cleaner.min.compaction.lag.ms", "long", 0, "Records younger than this are not compacted.",
        minimum=0, dynamic=True),
    ConfigKey("log.cleaner.max.compaction.lag.ms", "long", LONG_MAX,
        "A log with older records that are not compacted is compacted, independent of its ratio.",
        minimum=1, dynamic=True),
    ConfigKey("log.cleaner.delete.retention.ms", "long", 86400000,
        "How long tombstones, and markers of transactions, stay after the records before them are gone.", minimum=0,
        dynamic=True),
    ConfigKey("log.segment.delete.delay.ms", "long", 60000, "How long a deleted file is kept for readers.", minimum=0,
        dynamic=True),
    ConfigKey("log.flush.interval.messages", "long", 1,
        "1: acks=all and acks=1 are answered after a (shared) fsync. A larger number: fsync after that many records, "
        "answer from the page cache, as Kafka's default 9223372036854775807 does.", minimum=1, dynamic=True),
    ConfigKey("log.flush.interval.ms", "long", None, "Longest time until a record is fsynced.", minimum=0,
        dynamic=True),
    ConfigKey("metadata.log.max.record.bytes.between.snapshots", "long", 20971520,
        "Bytes by which the metadata log grows until a snapshot replaces what is older.", minimum=1),
    ConfigKey("metadata.log.max.snapshot.interval.ms", "long", 3600000,
        "Longest time until a snapshot of changed metadata; 0 for no such limit.", minimum=0),
    ConfigKey("producer.id.expiration.ms", "int", 86400000, "How long an idle producer id is remembered.", minimum=1,
        dynamic=True),
    ConfigKey("transaction.max.timeout.ms", "int", 900000, "Largest transaction timeout.", minimum=1),
    ConfigKey("transactional.id.expiration.ms", "int", 604800000,
        "How long an unused transactional id is kept.", minimum=1),
    ConfigKey("transaction.remove.expired.transaction.cleanup.interval.ms", "int", 3600000,
        "How often the broker checks for expired transactional ids.", minimum=1),
    ConfigKey("transaction.partition.verification.enable", "boolean", True,
        "Take transactional batches only for partitions that were added to the transaction.", dynamic=True),
    ConfigKey("transaction.state.log.num.partitions", "int", 50, "Partitions of __transaction_state.", minimum=1),
    ConfigKey("transaction.state.log.replication.factor", "short", 1, "Replicas of __transaction_state.",
        check=one_replica),
    ConfigKey("transaction.state.log.segment.bytes", "int", 100 << 20, "Segment size of __transaction_state.",
        minimum=1),
    ConfigKey("add.partitions.to.txn.retry.backoff.max.ms", "int", 100, "How long a request that adds partitions "
        "to a transaction waits for the end of the one before.", minimum=0),
    ConfigKey("group.min.session.timeout.ms", "int", 6000, "Smallest session timeout of a group member.", minimum=1),
    ConfigKey("group.max.session.timeout.ms", "int", 1800000, "Largest session timeout of a group member.", minimum=1),
    ConfigKey("group.initial.rebalance.delay.ms", "int", 0, "How long an empty group waits for more members.",
        minimum=0),
    ConfigKey("group.max.size", "int", INT_MAX, "Most members of a group.", minimum=1),
    ConfigKey("offset.metadata.max.bytes", "int", 4096, "Largest metadata of a committed offset.", minimum=0),
    ConfigKey("offsets.topic.num.partitions", "int", 50, "Partitions of __consumer_offsets.", minimum=1),
    ConfigKey("offsets.topic.replication.factor", "short", 1, "Replicas of __consumer_offsets.", check=one_replica),
    ConfigKey("offsets.topic.segment.bytes", "int", 100 << 20, "Segment size of __consumer_offsets.", minimum=1),
    ConfigKey("offsets.retention.minutes", "int", 10080, "How long offsets of an empty group are kept.", minimum=1),
    ConfigKey("offsets.retention.check.interval.ms", "long", 600000, "How often the broker checks for expired offsets.",
        minimum=1),
    ConfigKey("offsets.storage", "string", "kafka", "Where committed offsets are stored: kafka (or its alias ads), in "
        "__consumer_offsets; zookeeper, where old consumers store them. See docs/offsets.md.", dynamic=True,
        check=_offsets_storage),
    ConfigKey("dual.commit.enabled", "boolean", None, "With offsets.storage=kafka: write commits to ZooKeeper too, and "
        "answer with the larger of both offsets. Default: true if zookeeper.connect is set.", dynamic=True),
    ConfigKey("zookeeper.connect", "string", None, "The ZooKeeper with consumers' offsets, "
        "HOST:PORT[,HOST:PORT...][/CHROOT]. Nothing else is stored there.", check=_zookeeper_connect),
    ConfigKey("zookeeper.session.timeout.ms", "int", 18000, "Session timeout with ZooKeeper.", minimum=100),
    ConfigKey("barnabas.zookeeper.timeout.ms", "int", 1000,
        "The longest that a commit or an OffsetFetch waits for ZooKeeper.", minimum=10),
    ConfigKey("barnabas.zookeeper.credentials", "password", None, "USER:PASSWORD of ZooKeeper's digest scheme.",
        check=_credentials),
    ConfigKey("barnabas.idle.poll.us", "int", 100, "Microseconds that the broker polls for the next request instead of "
        "sleeping, while requests come as quickly as that; 0: not at all.", minimum=0, maximum=1000),
    ConfigKey(KERNEL_TLS, "boolean", True, "Whether the kernel encrypts what connections with TLS 1.3 send, if "
        "it can: Linux with the module tls. See docs/security.md."),
    ConfigKey("barnabas.node.hang.ms", "int", 10_000, "With several processes: a node whose event loop has not turned "
        "for this long is killed and started again. Time in which it waits for a core does not count.", minimum=1000),
    ConfigKey("barnabas.http.listen", "string", None, "HOST:PORT, or https://HOST:PORT, of an HTTP listener for "
        "health, metrics and the console; default: none. TLS: the ssl keys of a listener HTTP. See docs/monitoring.md.",
        check=_http_listen),
    ConfigKey("barnabas.http.hosts", "list", (), "Names by which browsers and programs may call that listener, besides "
        "localhost and addresses. Other names are refused, as an attacker can make a name point to this address."),
    ConfigKey("barnabas.http.trusted.network", "boolean", False, "Allow other machines to reach that listener without "
        "TLS or without logins. Everyone who can reach it may then use it, unless a proxy in front of it checks them."),
    ConfigKey("barnabas.http.console.writes", "boolean", False, "Allow changes in the console: create, change and "
        "delete topics, produce a record, move or delete a group. The user needs the same rights as any client. See "
        "docs/console.md."),
    ConfigKey("barnabas.streams.driver", "string", "auto",
        "auto: the broker starts the Spark driver with the first query "
        "topic. none: the operator runs `barnabas streams`.", choices=("auto", "none")),
    ConfigKey("barnabas.streams.master", "string", "local[*]", "Spark master of the driver that the broker starts."),
    ConfigKey("barnabas.streams.driver.memory", "string", "1g", "Memory of that driver's JVM."),
    ConfigKey("barnabas.streams.trigger.ms", "int", 250, "Shortest time between two checks of the sources.", minimum=1),
    ConfigKey("barnabas.streams.tick.timeout.ms", "int", 30_000, "A query that takes longer for a batch of records is "
        "stopped and retried with fewer records; the third time within an hour, it fails. With a local master this is "
        "the CPU time of the busiest task, on a cluster the wall-clock time.", minimum=100),
    ConfigKey("barnabas.streams.max", "int", 16, "Most Spark queries of streams. Each takes about 80 MB of memory, and "
        "CPU for each batch. Streams over one source share queries.", minimum=0),
    ConfigKey("barnabas.streams.checkpoint.copies", "string", "", "Folder, or URL such as s3://BUCKET/PREFIX, to which "
        "the checkpoints of streams are copied; empty for none."),
    ConfigKey("barnabas.streams.checkpoint.copy.interval.ms", "int", 180_000, "Time between two copies of checkpoints.",
        minimum=1000),
    ConfigKey("barnabas.streams.sink.writes.per.second", "int", 50, "Most requests in a second with which a query of "
        "streams writes; 0: no limit.", minimum=0),
    ConfigKey("barnabas.streams.sink.bytes.per.second", "int", 2 << 20, "Most bytes in a second that such a query "
        "writes to a partition; 0: no limit.", minimum=0),
    ConfigKey("barnabas.streams.source.bytes.per.second", "int", 0, "Most bytes of the log in a second that such a "
        "query reads; 0: no limit.", minimum=0),
    ConfigKey("barnabas.streams.count.max", "int", 256, "Most streams.", minimum=0),
    ConfigKey("barnabas.streams.init.file", "string", None,
        "A Python file with a function init(spark), which may register "
        "functions for queries; run when the driver starts."),
    *SASL_KEYS,
    *SSL_KEYS,
    *UNUSED_BROKER,
])  # fmt: skip

TOPIC = _keys([
    ConfigKey("cleanup.policy", "list", ("delete",), "What happens to old records.", choices=("delete", "compact"),
        synonym="log.cleanup.policy"),
    ConfigKey("compression.type", "string", "producer", "Final compression.", choices=CODECS,
        synonym="compression.type"),
    ConfigKey("delete.retention.ms", "long", 86400000,
        "How long tombstones, and markers of transactions, stay after the records before them are gone.", minimum=0,
        synonym="log.cleaner.delete.retention.ms"),
    ConfigKey("max.compaction.lag.ms", "long", LONG_MAX,
        "A log with older records that are not compacted is compacted, independent of its ratio.", minimum=1,
        synonym="log.cleaner.max.compaction.lag.ms"),
    ConfigKey("min.cleanable.dirty.ratio", "double", 0.5,
        "The log is compacted when more than this fraction of its bytes was written since the last compaction.",
        minimum=0, maximum=1, synonym="log.cleaner.min.cleanable.ratio"),
    ConfigKey("min.compaction.lag.ms", "long", 0, "Records younger than this are not compacted.", minimum=0,
        synonym="log.cleaner.min.compaction.lag.ms"),
    ConfigKey("file.delete.delay.ms", "long", 60000, "How long a deleted file is kept for readers.", minimum=0,
        synonym="log.segment.delete.delay.ms"),
    ConfigKey("flush.messages", "long", 1, "See log.flush.interval.messages.", minimum=1,
        synonym="log.flush.interval.messages"),
    ConfigKey("flush.ms", "long", LONG_MAX, "Longest time until a record is fsynced.", minimum=0,
        synonym="log.flush.interval.ms"),
    ConfigKey("index.interval.bytes", "int", 4096, "Bytes between index entries.", minimum=0,
        synonym="log.index.interval.bytes"),
    ConfigKey("max.message.bytes", "int", 1048588, "Largest record batch.", minimum=0, synonym="message.max.bytes"),
    ConfigKey("message.timestamp.type", "string", "CreateTime", "Which timestamp records carry.",
        choices=("CreateTime", "LogAppendTime"), synonym="log.message.timestamp.type"),
    ConfigKey("message.timestamp.before.max.ms", "long", LONG_MAX, "How far timestamps may lie in the past.", minimum=0,
        synonym="log.message.timestamp.before.max.ms"),
    ConfigKey("message.timestamp.after.max.ms", "long", 3600000, "How far timestamps may lie in the future.", minimum=0,
        synonym="log.message.timestamp.after.max.ms"),
    ConfigKey("min.insync.replicas", "int", 1, "Replicas that must have a record before acks=all is answered.",
        minimum=1, synonym="min.insync.replicas"),
    ConfigKey("retention.bytes", "long", -1, "Bytes kept in each partition; -1 for no limit.", minimum=-1,
        synonym="log.retention.bytes"),
    ConfigKey("retention.ms", "long", 604800000, "How long records are kept; -1 forever.", minimum=-1,
        synonym="log.retention.ms"),
    ConfigKey("segment.bytes", "int", 1 << 30, "Size at which a segment rolls.", minimum=1024,
        synonym="log.segment.bytes"),
    ConfigKey("segment.index.bytes", "int", 10 << 20, "Largest index.", minimum=4, synonym="log.index.size.max.bytes"),
    ConfigKey("segment.ms", "long", 604800000, "Age at which a segment rolls.", minimum=1, synonym="log.roll.ms"),
    ConfigKey("barnabas.query", "string", None, "A SELECT over another topic, whose results are this topic's records."),
    ConfigKey("barnabas.query.start", "string", "earliest",
        "Where a new query begins in its source: earliest, latest, or "
        "milliseconds since 1970.", check=_query_start),
    ConfigKey("barnabas.query.on.error", "string", "dead-letter",
        "What happens to a record that does not fit the source's schema: it goes to NAME.dead-letter, is left out, or "
        "stops the query.",
        choices=("dead-letter", "skip", "fail")),
    ConfigKey("barnabas.query.events", "boolean", False,
        "Whether a query over a pattern also writes events, as records, about the topics that it reads and their "
        "changes."),
    ConfigKey("barnabas.query.plan", "string", None,
        "Set by the broker: source, first offsets and schema of the query."),
    ConfigKey("barnabas.owner", "string", None,
        "Set by the broker: the owner of the query or stream, as TYPE:NAME@HOST. It has the owner's rights. A user "
        "who sets this to their own TYPE:NAME becomes the owner."),
    ConfigKey("barnabas.denied", "string", None,
        "Set by the broker while the owner lacks a right that the query or stream needs: that right."),
    ConfigKey("barnabas.query.dead.letter.of", "string", None,
        "Makes this topic the dead-letter topic of the query topic NAME. The driver creates NAME.dead-letter when it "
        "is needed."),
    ConfigKey("barnabas.stream", "string", None,
        "A stream whose results are written into this topic: options, and a SELECT over windows of another topic."),
    ConfigKey("barnabas.stream.name", "string", None, "The stream's name in statements; default: the topic's."),
    ConfigKey("barnabas.stream.state", "string", "running", "Whether the stream runs; its state is kept in both cases.",
        choices=STATES),
    ConfigKey("barnabas.stream.run", "int", 0,
        "Setting another number recalculates the stream from its beginning; its state is discarded.", minimum=0),
    ConfigKey("barnabas.stream.plan", "string", None, "Set by the broker: the stream's source and first offsets."),
    ConfigKey("barnabas.value.format", "string", "raw", "The format of the values.", choices=VALUE_FORMATS),
    ConfigKey("barnabas.value.schema", "string", None,
        "Columns of the values, as Spark DDL: device STRING, temp DOUBLE."),
    ConfigKey("barnabas.value.csv.separator", "string", ",", "The separator of fields in CSV values; \\t is a tab.",
        check=_separator),
    ConfigKey("barnabas.value.csv.null", "string", "", "The text that stands for null in CSV values."),
    ConfigKey("barnabas.value.avro.schema", "string", None,
        "The schema of Avro values, in JSON."),
    ConfigKey("barnabas.value.avro.framing", "string", "none",
        "The prefix of each Avro value: none, or confluent, a zero byte and the id of a schema.",
        choices=("none", "confluent")),
    *UNUSED_TOPIC,
])  # fmt: skip


def broker_key(name: str) -> ConfigKey | None:
    """A key of `server.properties` by its name, perhaps of one listener. None if there is no such key."""
    key = BROKER.get(name)
    if key is None and (of_listener := scoped(name, BROKER)) is not None:
        return of_listener.key
    return key


# Keys for the same limit in coarser units, with the milliseconds of the unit.
_COARSER = {
    "log.retention.ms": (("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    "log.roll.ms": (("log.roll.hours", 3_600_000),),
}


# Kafka's keys for features that are not served: refuse rather than pretend.
_UNSERVED = {
    "remote.log.storage.system.enable": "tiered storage is not supported; remove remote.log.storage.system.enable",
}


def read_properties(path: Path) -> dict[str, str]:
    """Read a Java properties file. Raises ConfigError if the file cannot be read."""
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read config file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"Cannot read config file {path}: it is not UTF-8 text") from None


class OffsetStores(NamedTuple):
    """The places where committed offsets are kept."""

    log: bool
    zookeeper: bool


class BrokerConfig:
    """The broker's settings: `config["log.dir"]`. Static values from the file and the command line, dynamic on top.

    Raises ConfigError for values that cannot be served; `unknown` lists the unknown keys.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.static: dict[str, Any] = {}
        self.dynamic: dict[str, Any] = {}
        self.unknown: list[str] = []
        self._internal: list[str] = []
        for name, text in properties.items():
            if name in _UNSERVED and text.strip().lower() not in ("", "false"):
                raise ConfigError(_UNSERVED[name])
            if name in INTERNAL:
                self._internal.append(name)
            elif (key := broker_key(name)) is None:
                self.unknown.append(name)
            else:
                self.static[name.lower() if key.name != name else name] = key.parse(text)
        self.listeners = self._for_clients("listeners")
        self._check_listeners()
        #: The HTTP listener, if there is one.
        self.http = parse_http(self["barnabas.http.listen"]) if self["barnabas.http.listen"] else None
        self.advertised = None if self["advertised.listeners"] is None else self._for_clients("advertised.listeners")
        self._check_advertised()
        self.check_offset_stores(self.static)

    def cluster_wide(self, stored: Mapping[str, str]) -> dict[str, str]:
        """The dynamic settings of all brokers. Kafka keeps min.insync.replicas there from the start (KIP-966)."""
        key = BROKER["min.insync.replicas"]
        first = key.show(self.static.get(key.name, key.default))
        return {key.name: first or "", **stored}

    def unused(self) -> list[str]:
        """The keys that are set and have no effect here."""
        return sorted([*self._internal, *(name for name in self.static if name in BROKER and not BROKER[name].used)])

    def __getitem__(self, name: str) -> Any:
        dynamic = self.dynamic  # a thread may ask while it is replaced
        if name in dynamic:
            return dynamic[name]
        return self.static.get(name, BROKER[name].default)

    def of(self, listener: str, name: str, mechanism: str = "", *, dynamic: Mapping[str, Any] | None = None) -> Any:
        """A key's value for a listener, or for one of its SASL mechanisms: the most specific one that is set.

        With `dynamic`, the value under these dynamic settings instead.
        """
        names = [scoped_name(listener, name, mechanism)] if mechanism else []
        names.append(scoped_name(listener, name))
        for values in (self.dynamic if dynamic is None else dynamic, self.static):
            for each in names:
                if each in values:
                    return values[each]
        return self[name]

    def jaas_of(self, listener: str, mechanism: str) -> JaasEntry | None:
        """The JAAS text of one mechanism of a listener: Kafka accepts none for all of them. Raises ConfigError."""
        name = scoped_name(listener, "sasl.jaas.config", mechanism)
        text = self.dynamic.get(name, self.static.get(name))
        if text is None:
            return None
        entry = jaas(name, text)
        if mechanism not in entry.mechanisms:
            raise ConfigError(f"{name} names a login module of {', '.join(entry.mechanisms)}")
        return entry

    def set_dynamic(self, properties: Mapping[str, str]) -> None:
        """Replace the dynamic settings. Values were checked when they were set."""
        self.dynamic = self.parse_dynamic(properties)

    @staticmethod
    def parse_dynamic(properties: Mapping[str, str]) -> dict[str, Any]:
        """The values of dynamic settings. Raises ConfigError."""
        return {
            name.lower() if key.name != name else name: key.parse(text)
            for name, text in properties.items()
            if (key := broker_key(name)) is not None and key.dynamic
        }

    def offset_stores(self, dynamic: Mapping[str, Any] | None = None) -> OffsetStores:
        """Where offsets are kept now, or would be with other dynamic settings."""
        values = {**self.static, **(self.dynamic if dynamic is None else dynamic)}
        is_known = bool(self["zookeeper.connect"])
        if not _STORAGES[values.get("offsets.storage", "kafka").lower()]:
            return OffsetStores(log=False, zookeeper=True)
        return OffsetStores(log=True, zookeeper=is_known and values.get("dual.commit.enabled", is_known))

    def check_offset_stores(self, given: Mapping[str, Any]) -> None:
        """Raises ConfigError for settings that need a ZooKeeper if none is configured."""
        if self["zookeeper.connect"]:
            return
        remedy = "set zookeeper.connect=HOST:PORT/CHROOT in the config file"
        if not _STORAGES[given.get("offsets.storage", "kafka").lower()]:
            raise ConfigError(f"offsets.storage=zookeeper needs a ZooKeeper: {remedy}")
        if given.get("dual.commit.enabled"):
            raise ConfigError(f"dual.commit.enabled=true needs a ZooKeeper: {remedy}")

    @property
    def node_id(self) -> int:
        old: int = self["broker.id"]
        node: int = self["node.id"]
        return old if old >= 0 and "node.id" not in self.static else node

    @property
    def data_dir(self) -> Path:
        several = self["log.dirs"] or self["log.dir"]
        if len(several) != 1:
            raise ConfigError("log.dirs must name one data directory: several are not supported")
        return Path(several[0])

    def _for_clients(self, key: str) -> list[Listener]:
        """The listeners of a key except the controller's: there is no quorum, and clients are not served there."""
        hidden = {name.upper() for name in self["controller.listener.names"]}
        return [one for one in (parse_listener(text, key) for text in self[key]) if one.name not in hidden]

    def _check_listeners(self) -> None:
        if not self.listeners:
            only = "names only the controller's" if self["listeners"] else "is empty"
            raise ConfigError(f"listeners {only}: name at least one for clients, as PLAINTEXT://127.0.0.1:9092")
        protocols = parse_protocols(self["listener.security.protocol.map"])
        names = [listener.name for listener in self.listeners]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"listeners names {name} twice; give each listener a name of its own")
            if name not in protocols:
                raise ConfigError(f"Listener {name} has no entry in listener.security.protocol.map")
        self.listeners = [replace(each, protocol=protocols[each.name]) for each in self.listeners]

    def _check_advertised(self) -> None:
        names = {listener.name for listener in self.listeners}
        for listener in self.advertised or ():
            if listener.name not in names:
                raise ConfigError(f"advertised.listeners names {listener.name}, which listeners does not have")
            if listener.host in ("", "0.0.0.0", "::"):
                named = listener.host or "an empty host"
                raise ConfigError(f"advertised.listeners cannot name {named}: give a host that clients can reach")

    def advertised_for(self, name: str, bound: Listener) -> Listener:
        """The address announced to clients of a listener: the advertised one, else the bound one."""
        for listener in self.advertised or ():
            if listener.name == name:
                return listener if listener.port else Listener(name, listener.host, bound.port)
        host = socket.gethostname() if bound.host in ("", "0.0.0.0", "::") else bound.host
        return Listener(name, host, bound.port)

    def group_config(self) -> GroupConfig:
        """The settings of the group coordinator."""
        return GroupConfig(
            group_min_session_timeout_ms=self["group.min.session.timeout.ms"],
            group_max_session_timeout_ms=self["group.max.session.timeout.ms"],
            group_initial_rebalance_delay_ms=self["group.initial.rebalance.delay.ms"],
            group_max_size=self["group.max.size"],
            offset_metadata_max_bytes=self["offset.metadata.max.bytes"],
            offsets_topic_num_partitions=self["offsets.topic.num.partitions"],
            offsets_retention_minutes=self["offsets.retention.minutes"],
            offsets_retention_check_interval_ms=self["offsets.retention.check.interval.ms"],
        )

    def transaction_config(self) -> TransactionConfig:
        """The settings of the transaction coordinator."""
        cleanup_interval = self["transaction.remove.expired.transaction.cleanup.interval.ms"]
        return TransactionConfig(
            transaction_max_timeout_ms=self["transaction.max.timeout.ms"],
            transaction_state_log_num_partitions=self["transaction.state.log.num.partitions"],
            transactional_id_expiration_ms=self["transactional.id.expiration.ms"],
            transaction_remove_expired_transaction_cleanup_interval_ms=cleanup_interval,
            add_partitions_to_txn_retry_backoff_max_ms=self["add.partitions.to.txn.retry.backoff.max.ms"],
        )

    def cleaner_throttle(self, unset: Callable[[], float] = lambda: FULL_SPEED) -> Throttle:
        """The limit for all threads of the log cleaner; it follows the setting, or `unset` while none is set."""
        name = "log.cleaner.io.max.bytes.per.second"
        return Throttle(lambda: float(self[name]) if self[name] != BROKER[name].default else unset())

    def cleaner_settings(self, throttle: Throttle) -> CleanerSettings:
        """The settings of the log cleaner."""
        threads = self["log.cleaner.threads"]
        return CleanerSettings(
            enabled=self["log.cleaner.enable"],
            threads=threads,
            backoff_seconds=self["log.cleaner.backoff.ms"] / 1000,
            limits=CompactionLimits(
                map_bytes=self["log.cleaner.dedupe.buffer.size"] // max(threads, 1),
                load_factor=min(self["log.cleaner.io.buffer.load.factor"], _MOST_LOAD),
                read_bytes=max(self["log.cleaner.io.buffer.size"], _LEAST_READ),
                throttle=throttle,
            ),
        )

    # --- topics -------------------------------------------------------------------------------------------------------

    def topic_default(self, name: str) -> tuple[Any, int]:
        """(value, source) of a topic key for topics that do not set it."""
        key = TOPIC[name]
        if key.synonym:
            for source, values in ((SOURCE_DYNAMIC_DEFAULT, self.dynamic), (SOURCE_STATIC, self.static)):
                value = values.get(key.synonym)
                if value is not None:
                    return value, source
            coarse = self._coarse(key.synonym)
            if coarse is not None:
                return coarse, SOURCE_STATIC
        return key.default, SOURCE_DEFAULT

    def _coarse(self, synonym: str) -> int | None:
        """The limit from a key with a coarser unit, if the operator has set one."""
        for name, scale in _COARSER.get(synonym, ()):
            value = self.static.get(name)
            if value is not None:
                return int(value) if value < 0 else int(value) * scale
        return None

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The storage settings of a topic."""

        def value(name: str) -> Any:
            return TOPIC[name].parse(overrides[name]) if name in overrides else self.topic_default(name)[0]

        policy = ",".join(value("cleanup.policy"))
        longest = value("max.compaction.lag.ms") if "compact" in policy else LONG_MAX
        return LogConfig(
            segment_bytes=value("segment.bytes"),
            segment_ms=min(value("segment.ms"), longest),
            segment_index_bytes=value("segment.index.bytes"),
            index_interval_bytes=value("index.interval.bytes"),
            max_message_bytes=value("max.message.bytes"),
            message_timestamp_type=value("message.timestamp.type"),
            message_timestamp_before_max_ms=value("message.timestamp.before.max.ms"),
            message_timestamp_after_max_ms=value("message.timestamp.after.max.ms"),
            compression_type=value("compression.type"),
            cleanup_policy=policy,
            retention_ms=value("retention.ms"),
            retention_bytes=value("retention.bytes"),
            flush_messages=value("flush.messages"),
            flush_ms=value("flush.ms"),
            producer_id_expiration_ms=self["producer.id.expiration.ms"],
            min_cleanable_dirty_ratio=value("min.cleanable.dirty.ratio"),
            min_compaction_lag_ms=value("min.compaction.lag.ms"),
            max_compaction_lag_ms=value("max.compaction.lag.ms"),
            delete_retention_ms=value("delete.retention.ms"),
        )


def check_topic_configs(values: Mapping[str, str | None]) -> None:
    """Raises ConfigError for an unknown topic key or a bad value."""
    for name, text in values.items():
        if name not in TOPIC:
            raise ConfigError(f"Unknown topic config name: {name}")
        if text is None:
            raise ConfigError(f"Null value not supported for topic configs: {name}")
        TOPIC[name].parse(text)
    least, most = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
    if least is not None and most is not None and int(least) > int(most):
        raise ConfigError(f"min.compaction.lag.ms ({least}) must not be above max.compaction.lag.ms ({most})")
