"""Configuration as admin clients read and change it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from barnabas.broker.settings.ssl_keys import SSL_KEYS
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import alter_configs as legacy
from barnabas.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from compat_tests.apache_kafka import ApacheKafka
from compat_tests.broker_process import Server
from compat_tests.pipe import Pipe
from compat_tests.tools import missing
from compat_tests.waiting import until

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
FROM_TOPIC, FROM_BROKER, FROM_DEFAULT_BROKER, FROM_FILE, FROM_DEFAULT, FROM_LOGGER = range(1, 7)

OK, UNKNOWN_TOPIC = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
INVALID_CONFIG, INVALID_REQUEST = ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST


class Change(NamedTuple):
    """One IncrementalAlterConfigs, and its answer."""

    kind: int
    name: str
    key: str
    operation: int
    value: str | None
    answer: ErrorCode


CHANGES = [
    Change(TOPIC, "changed", "no.such.key", DELETE, None, OK),
    Change(TOPIC, "changed", "no.such.key", SET, "1", INVALID_CONFIG),
    Change(TOPIC, "changed", "no.such.key", APPEND, "1", INVALID_CONFIG),
    Change(TOPIC, "changed", "retention.ms", SET, None, INVALID_REQUEST),
    Change(TOPIC, "changed", "retention.ms", SUBTRACT, "1", INVALID_CONFIG),
    Change(TOPIC, "changed", "retention.ms", DELETE, "5", OK),
    Change(TOPIC, "changed", "remote.storage.enable", SET, "true", INVALID_CONFIG),
    Change(TOPIC, "changed", "remote.storage.enable", SET, "false", OK),
    Change(TOPIC, "changed", "remote.log.copy.disable", SET, "true", OK),
    Change(TOPIC, "changed", "local.retention.ms", SET, "1000", OK),
    Change(TOPIC, "changed", "local.retention.ms", SET, "-3", INVALID_CONFIG),
    Change(TOPIC, "changed", "leader.replication.throttled.replicas", SET, "0:1", OK),
    Change(TOPIC, "changed", "leader.replication.throttled.replicas", APPEND, "1:1", OK),
    Change(TOPIC, "changed", "follower.replication.throttled.replicas", SET, "*", OK),
    Change(TOPIC, "changed", "follower.replication.throttled.replicas", SET, "some", INVALID_CONFIG),
    Change(TOPIC, "changed", "cleanup.policy", SET, "", OK),
    Change(TOPIC, "changed", "cleanup.policy", DELETE, "", OK),
    Change(TOPIC, "nosuch", "retention.ms", SET, "1", UNKNOWN_TOPIC),
    Change(BROKER, "1", "no.such.key", SET, "1", OK),
    Change(BROKER, "1", "no.such.key", DELETE, None, OK),
    Change(BROKER, "", "no.such.key", SET, "1", OK),
    Change(BROKER, "", "no.such.key", DELETE, None, OK),
    Change(BROKER, "1", "leader.replication.throttled.rate", SET, "1000", OK),
    Change(BROKER, "1", "leader.replication.throttled.rate", DELETE, None, OK),
    Change(BROKER, "1", "num.partitions", SET, "2", INVALID_REQUEST),
    Change(BROKER, "1", "num.partitions", DELETE, None, OK),
    Change(BROKER, "1", "num.io.threads", SET, "many", INVALID_REQUEST),
    Change(BROKER, "1", "num.io.threads", SET, "0", INVALID_REQUEST),
    Change(BROKER, "1", "num.io.threads", SET, None, INVALID_REQUEST),
    Change(BROKER, "1", "num.io.threads", SET, "9", OK),
    Change(BROKER, "1", "num.io.threads", DELETE, None, OK),
    Change(BROKER, "7", "num.io.threads", SET, "9", INVALID_REQUEST),
    Change(BROKER, "one", "num.io.threads", SET, "9", INVALID_REQUEST),
    Change(LOGGER, "1", "root", SET, "WARN", OK),
    Change(LOGGER, "1", "root", SET, "LOUD", INVALID_CONFIG),
    Change(LOGGER, "1", "root", SET, None, INVALID_REQUEST),
    Change(LOGGER, "1", "root", DELETE, None, INVALID_REQUEST),
    Change(LOGGER, "1", "root", APPEND, "WARN", INVALID_REQUEST),
    Change(LOGGER, "1", "no.such.logger", SET, "WARN", INVALID_CONFIG),
    Change(LOGGER, "", "root", SET, "WARN", INVALID_REQUEST),
    Change(LOGGER, "1", "root", SET, "INFO", OK),
    Change(64, "x", "key", SET, "value", INVALID_REQUEST),
]

# Settings that Kafka's consumers and brokers had while they used ZooKeeper.
HISTORIC = {"offsets.storage", "dual.commit.enabled", "zookeeper.connect", "zookeeper.session.timeout.ms"}
# Settings that Kafka leaves to its authorizer, and does not describe.
OF_AUTHORIZER = {"super.users", "allow.everyone.if.no.acl.found"}
# Settings that Kafka describes for features that are not served here, or only in part.
NOT_SERVED = (
    *("delegation.token.", "group.consumer.", "group.share.", "group.streams.", "remote.", "sasl.", "share."),
    "security.inter.broker.protocol",
)
# Kafka can open and close listeners while it runs, with these keys.
FIXED_HERE = {"listeners", "listener.security.protocol.map", *(key.name for key in SSL_KEYS if not key.dynamic)}


@pytest.fixture(scope="module")
def apache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Apache Kafka, to compare with."""
    if reason := missing("java"):
        pytest.skip(reason)
    if request.config.getoption("--peer"):
        pytest.skip("nothing to compare Apache Kafka with")
    judge = ApacheKafka(tmp_path_factory.mktemp("apache"))
    judge.start()
    yield judge
    judge.stop()


def create(pipe: Pipe, name: str, configs: dict[str, str] | None = None) -> None:
    given = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=given)
    answer = pipe.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    assert answer.topics[0].error_code == OK, answer
    until(lambda: not describe(pipe, TOPIC, name).error_code, f"{name} is there")


def describe(pipe: Pipe, kind: int, name: str) -> Any:
    asked = DescribeConfigsRequest(
        [DescribeConfigsResource(kind, name, None)], include_synonyms=True, include_documentation=True
    )
    return pipe.ask(asked, 4).results[0]


def entries(pipe: Pipe, kind: int, name: str) -> dict[str, Any]:
    return {entry.name: entry for entry in describe(pipe, kind, name).configs}


def replace(pipe: Pipe, kind: int, name: str, values: dict[str, str | None]) -> Any:
    given = [legacy.AlterableConfig(key, value) for key, value in values.items()]
    asked = legacy.AlterConfigsRequest([legacy.AlterConfigsResource(kind, name, given)])
    return pipe.ask(asked).responses[0]


def change(pipe: Pipe, kind: int, name: str, key: str, operation: int, value: str | None) -> ErrorCode:
    asked = AlterConfigsResource(kind, name, [AlterableConfig(key, operation, value)])
    return ErrorCode(pipe.ask(IncrementalAlterConfigsRequest([asked])).responses[0].error_code)


def test_what_is_described_of_a_topic_can_be_set(server: Server) -> None:
    with Pipe(server.port) as pipe:
        create(pipe, "round", {"retention.ms": "1234567", "cleanup.policy": "compact,delete"})
        before = {key: entry.value for key, entry in entries(pipe, TOPIC, "round").items()}
        assert None not in before.values()
        answer = replace(pipe, TOPIC, "round", before)
        assert (answer.error_code, answer.error_message) == (OK, None)
        until(
            lambda: entries(pipe, TOPIC, "round")["segment.ms"].config_source == FROM_TOPIC, "the change is to be seen"
        )
        assert {key: entry.value for key, entry in entries(pipe, TOPIC, "round").items()} == before
        assert replace(pipe, TOPIC, "round", before).error_code == OK
        assert replace(pipe, TOPIC, "round", {}).error_code == OK
        until(lambda: entries(pipe, TOPIC, "round")["retention.ms"].config_source == FROM_DEFAULT, "all are defaults")


def test_what_is_described_of_a_broker_can_be_set(server: Server) -> None:
    with Pipe(server.port) as pipe:
        before = {
            key: entry.value
            for key, entry in entries(pipe, BROKER, "1").items()
            # Kafka describes these as changeable; here they are fixed, or a broker has none of its own.
            if not entry.read_only
            and entry.value is not None
            and not entry.is_sensitive
            and not key.startswith(("ssl.", "sasl.", "listener", "min.insync", "principal", "metric."))
        }
        assert {"log.cleaner.threads", "background.threads", "num.io.threads", "message.max.bytes"} <= before.keys()
        answer = replace(pipe, BROKER, "1", before)
        assert (answer.error_code, answer.error_message) == (OK, None)
        until(lambda: entries(pipe, BROKER, "1")["num.io.threads"].config_source == FROM_BROKER, "the change is there")
        after = entries(pipe, BROKER, "1")
        assert {key: after[key].value for key in before} == before
        assert replace(pipe, BROKER, "1", {}).error_code == OK
        shared = {key: entry.value for key, entry in entries(pipe, BROKER, "").items()}
        assert shared == {"min.insync.replicas": "1"}
        assert replace(pipe, BROKER, "", shared).error_code == OK


@pytest.mark.parametrize("asked", CHANGES, ids=lambda c: f"{c.kind}-{c.name}-{c.key}-{c.operation}-{c.value}")
def test_changes_are_answered_as_kafka_does(asked: Change, server: Server) -> None:
    with Pipe(server.port) as pipe:
        if asked.name == "changed" and describe(pipe, TOPIC, "changed").error_code:
            create(pipe, "changed")
        assert change(pipe, asked.kind, asked.name, asked.key, asked.operation, asked.value) is asked.answer


def test_keys_of_a_broker_that_nobody_knows_are_kept_and_not_shown(server: Server) -> None:
    with Pipe(server.port) as pipe:
        assert change(pipe, BROKER, "1", "plugin.password", SET, "secret") is OK
        until(lambda: "plugin.password" in entries(pipe, BROKER, "1"), "the key is there")
        found = entries(pipe, BROKER, "1")["plugin.password"]
        assert (found.value, found.is_sensitive, found.config_source, found.config_type) == (None, True, FROM_BROKER, 0)
        assert change(pipe, BROKER, "1", "plugin.password", DELETE, None) is OK


def test_the_level_of_the_log_is_described_as_it_was_set(server: Server) -> None:
    with Pipe(server.port) as pipe:
        for level in ("ERROR", "INFO"):
            assert change(pipe, LOGGER, "1", "root", SET, level) is OK
            root = entries(pipe, LOGGER, "1")["root"]
            assert (root.value, root.config_source, root.config_type, root.read_only) == (level, FROM_LOGGER, 0, False)
        assert describe(pipe, LOGGER, "").error_code == INVALID_REQUEST
        assert describe(pipe, LOGGER, "7").error_code == INVALID_REQUEST
        assert replace(pipe, LOGGER, "1", {"root": "WARN"}).error_code == INVALID_REQUEST


def test_minimum_of_replicas_is_a_dynamic_default(server: Server) -> None:
    with Pipe(server.port) as pipe:
        create(pipe, "minimum")
        found = entries(pipe, TOPIC, "minimum")["min.insync.replicas"]
        assert (found.value, found.config_source) == ("1", FROM_DEFAULT_BROKER)
        first = found.synonyms[0]
        assert (first.name, first.source) == ("min.insync.replicas", FROM_DEFAULT_BROKER)
        assert entries(pipe, BROKER, "1")["min.insync.replicas"].config_source == FROM_DEFAULT_BROKER


def shape(entry: Any) -> tuple[int, bool, int, tuple[str, ...]]:
    """The properties of a key, without its value."""
    return entry.config_type, entry.read_only, entry.config_source, tuple(each.name for each in entry.synonyms)


def test_every_key_is_of_kafkas_type(server: Server, apache: Server) -> None:
    """Names, types, read-only flags, sources and synonyms of all keys are compared with those of Apache Kafka."""
    with Pipe(server.port) as ours, Pipe(apache.port) as theirs:
        for pipe in (ours, theirs):
            create(pipe, "shape")
        found, expected = entries(ours, TOPIC, "shape"), entries(theirs, TOPIC, "shape")
        assert {key for key in found if not key.startswith("barnabas.")} == expected.keys()
        assert {key: shape(found[key]) for key in expected} == {key: shape(entry) for key, entry in expected.items()}

        found, expected = entries(ours, BROKER, "1"), entries(theirs, BROKER, "1")
        served = {key for key in expected if not key.startswith(NOT_SERVED)}
        ours_alone = ("barnabas.", "cluster.id", *NOT_SERVED)
        assert {key for key in found if not key.startswith(ours_alone)} - HISTORIC - OF_AUTHORIZER == served
        differing = {
            key: (shape(found[key]), shape(expected[key]))
            for key in served - FIXED_HERE
            if shape(found[key])[:2] != shape(expected[key])[:2]
        }
        assert not differing
        unset = {key for key in served if FROM_FILE not in (found[key].config_source, expected[key].config_source)}
        assert {key: found[key].config_source for key in unset} == {key: expected[key].config_source for key in unset}
