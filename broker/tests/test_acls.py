"""ACLs in a broker: they apply at once, also to open connections; they are kept, bounded, and imported from Kafka."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.broker.clock import Clock
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import METADATA_TOPIC, MetadataImage
from barnabas.broker.metadata.records import decode_snapshot
from barnabas.broker.security import acls as acl_module
from barnabas.broker.security.acls import Acls, record_of
from barnabas.broker.security.audit import Audit
from barnabas.broker.security.authorizer import STANDARD, AclAuthorizer
from barnabas.broker.security.operations import WRITE_TOPIC
from barnabas.broker.security.principals import ANONYMOUS, DRIVER, Principal
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.keys import ConfigError
from barnabas.broker.tests.client import Client, batch_of, connect, produce_request
from barnabas.broker.tests.conftest import Running, Start
from barnabas.broker.tests.kafka_folder import KafkaFolder
from barnabas.broker.tests.sasl_client import log_in_plain
from barnabas.scripts.cli import main
from barnabas.storage.data_dir import DataDir
from barnabas.wire.acls import Acl
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.wire.messages.describe_acls import DescribeAclsRequest
from barnabas.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.records.cluster_metadata import RemoveAccessControlEntryRecord
from barnabas.wire.types import replace

ON = {"authorizer_class_name": STANDARD, "super_users": "User:ANONYMOUS"}
TOPIC, LITERAL, PREFIXED, DENY, ALLOW = 2, 3, 4, 2, 3
ALL, READ, WRITE, DESCRIBE = 2, 3, 4, 8
EVERY = DescribeAclsRequest(1, None, 1, None, None, 1, 1)
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def acl(name: str = "t", operation: int = READ, permission: int = ALLOW, **fields: Any) -> AclCreation:
    given = {"type": TOPIC, "pattern": LITERAL, "principal": "User:alice", "host": "*", **fields}
    return AclCreation(given["type"], name, given["pattern"], given["principal"], given["host"], operation, permission)


async def create(client: Client, *acls: AclCreation) -> list[int]:
    answer = await client.ask(CreateAclsRequest(list(acls)))
    return [each.error_code for each in answer.results]


async def delete(client: Client, name: str | None = None, **fields: Any) -> list[str]:
    """Delete the ACLs that match a filter. Returns the names of their resources."""
    wanted = DeleteAclsFilter(1, name, fields.get("pattern", 1), fields.get("principal"), None, 1, 1)
    (answer,) = (await client.ask(DeleteAclsRequest([wanted]))).filter_results
    assert answer.error_code == 0
    return sorted(each.resource_name for each in answer.matching_acls)


async def described(client: Client) -> set[tuple[Any, ...]]:
    answer = await client.ask(EVERY)
    return {
        (r.resource_type, r.resource_name, r.pattern_type, a.principal, a.host, a.operation, a.permission_type)
        for r in answer.resources
        for a in r.acls
    }


def fields_of(*acls: AclCreation) -> set[tuple[Any, ...]]:
    return {tuple(getattr(each, field) for field in each.__struct_fields__) for each in acls}


@contextmanager
def known_as(broker: Running, client: Client, name: str) -> Iterator[None]:
    """During this block, the client of a connection has another name."""
    port = client.stream.socket.getsockname()[1]
    connection = next(each for each in broker.node.connections if each.port == port)
    connection.known_as(Principal("User", name))
    yield
    connection.known_as(ANONYMOUS)


async def test_an_acl_is_in_force_at_once_on_a_connection_that_stands(start: Start) -> None:
    async with start(**ON) as broker, await broker.client() as admin, await broker.client() as client:
        await admin.create_topic("t")
        await client.ask(MetadataRequest(topics=[]))
        with known_as(broker, client, "alice"):
            assert (await client.produce("t", batch_of(b"v"))).error_code == DENIED
            assert await create(admin, acl(operation=WRITE)) == [0]
            assert (await client.produce("t", batch_of(b"v"))).error_code == 0
            assert (await client.fetch("t")).error_code == DENIED
            assert await create(admin, acl(operation=WRITE, permission=DENY)) == [0]
            assert (await client.produce("t", batch_of(b"v"))).error_code == DENIED
            assert await delete(admin, "t") == ["t", "t"]
            assert (await client.produce("t", batch_of(b"v"))).error_code == DENIED
        assert "authorizer.denied principal=User:alice result=Denied operation=WRITE host=127.0.0.1" in broker.log


async def test_requests_behind_a_change_of_acls_go_by_it(start: Start) -> None:
    async with start(**ON, allow_everyone_if_no_acl_found="true") as broker, await broker.client() as client:
        await client.create_topic("t")
        with known_as(broker, client, "alice"):
            deny = acl(operation=WRITE, permission=DENY)
            await client.send(CreateAclsRequest([deny]))  # alice is allowed to: there is no ACL for the cluster
            await client.send(produce_request("t", batch_of(b"v")), 9)
            assert [each.error_code for each in (await client.receive()).results] == [0]
            assert (await client.receive()).responses[0].partition_responses[0].error_code == DENIED


async def test_a_fetch_session_tells_of_quiet_partitions_that_may_not_be_read_any_more(start: Start) -> None:
    async with start(**ON) as broker, await broker.client() as admin, await broker.client() as client:
        for name in ("t", "u"):
            await admin.create_topic(name)
            assert await create(admin, acl(name)) == [0]
        await client.ask(MetadataRequest(topics=[]))
        topics = [FetchTopic(n, partitions=[FetchPartition(0, partition_max_bytes=1000)]) for n in ("t", "u")]
        with known_as(broker, client, "alice"):
            first = await client.ask(FetchRequest(session_epoch=0, topics=topics), 12)
            again = FetchRequest(session_id=first.session_id, session_epoch=1)
            assert (await client.ask(again, 12)).responses == [], "both are quiet"
            assert await delete(admin, "t") == ["t"]
            again = FetchRequest(session_id=first.session_id, session_epoch=2)
            (told,) = (await client.ask(again, 12)).responses
            assert (told.topic, told.partitions[0].error_code) == ("t", DENIED)


async def test_a_fetch_that_waits_gets_nothing_that_may_not_be_read_any_more(start: Start) -> None:
    async with start(**ON) as broker, await broker.client() as admin, await broker.client() as client:
        await admin.create_topic("t")
        assert await create(admin, acl()) == [0]
        await client.ask(MetadataRequest(topics=[]))
        with known_as(broker, client, "alice"):
            part = FetchPartition(0, partition_max_bytes=1000)
            waiting = FetchRequest(
                max_wait_ms=60_000, min_bytes=1, session_epoch=-1, topics=[FetchTopic("t", partitions=[part])]
            )
            await client.send(waiting, 12)
            assert await delete(admin, "t") == ["t"]
            assert (await admin.produce("t", batch_of(b"secret"))).error_code == 0
            answer = (await client.receive()).responses[0].partitions[0]
            assert (answer.error_code, answer.records) == (DENIED, b"")


async def test_acls_are_kept_by_the_log_and_by_snapshots(start: Start, tmp_path: Path) -> None:
    kept = [acl(), acl("pre", pattern=PREFIXED), acl("x", WRITE, DENY, principal="User:a, b", host="10.0.0.1")]
    async with start(**ON) as broker, await broker.client() as client:
        assert await create(client, *kept, acl("gone")) == [0, 0, 0, 0]
        assert await delete(client, "gone") == ["gone"]
        assert "acls.added acls=4 by=User:ANONYMOUS host=127.0.0.1" in broker.log
        assert "acls.removed acls=1 by=User:ANONYMOUS host=127.0.0.1" in broker.log
    async with start(**ON) as broker, await broker.client() as client:
        assert await described(client) == fields_of(*kept)
        await client.create_topic("t")
        assert await broker.node.metadata_snapshots.take() is not None
        assert await delete(client, "pre") == ["pre"]
        (snapshot,) = (tmp_path / "data" / "__cluster_metadata-0").glob("*.checkpoint")
        records = decode_snapshot(snapshot.read_bytes())
        assert sum(type(each).__name__ == "AccessControlEntryRecord" for each in records) == 3
    async with start(**ON) as broker, await broker.client() as client:
        assert await described(client) == fields_of(kept[0], kept[2])


async def test_an_acl_that_is_there_is_not_written_again(start: Start) -> None:
    async with start(**ON) as broker, await broker.client() as client:
        assert await create(client, acl(), acl()) == [0, 0]
        end = broker.node.metadata.log.log_end_offset
        assert await create(client, acl()) == [0]
        assert broker.node.metadata.log.log_end_offset == end
        assert await described(client) == fields_of(acl())


async def test_a_wrong_acl_does_not_stop_those_beside_it(start: Start) -> None:
    async with start(**ON) as broker, await broker.client() as client:
        invalid = ErrorCode.INVALID_REQUEST
        asked = [acl(), acl(""), acl(operation=1), acl("cluster", type=4), acl(principal="alice"), acl("u")]
        assert await create(client, *asked) == [0, invalid, invalid, invalid, invalid, 0]
        assert await described(client) == fields_of(acl(), acl("u"))


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
async def test_a_filter_with_a_value_of_later_versions_finds_nothing(start: Start, field: str) -> None:
    async with start(**ON) as broker, await broker.client() as client:
        assert await create(client, acl()) == [0]
        later = await client.ask(replace(EVERY, **{field: 99}))
        assert (later.error_code, later.resources) == (0, [])
        unknown = await client.ask(replace(EVERY, **{field: 0}))
        assert unknown.error_code == ErrorCode.INVALID_REQUEST


async def test_acls_and_their_texts_are_bounded(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.apis.create_acls.MAX_ACLS", 3)
    monkeypatch.setattr("barnabas.broker.apis.create_acls.MAX_AT_ONCE", 6)
    monkeypatch.setattr("barnabas.broker.apis.delete_acls.MAX_AT_ONCE", 2)
    too_many, invalid = ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_REQUEST
    async with start(**ON) as broker, await broker.client() as client:
        assert await create(client, *(acl(f"t{n}") for n in range(5))) == [0, 0, 0, too_many, too_many]
        assert await create(client, acl("t0"), acl("new")) == [0, too_many]
        assert await create(client, *(acl(f"t{n}") for n in range(7))) == [invalid] * 7
        longest = acl_module.MAX_NAME
        for long in (acl("x" * (longest + 1)), acl(principal="User:" + "x" * longest), acl(host="h" * 256)):
            assert await create(client, long) == [invalid]
        every = DeleteAclsFilter(1, None, 1, None, None, 1, 1)
        (answer,) = (await client.ask(DeleteAclsRequest([every]))).filter_results
        assert answer.error_code == invalid, "more than may go at once"
        assert len(await described(client)) == 3


async def test_without_an_authorizer_acls_are_kept_and_the_log_says_that_they_are_not_enforced(start: Start) -> None:
    async with start(**ON) as broker, await broker.client() as client:
        await client.create_topic("t")
        assert await create(client, acl(permission=DENY)) == [0]
    async with start() as broker, await broker.client() as client:
        with known_as(broker, client, "alice"):
            assert (await client.fetch("t")).error_code == 0
            assert (await client.ask(EVERY)).error_code == ErrorCode.SECURITY_DISABLED
        assert "acls.not.enforced acls=1" in broker.log
    async with start(**ON) as broker, await broker.client() as client:
        assert len(await described(client)) == 1


async def test_a_producer_id_is_for_who_may_write_any_topic(start: Start) -> None:
    async with start(**ON) as broker, await broker.client() as admin, await broker.client() as client:
        await client.ask(MetadataRequest(topics=[]))
        asked = InitProducerIdRequest(transactional_id=None)
        with known_as(broker, client, "alice"):
            assert (await client.ask(asked)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert await create(admin, acl("pre", WRITE, pattern=PREFIXED)) == [0]
            assert (await client.ask(asked)).error_code == 0
            assert await create(admin, acl("p", WRITE, DENY, pattern=PREFIXED)) == [0]
            assert (await client.ask(asked)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer", "of Kafka with ZooKeeper: set it to org"),
        ("authorizer.class.name", "com.example.Mine", "classes of Java cannot be run: set it to org"),
        ("super.users", "admin", "a principal as TYPE:NAME"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_remedy(key: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        BrokerConfig({key: value})


def test_acls_of_a_kafka_directory_come_over(tmp_path: Path) -> None:
    kafka, target = KafkaFolder(tmp_path / "kafka"), tmp_path / "ours"
    kept, gone = Acl(TOPIC, "t", LITERAL, "User:a", "*", READ, ALLOW), Acl(TOPIC, "u", 4, "User:a", "*", READ, DENY)
    kafka.write(record_of(b"1" * 16, kept), record_of(b"2" * 16, gone))
    kafka.write(RemoveAccessControlEntryRecord(id=b"2" * 16))
    assert main(["import-kafka-logs", str(kafka.path), "--data-dir", str(target)]) == 0

    async def look() -> MetadataImage:
        async with DataDir.open(target, node_id=1) as directory:
            await directory.load()
            image = MetadataImage(1, Clock())
            image.load(directory.vnodes[METADATA_TOPIC, 0], directory.snapshots(METADATA_TOPIC, 0))
            return image

    acls = trio.run(look).acls
    assert kept in acls
    assert len(acls) == 1


async def test_tokens_of_others_are_for_who_has_the_rights(start: Start) -> None:
    more = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule"
        ' required user_alice="a" user_bob="b";',
        "delegation.token.secret.key": "the key of tokens",
    }
    async with start(more=more, **ON) as broker, await broker.client() as admin:
        at = broker.port_of("SASL_PLAINTEXT")
        async with await connect(at) as alice, await connect(at) as bob:
            await log_in_plain(alice, "alice", "a")
            await log_in_plain(bob, "bob", "b")
            of_alice = CreateDelegationTokenRequest("User", "alice")
            assert (await bob.ask(of_alice)).error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            assert await create(admin, acl("User:alice", 13, principal="User:bob", type=7)) == [0]
            assert (await bob.ask(of_alice)).error_code == 0
            first = await alice.ask(CreateDelegationTokenRequest())
            everything = DescribeDelegationTokenRequest(owners=None)

            async def seen() -> int:
                return len((await bob.ask(everything)).tokens)

            assert await seen() == 1, "the one that bob has asked for"
            assert await create(admin, acl(first.token_id, DESCRIBE, principal="User:bob", type=6)) == [0]
            assert await seen() == 2
            assert await delete(admin, first.token_id) == [first.token_id]
            assert await seen() == 1
            assert await create(admin, acl("User:alice", 14, principal="User:bob", type=7)) == [0]
            assert await seen() == 2


def test_the_streams_driver_may_do_everything() -> None:
    log = EventLog(io.StringIO())
    authorizer = AclAuthorizer(Acls(), "", False, Audit(log, lambda: 0.0), log)
    assert authorizer.allows(DRIVER, "127.0.0.1", WRITE_TOPIC, "t")
    assert not authorizer.allows(Principal("User", DRIVER.name), "127.0.0.1", WRITE_TOPIC, "t")
