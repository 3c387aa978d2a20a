"""Kafka's configuration keys that have no effect here: accepted, checked, kept and described, so that its tools work.

The subject of such a key does not exist here (threads, replication), or is not served yet. A value that only tunes it
is accepted; a value that asks for something missing is refused. Types, defaults and changeability are those that
Apache Kafka 4.3.1 describes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from barnabas.broker.settings.keys import ConfigError, ConfigKey

_THROTTLED = re.compile(r"\d+:\d+")


def _rows(why: str, table: str) -> Iterator[ConfigKey]:
    """Rows of: name, type, default (- for none), the smallest value (- for any), * if changeable, a topic's synonym."""
    for row in table.strip().splitlines():
        name, kind, default, minimum, changeable, *synonym = row.split()
        bare = ConfigKey(name, kind, None, why)
        nothing: Any = () if kind == "list" else None
        yield ConfigKey(
            name,
            kind,
            nothing if default == "-" else bare.parse(default),
            why,
            minimum=None if minimum == "-" else int(minimum),
            dynamic=changeable == "*",
            used=False,
            synonym=synonym[0] if synonym else None,
        )


def _only(name: str, kind: str, default: Any, missing: str, *, dynamic: bool = False) -> ConfigKey:
    """A key for which only the default can be served."""

    def check(value: Any) -> None:
        if value not in (default, "", ()):
            raise ConfigError(f"{name} is not supported: {missing}")

    why = f"Only its default: {missing}"
    return ConfigKey(name, kind, default, why, dynamic=dynamic, used=False, check=check)


def _alone(name: str) -> ConfigKey:
    def check(value: tuple[str, ...]) -> None:
        if len(value) > 1:
            raise ConfigError(f"{name} names several controllers: there is no quorum of controllers")

    return ConfigKey(name, "list", (), NO_QUORUM, used=False, check=check)


def one_replica(value: int) -> None:
    """Raises ConfigError for a replication factor above 1."""
    if value not in (-1, 1):
        raise ConfigError(f"Replication factor {value} is not possible: each partition has one replica")


def _throttled(value: tuple[str, ...]) -> None:
    if not all(_THROTTLED.fullmatch(item) for item in value) and value not in (("*",), ("none",)):
        raise ConfigError("Throttled replicas must be * or a list of PARTITION:BROKER, ...")


def _throttled_replicas(name: str) -> ConfigKey:
    why = "Nothing is replicated, so nothing is throttled."
    return ConfigKey(name, "list", (), why, used=False, check=_throttled)


def _refused(what: str) -> Callable[[bool], None]:
    def check(value: bool) -> None:
        if value:
            raise ConfigError(what)

    return check


NO_TIERS = "There is no tiered storage."
NO_REPLICATION = "Nothing is replicated."
NO_THREADS = "One event loop does this work."
NO_QUORUM = "There is no quorum of controllers: the first node owns the metadata."
NO_REPORTERS = "Metrics come from the HTTP listener (barnabas.http.listen), not from reporters."
LEVEL = "A batch that is compressed again gets the codec's default level."

#: Keys in the settings that Kafka comes with, which Kafka itself does not describe.
INTERNAL = frozenset(
    f"share.coordinator.state.topic.{name}"
    for name in ("min.isr", "num.partitions", "replication.factor", "segment.bytes")
)

UNUSED_BROKER = [
    *_rows(NO_THREADS, """
        background.threads int 10 1 *
        num.io.threads int 8 1 *
        num.network.threads int 3 1 *
        num.recovery.threads.per.data.dir int 2 1 *
        group.coordinator.background.threads int 2 1 .
        group.coordinator.threads int 4 1 .
        queued.max.requests int 500 1 .
        fetch.purgatory.purge.interval.requests int 1000 - .
        producer.purgatory.purge.interval.requests int 1000 - .
        delete.records.purgatory.purge.interval.requests int 1 - .
    """),
    *_rows(LEVEL, """
        compression.gzip.level int -1 - *
        compression.lz4.level int 9 1 *
        compression.zstd.level int 3 -131072 *
        offsets.topic.compression.codec int 0 0 .
    """),
    *_rows("Files are flushed, rolled and made room for in the broker's own way.", """
        log.flush.offset.checkpoint.interval.ms int 60000 0 .
        log.flush.scheduler.interval.ms long 9223372036854775807 - .
        log.flush.start.offset.checkpoint.interval.ms int 60000 0 .
        log.preallocate boolean false - *
        log.roll.jitter.hours int 0 0 .
        log.roll.jitter.ms long - - *
        log.dir.failure.timeout.ms long 30000 1 .
        offsets.load.buffer.size int 5242880 1 .
        offsets.commit.timeout.ms int 5000 1 .
        group.coordinator.append.linger.ms int -1 -1 .
        group.coordinator.cached.buffer.max.bytes int 1048588 524288 *
    """),
    *_rows(NO_REPLICATION, """
        alter.log.dirs.replication.quota.window.num int 11 1 .
        alter.log.dirs.replication.quota.window.size.seconds int 1 1 .
        auto.leader.rebalance.enable boolean true - .
        controlled.shutdown.enable boolean true - .
        inter.broker.listener.name string - - .
        leader.imbalance.check.interval.seconds long 300 1 .
        num.replica.alter.log.dirs.threads int - - .
        num.replica.fetchers int 1 1 *
        replica.fetch.backoff.ms int 1000 0 .
        replica.fetch.max.bytes int 1048576 0 .
        replica.fetch.min.bytes int 1 - .
        replica.fetch.response.max.bytes int 10485760 0 .
        replica.fetch.wait.max.ms int 500 - .
        replica.high.watermark.checkpoint.interval.ms long 5000 - .
        replica.lag.time.max.ms long 30000 - .
        replica.selector.class string - - .
        replica.socket.receive.buffer.bytes int 65536 - .
        replica.socket.timeout.ms int 30000 - .
        replication.quota.window.num int 11 1 .
        replication.quota.window.size.seconds int 1 1 .
        unclean.leader.election.enable boolean false - *
    """),
    *_rows(NO_QUORUM, """
        broker.heartbeat.interval.ms int 2000 - .
        broker.session.timeout.ms int 9000 - .
        controller.quorum.append.linger.ms int 25 - .
        controller.quorum.auto.join.enable boolean false - .
        controller.quorum.election.backoff.max.ms int 1000 - .
        controller.quorum.election.timeout.ms int 1000 - .
        controller.quorum.fetch.max.bytes int 1048576 1 .
        controller.quorum.fetch.snapshot.max.bytes int 1048576 1 .
        controller.quorum.fetch.timeout.ms int 2000 - .
        controller.quorum.request.timeout.ms int 2000 - .
        controller.quorum.retry.backoff.ms int 20 0 .
        controller.socket.timeout.ms int 30000 - .
        initial.broker.registration.timeout.ms int 60000 - .
        metadata.log.segment.bytes int 1073741824 8388608 .
        metadata.log.segment.ms long 604800000 - .
        metadata.max.idle.interval.ms int 500 0 .
        metadata.max.retention.bytes long 104857600 - .
        metadata.max.retention.ms long 604800000 - .
        request.timeout.ms int 30000 - .
        socket.connection.setup.timeout.max.ms long 30000 - .
        socket.connection.setup.timeout.ms long 10000 - .
    """),
    _alone("controller.quorum.bootstrap.servers"),
    _alone("controller.quorum.voters"),
    *_rows(NO_REPORTERS, """
        kafka.metrics.polling.interval.secs int 10 1 .
        kafka.metrics.reporters list - - .
        metric.reporters list org.apache.kafka.common.metrics.JmxReporter - *
        metrics.num.samples int 2 1 .
        metrics.recording.level string INFO - .
        metrics.sample.window.ms long 30000 1 .
    """),
    *_rows("A push of a client's metrics has at most 1 MiB.", """
        telemetry.max.bytes int 1048576 1 .
    """),
    *_rows(NO_TIERS, """
        follower.fetch.last.tiered.offset.enable boolean false - *
        log.local.retention.bytes long -2 -2 *
        log.local.retention.ms long -2 -2 *
    """),
    *_rows("A transaction is aborted when its time is over.", """
        transaction.abort.timed.out.transaction.cleanup.interval.ms int 10000 1 .
    """),
    *_rows("A request that waits for the previous transaction continues as soon as that is complete.", """
        add.partitions.to.txn.retry.backoff.ms int 20 1 .
    """),
    *_rows("The log is read in pieces of 4 MiB.", """
        transaction.state.log.load.buffer.size int 5242880 1 .
    """),
    *_rows(NO_REPLICATION, """
        transaction.state.log.min.isr int 1 1 .
    """),
    _only("transaction.two.phase.commit.enable", "boolean", False, "a transaction has its timeout."),
    *_rows("Nodes log in to each other with a secret in the data directory.", """
        sasl.client.callback.handler.class class - - .
        sasl.login.callback.handler.class class - - .
        sasl.login.class class - - .
        sasl.login.connect.timeout.ms int - - .
        sasl.login.read.timeout.ms int - - .
        sasl.login.refresh.buffer.seconds short 300 0 *
        sasl.login.refresh.min.period.seconds short 60 0 *
        sasl.login.refresh.window.factor double 0.8 - *
        sasl.login.refresh.window.jitter double 0.05 - *
        sasl.login.retry.backoff.max.ms long 10000 - .
        sasl.login.retry.backoff.ms long 100 - .
        sasl.mechanism.controller.protocol string GSSAPI - .
        sasl.mechanism.inter.broker.protocol string GSSAPI - *
        sasl.oauthbearer.assertion.algorithm string RS256 - .
        sasl.oauthbearer.assertion.claim.aud string - - .
        sasl.oauthbearer.assertion.claim.exp.seconds int 300 - .
        sasl.oauthbearer.assertion.claim.iss string - - .
        sasl.oauthbearer.assertion.claim.jti.include boolean false - .
        sasl.oauthbearer.assertion.claim.nbf.seconds int 60 - .
        sasl.oauthbearer.assertion.claim.sub string - - .
        sasl.oauthbearer.assertion.file string - - .
        sasl.oauthbearer.assertion.private.key.file string - - .
        sasl.oauthbearer.assertion.private.key.passphrase password - - .
        sasl.oauthbearer.assertion.template.file string - - .
        sasl.oauthbearer.client.credentials.client.id string - - .
        sasl.oauthbearer.client.credentials.client.secret password - - .
        sasl.oauthbearer.jwt.retriever.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever - .
        sasl.oauthbearer.scope string - - .
        sasl.oauthbearer.token.endpoint.url string - - .
        security.inter.broker.protocol string PLAINTEXT - .
    """),
    *_rows("GSSAPI (Kerberos) is not supported.", """
        sasl.kerberos.kinit.cmd string /usr/bin/kinit - *
        sasl.kerberos.min.time.before.relogin long 60000 - *
        sasl.kerberos.principal.to.local.rules list DEFAULT - *
        sasl.kerberos.service.name string - - *
        sasl.kerberos.ticket.renew.jitter double 0.05 - *
        sasl.kerberos.ticket.renew.window.factor double 0.8 - *
    """),
    *_rows("Other groups than classic ones are not served yet.", """
        group.coordinator.rebalance.protocols list classic - .
    """),
    _only("alter.config.policy.class.name", "class", None, "classes of Java cannot be run."),
    _only("client.quota.callback.class", "class", None, "classes of Java cannot be run."),
    _only("config.providers", "list", (), "classes of Java cannot be run.", dynamic=True),
    _only("cordoned.log.dirs", "list", (), "there is one data directory.", dynamic=True),
    _only("create.topic.policy.class.name", "class", None, "classes of Java cannot be run."),
    _only("early.start.listeners", "list", None, "the authorizer is ready before any listener is."),
    _only("metadata.log.dir", "string", None, "the metadata log is in log.dirs."),
    _only("security.providers", "string", None, "classes of Java cannot be run."),
    _only("principal.builder.class", "class",
          "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
          "classes of Java cannot be run.", dynamic=True),
]  # fmt: skip

UNUSED_TOPIC = [
    *_rows(LEVEL, """
        compression.gzip.level int -1 - . compression.gzip.level
        compression.lz4.level int 9 1 . compression.lz4.level
        compression.zstd.level int 3 -131072 . compression.zstd.level
    """),
    *_rows("Files are rolled and made room for in the broker's own way.", """
        preallocate boolean false - . log.preallocate
        segment.jitter.ms long 0 0 . log.roll.jitter.ms
    """),
    _throttled_replicas("follower.replication.throttled.replicas"),
    _throttled_replicas("leader.replication.throttled.replicas"),
    *_rows(NO_TIERS, """
        local.retention.bytes long -2 -2 . log.local.retention.bytes
        local.retention.ms long -2 -2 . log.local.retention.ms
        remote.log.copy.disable boolean false - .
        remote.log.delete.on.disable boolean false - .
    """),
    ConfigKey("remote.storage.enable", "boolean", False, NO_TIERS, used=False,
        check=_refused("Tiered storage is not supported: remote.storage.enable must be false")),
    *_rows("One replica is always in sync.", """
        unclean.leader.election.enable boolean false - . unclean.leader.election.enable
    """),
]  # fmt: skip
