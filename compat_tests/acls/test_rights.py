"""Apache Kafka answers as barnabas does, to who has the rights that the table names, and to who has not.

The same requests go to both, by the same users with the same ACLs. Compared are error codes, the names that an answer
reveals, and authorized operations. Run with --peer.
"""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.broker.log import EventLog
from barnabas.broker.node import Node
from barnabas.broker.registry import APIS
from barnabas.broker.security.authorizer import STANDARD
from barnabas.broker.security.principals import Principal
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.tests import rights
from barnabas.broker.tests.client import Client, Closed, connect, frame_of
from barnabas.broker.tests.conftest import until
from barnabas.wire.messages import create_acls, describe_acls
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import Message
from compat_tests.apache_kafka import ApacheKafka
from compat_tests.tools import missing

#: What differs, and why.
KNOWN = {
    "Fetch-1-CLUSTER-CLUSTER_ACTION": "there are no replicas: who says to be one reads as a consumer does",
    "Metadata-2-CLUSTER-CREATE": "a topic that is made is complete in the answer",
    "Metadata-2-TOPIC-CREATE": "a topic that is made is complete in the answer",
    "AlterConfigs-1-GROUP-ALTER_CONFIGS": "groups have no settings",
    "IncrementalAlterConfigs-1-GROUP-ALTER_CONFIGS": "groups have no settings",
    "DescribeQuorum-0-CLUSTER-DESCRIBE": "the names of listeners",
}
#: Names that are no resource's.
NOT_COMPARED = ".configs.name"
PASSWORD = "secret"
#: One without rights, and one who may describe all topics.
OUTSIDERS = "outsider", "watcher"
WATCHES = create_acls.AclCreation(2, "*", 3, "User:watcher", "*", 8, 3)
ONE_PARTITION = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
Ask = Callable[[str, Message, "int | None"], Awaitable[Any]]


def kafka_settings(users: list[str]) -> dict[str, str]:
    """A broker to which these users come with SASL/PLAIN."""
    known = " ".join(f'user_{user}="{PASSWORD}"' for user in ["admin", *users])
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f"{module} required "
        f'username="admin" password="{PASSWORD}" {known};',
        "authorizer.class.name": STANDARD,
        "super.users": "User:admin;User:ANONYMOUS",
        **ONE_PARTITION,
    }


async def log_in(port: int, user: str) -> Client:
    """A connection of a user."""
    client = await connect(port)
    await client.send_bytes(frame_of(SaslHandshakeRequest(mechanism="PLAIN"), 1))
    await client.receive_frame()
    token = f"\0{user}\0{PASSWORD}".encode()
    await client.send_bytes(frame_of(SaslAuthenticateRequest(auth_bytes=token), 1))
    answer = await client.receive_frame()
    assert answer[4:6] == b"\0\0", answer
    return client


async def answers(admin: Client, ask: Ask) -> dict[str, list[tuple[str, Any]]]:
    """What each case shows."""
    every = list(rights.cases())
    world = await rights.prepare(admin, every)
    assert rights.codes(await admin.ask(create_acls.CreateAclsRequest([WATCHES]))) == {0}
    wanted = 1 + sum(len(case.rights) for case in every)
    with trio.fail_after(60):
        while await acls_in_force(admin) < wanted:
            await trio.sleep(0.05)
    found = {}
    for case in every:
        found[case.id] = compared(await ask(case.user, rights.request_of(case, world), case.question.version))
    for name, version, request in without_rights(world):
        try:
            found[name] = compared(await ask(name.partition(" ")[0], request, version))
        except Closed:
            found[name] = [("connection", "closed")]
    return found


def compared(answer: Any) -> list[tuple[str, Any]]:
    return sorted((each for each in rights.shown(answer) if not each[0].endswith(NOT_COMPARED)), key=repr)


def without_rights(world: rights.World) -> Iterator[tuple[str, int, Message]]:
    """Every question in every version that has room for it, by who has no rights, or may just describe topics.

    It is asked about the topic that is there, and about one that is not: who may not know must not find out.
    """
    done = set()
    for case in rights.cases():
        first, last = APIS[case.question.request(world).__wire__.key].versions
        for version in range(first, last + 1):
            for name, topic_id in ((rights.TOPIC, world.topic_id), (rights.ABSENT, b"0123456789abcdef")):
                request = rights.about(case.question.request(world), name, topic_id)
                try:
                    asked = frame_of(request, version)
                except ProtocolError:
                    continue
                for user in OUTSIDERS:
                    if (user, asked) not in done:
                        done.add((user, asked))
                        yield f"{user} {case.api} {version} {name} {case.id}", version, request


async def acls_in_force(admin: Client) -> int:
    answer = await admin.ask(describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1))
    return sum(len(resource.acls) for resource in answer.resources)


async def of_barnabas(folder: Path) -> dict[str, list[tuple[str, Any]]]:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dir": str(folder),
        "authorizer.class.name": STANDARD,
        "super.users": "User:ANONYMOUS",
        "node.id": "1",
        **ONE_PARTITION,
    }
    node = Node(BrokerConfig(settings), EventLog(io.StringIO()))
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        port = node.bound[0].port

        async def ask(user: str, request: Message, version: int | None) -> Any:
            async with await connect(port) as client:
                mine = client.stream.socket.getsockname()[1]
                await until(lambda: any(each.port == mine for each in node.connections))
                next(each for each in node.connections if each.port == mine).known_as(Principal("User", user))
                return await client.ask(request, version)

        async with await connect(port) as admin:
            found = await answers(admin, ask)
        node.stop()
        await node.stopped.wait()
    return found


async def of_kafka(port: int) -> dict[str, list[tuple[str, Any]]]:
    async def ask(user: str, request: Message, version: int | None) -> Any:
        async with await log_in(port, user) as client:
            return await client.ask(request, version)

    async with await log_in(port, "admin") as admin:
        return await answers(admin, ask)


@pytest.mark.long
@pytest.mark.skipif(bool(missing("java")), reason=str(missing("java")))
def test_apache_kafka_answers_alike(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if not request.config.getoption("--peer"):
        pytest.skip("it is about Apache Kafka: run with --peer")
    ours = trio.run(of_barnabas, tmp_path / "barnabas")
    folder = tmp_path / "kafka"
    folder.mkdir()
    with ApacheKafka(folder, kafka_settings([*OUTSIDERS, *(case.user for case in rights.cases())])) as kafka:
        theirs = trio.run(of_kafka, kafka.port)
    different = {case: (ours[case], theirs[case]) for case in ours if ours[case] != theirs[case] and case not in KNOWN}
    assert not different, "\n".join(f"{case}\n  ours   {a}\n  theirs {b}" for case, (a, b) in different.items())
