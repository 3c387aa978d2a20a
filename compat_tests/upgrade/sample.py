"""Make the data directory that a release leaves: `python -m compat_tests.upgrade.sample`, once for each release.

It writes `samples/VERSION.tar.xz`: the data directory of a broker of this source tree, and `state.json`, its content as
clients saw it before it stopped. The sample has, for these reasons:

    plain          segments that have been rolled, with batches in each codec, keys, headers, and times
    compacted      a compacted topic, some of whose keys are deleted
    shortened      records deleted from the front (DeleteRecords)
    again          a topic that was deleted, and made again with less in it
    moved          transactions: committed, aborted, and one that is left open
    readings       what a query topic (hot) and a stream (averages) read; the stream has a window open
    groups, an ACL, a user, a quota, settings of the broker and of topics
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import tarfile
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from barnabas.client.cluster import Cluster
from barnabas.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from compat_tests.broker_process import Barnabas
from compat_tests.streams.support import (
    BASE,
    SENSORS,
    SETTINGS,
    Reading,
    make_stream,
    results,
    send,
    wait_for_state,
    windows,
)
from compat_tests.upgrade.state import state
from compat_tests.waiting import until

SAMPLES = Path(__file__).parent / "samples"
STATE = "state.json"
OPEN_TO_ALL = {
    **SETTINGS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "offsets.retention.minutes": "2147483647",  # samples grow old: their offsets must not expire
}
STREAM = "SELECT _wstart, device, sum(temp) AS s, count(*) AS c FROM readings PARTITION BY device INTERVAL(10s)"
#: The records that the stream has read. Its first window has closed; the second one is not complete.
FIRST = [Reading(BASE + 1000 * n, "ab"[n % 2], n, 0) for n in range(15)]


def make(folder: Path) -> None:
    """Make a data directory in `folder`/data, and `folder`/state.json."""
    broker = Barnabas(folder, OPEN_TO_ALL)
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.address})
        _topics(admin)
        _plain(broker.address)
        _compacted(broker.address)
        _transactions(broker.address)
        for future in admin.delete_records([TopicPartition("shortened", 0, 7)]).values():
            future.result()
        _again(admin, broker.address)
        _groups(broker.address)
        _settings(admin, broker.address)
        _queries(broker)
        (folder / STATE).write_text(json.dumps(state(broker.address), indent=1))
        status = broker.stop()
        assert status == 0, broker.log_tail()
    finally:
        broker.kill()


def _topics(admin: AdminClient) -> None:
    topics = [
        NewTopic("plain", 2, config={"segment.bytes": "4096", "index.interval.bytes": "256"}),
        NewTopic("compacted", 1, config={"cleanup.policy": "compact"}),
        NewTopic("shortened", 1),
        NewTopic("again", 1),
        NewTopic("moved", 1),
        NewTopic("readings", 1, config=SENSORS),
    ]
    for future in admin.create_topics(topics).values():
        future.result()


def _plain(server: str) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": server, "compression.type": codec, "enable.idempotence": True})
        for number in range(60):
            headers: list[tuple[str, str | bytes | None]] = [("codec", codec), ("empty", None)]
            producer.produce(
                "plain",
                f"{codec} {number} {'x' * number}".encode(),
                f"key {number % 7}".encode(),
                number % 2,
                timestamp=BASE + number,
                headers=headers,
            )
            if number % 10 == 9:
                assert producer.flush(60) == 0
    producer = Producer({"bootstrap.servers": server})
    for number in range(20):
        producer.produce("shortened", f"{number}".encode(), partition=0)
    assert producer.flush(60) == 0


def _compacted(server: str) -> None:
    producer = Producer({"bootstrap.servers": server})
    for number in range(50):
        key = f"{number % 5}".encode()
        producer.produce("compacted", None if number >= 48 else f"{number}".encode(), key, 0)
    assert producer.flush(60) == 0


def _transactions(server: str) -> None:
    for name, ends in (("committed", "commit"), ("aborted", "abort"), ("left open", "")):
        producer = Producer({"bootstrap.servers": server, "transactional.id": name})
        producer.init_transactions(60)
        producer.begin_transaction()
        for number in range(3):
            producer.produce("moved", f"{name} {number}".encode(), partition=0)
        assert producer.flush(60) == 0
        if ends:
            (producer.commit_transaction if ends == "commit" else producer.abort_transaction)(60)


def _again(admin: AdminClient, server: str) -> None:
    producer = Producer({"bootstrap.servers": server})
    for word in (b"before 1", b"before 2", b"before 3"):
        producer.produce("again", word, partition=0)
    assert producer.flush(60) == 0
    admin.delete_topics(["again"])["again"].result()
    admin.create_topics([NewTopic("again", 1)])["again"].result()
    producer = Producer({"bootstrap.servers": server})
    producer.produce("again", b"after", partition=0)
    assert producer.flush(60) == 0


def _groups(server: str) -> None:
    consumer = Consumer({"bootstrap.servers": server, "group.id": "readers", "enable.auto.commit": False})
    offsets = [TopicPartition("plain", 0, 17, "half way"), TopicPartition("plain", 1, 4), TopicPartition("moved", 0, 3)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def _settings(admin: AdminClient, server: str) -> None:
    acl = AclBinding(
        ResourceType.TOPIC,
        "pla",
        ResourcePatternType.PREFIXED,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([acl])[acl].result()
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", scram, b"alice's secret")])[
        "alice"
    ].result()
    bound = ConfigEntry("log.retention.bytes", "123456789", incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[bound])
    admin.incremental_alter_configs([broker])[broker].result()
    with Cluster(server) as cluster:
        quota = EntryData([EntityData("user", "alice")], [OpData("producer_byte_rate", 1e6, False)])
        answer = cluster.controller(AlterClientQuotasRequest([quota], False), AlterClientQuotasResponse)
        assert not answer.entries[0].error_code, answer


def _queries(broker: Barnabas) -> None:
    make_stream(broker, "averages", 1, STREAM)
    admin = AdminClient({"bootstrap.servers": broker.address})
    hot = NewTopic("hot", 1, config={"barnabas.query": "SELECT device, temp FROM readings WHERE temp > 7"})
    admin.create_topics([hot])["hot"].result()
    send(broker, "readings", FIRST)
    until(lambda: len(results(broker, "hot", 1)) == 7, "the query topic has its records", 240)
    wait_for_state(broker, "averages", "RUNNING")
    until(
        lambda: len(results(broker, "averages", 1)) == len(windows(FIRST[:10], 10_000, 10_000)), "a window closes", 240
    )


def main() -> int:
    """Write the archive of this version."""
    SAMPLES.mkdir(exist_ok=True)
    archive = SAMPLES / f"{importlib.metadata.version('barnabas')}.tar.xz"
    if archive.exists():
        print(f"{archive} is there: what a release has left is not made again", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        make(made)
        with tarfile.open(archive, "w:xz") as tar:
            tar.add(made / "data", "data")
            tar.add(made / STATE, STATE)
    print(f"{archive}: {archive.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
