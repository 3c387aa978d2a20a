"""Apache Kafka answers as barnabas does, both to users with the rights of the table and to users without them.

Both get the same requests from the same users with the same ACLs. The tests compare error codes, the names that an
answer reveals, and authorized operations. They run with --peer.
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
from barnabas.broker.security.authorizer import STANDARD
from barnabas.broker.security.principals import Principal
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.tests import rights
from barnabas.broker.tests.client import Client, Closed, connect, frame_of
from barnabas.broker.tests.conftest import until
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import create_acls, delete_acls, describe_acls
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.wire.types import Message
from compat_tests.apache_kafka import ApacheKafka
from compat_tests.tools import missing

pytestmark = pytest.mark.one_node(
    "it speaks to one node over connections of its own, which need not lead or coordinate what it asks for"
)

#: Names that no resource has.
NOT_COMPARED = ".configs.name"
PASSWORD = "secret"
ONE_PARTITION = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
#: ACLs that are refused, or only just allowed: (type, name, pattern, principal, host, operation, permission).
UNUSUAL = [
    create_acls.AclCreation(*fields)
    for fields in [
        (2, "odd", 3, "User:odd", "*", 3, 3),
        (2, "odd", 3, "User:odd", "*", 3, 3),
        (2, "odd", 4, "User:odd", "*", 3, 3),
        (2, "od", 4, "User:odd", "10.0.0.1", 2, 2),
        (2, "*", 3, "User:odd", "*", 13, 3),
        (3, "odd", 3, "User:odd, and more", "no address", 3, 2),
        (2, "", 3, "User:odd", "*", 3, 3),
        (2, "odd topic\n", 3, "User:odd", "*", 3, 3),
        (0, "odd", 3, "User:odd", "*", 3, 3),
        (1, "odd", 3, "User:odd", "*", 3, 3),
        (8, "odd", 3, "User:odd", "*", 3, 3),
        (2, "odd", 0, "User:odd", "*", 3, 3),
        (2, "odd", 1, "User:odd", "*", 3, 3),
        (2, "odd", 2, "User:odd", "*", 3, 3),
        (2, "odd", 5, "User:odd", "*", 3, 3),
        (2, "odd", 3, "User:odd", "*", 0, 3),
        (2, "odd", 3, "User:odd", "*", 1, 3),
        (2, "odd", 3, "User:odd", "*", 16, 3),
        (2, "odd", 3, "User:odd", "*", 3, 0),
        (2, "odd", 3, "User:odd", "*", 3, 1),
        (2, "odd", 3, "User:odd", "*", 3, 4),
        (2, "odd", 3, "odd", "*", 3, 3),
        (2, "odd", 3, "User:", "*", 3, 3),
        (2, "odd", 3, ":odd", "*", 3, 3),
        (2, "odd", 3, "", "*", 3, 3),
        (2, "odd", 3, "Group:odd", "*", 3, 3),
        (2, "odd", 3, "User:odd", "", 3, 3),
        (4, "kafka-cluster", 3, "User:odd", "*", 3, 3),
        (4, "cluster", 3, "User:odd", "*", 3, 3),
        (4, "kafka", 4, "User:odd", "*", 3, 3),
        (4, "kafka-cluster", 4, "User:odd", "*", 3, 3),
        (7, "User:odd", 3, "User:odd", "*", 13, 3),
        (6, "token", 3, "User:odd", "*", 8, 3),
        (5, "id", 3, "User:odd", "*", 15, 3),
    ]
]
#: For each filter, the matching ACLs are described, and then deleted.
FILTERS: list[tuple[int, str | None, int, str | None, str | None, int, int]] = [
    (0, None, 1, "User:odd", None, 1, 1),
    (1, None, 0, "User:odd", None, 1, 1),
    (1, None, 1, "User:odd", None, 0, 1),
    (1, None, 1, "User:odd", None, 1, 0),
    (9, None, 1, "User:odd", None, 1, 1),
    (1, None, 9, "User:odd", None, 1, 1),
    (1, None, 1, "User:odd", None, 99, 1),
    (1, None, 1, "User:odd", None, 1, 9),
    (1, "", 3, "User:odd", None, 1, 1),
    (2, "odd", 3, "User:odd", "10.0.0.1", 1, 1),
    (2, "od", 4, "User:odd", None, 3, 1),
    (2, "*", 3, "User:odd", None, 3, 1),
    (2, "oddity", 2, "User:odd", None, 1, 2),
    (2, "oddity", 2, "User:odd", None, 1, 1),
    (2, "odd", 1, "User:odd", None, 1, 1),
    (1, None, 1, "Group:odd", None, 1, 1),
    (1, None, 3, "User:odd, and more", None, 1, 1),
    (1, None, 1, "User:odd", "", 1, 1),
    (1, None, 1, "User:odd", None, 1, 1),
    (1, None, 1, "User:odd", None, 1, 1),
]
#: The known differences, and the reasons.
KNOWN = {
    "Metadata-2-CLUSTER-CREATE": "a topic that is made is complete in the answer",
    "Metadata-2-TOPIC-CREATE": "a topic that is made is complete in the answer",
    "AlterConfigs-1-GROUP-ALTER_CONFIGS": "groups have no settings",
    "IncrementalAlterConfigs-1-GROUP-ALTER_CONFIGS": "groups have no settings",
    "DescribeQuorum-0-CLUSTER-DESCRIBE": "the names of listeners",
}
Ask = Callable[[str, Message, "int | None"], Awaitable[Any]]


def kafka_settings(users: list[str]) -> dict[str, str]:
    """The settings of a Kafka broker to which these users log in with SASL/PLAIN."""
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
    """Log in as a user; returns the connection."""
    client = await connect(port)
    await client.send_bytes(frame_of(SaslHandshakeRequest(mechanism="PLAIN"), 1))
    await client.receive_frame()
    token = f"\0{user}\0{PASSWORD}".encode()
    await client.send_bytes(frame_of(SaslAuthenticateRequest(auth_bytes=token), 1))
    answer = await client.receive_frame()
    assert answer[4:6] == b"\0\0", answer
    return client


async def answers(admin: Client, ask: Ask) -> dict[str, list[tuple[str, Any]]]:
    """The answers to each case."""
    every = list(rights.cases())
    world = await rights.prepare(admin, every)
    wanted = 1 + sum(len(case.rights) for case in every)
    with trio.fail_after(60):
        while await acls_in_force(admin) < wanted:
            await trio.sleep(0.05)
    found = {}
    for case in every:
        found[case.id] = compared(await ask(case.user, rights.request_of(case, world), case.question.version))

    async def look(name: str, user: str, request: Message, version: int | None = None) -> Any:
        try:
            answer = await ask(user, request, version)
            found[name] = [*compared(answer), *sorted(acls_in(answer))]
        except Closed:
            answer = None
            found[name] = [("connection", "closed")]
        return answer

    for name, version, request in rights.without_rights(world):
        await look(name, name.partition(" ")[0], request, version)
    wanted, created = await acls_in_force(admin), set()  # some of the cases have changed it
    for number, acl in enumerate(UNUSUAL):
        answer = await look(f"CreateAcls {number} {acl}", "admin", create_acls.CreateAclsRequest([acl]))
        if answer is not None and not answer.results[0].error_code:
            created.add(repr(acl))
    wanted += len(created)
    for at, fields in enumerate(FILTERS):
        await until_in_force(admin, wanted)
        asked = delete_acls.DeleteAclsFilter(*fields)
        await look(f"DescribeAcls {at} {fields}", "admin", describe_acls.DescribeAclsRequest(*fields))
        answer = await look(f"DeleteAcls {at} {fields}", "admin", delete_acls.DeleteAclsRequest([asked]))
        if answer is not None:
            wanted -= len(answer.filter_results[0].matching_acls)
    return found


def acls_in(answer: Any) -> Iterator[tuple[str, Any]]:
    """The ACLs in an answer."""
    for resource in getattr(answer, "resources", ()):
        for acl in resource.acls:
            yield "acl", repr((resource.resource_type, resource.resource_name, resource.pattern_type, acl))
    for result in getattr(answer, "filter_results", ()):
        for acl in result.matching_acls:
            yield "acl", repr(acl)


def is_refused_better(ours: list[tuple[str, Any]], theirs: list[tuple[str, Any]]) -> bool:
    """Whether Kafka fails on a value that no ACL can have, and barnabas refuses it with the reason."""
    broken = theirs == [("connection", "closed")] or {code for _, code in theirs} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    return broken and {code for _, code in ours} == {ErrorCode.INVALID_REQUEST}


def compared(answer: Any) -> list[tuple[str, Any]]:
    return sorted((each for each in rights.shown(answer) if not each[0].endswith(NOT_COMPARED)), key=repr)


async def until_in_force(admin: Client, count: int) -> None:
    """Wait until there are `count` ACLs: Kafka answers before its brokers know of a change."""
    with trio.fail_after(60):
        while await acls_in_force(admin) != count:
            await trio.sleep(0.05)


async def acls_in_force(admin: Client) -> int:
    answer = await admin.ask(describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1))
    return sum(len(resource.acls) for resource in answer.resources)


async def of_barnabas(folder: Path) -> dict[str, list[tuple[str, Any]]]:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dir": str(folder),
        "authorizer.class.name": STANDARD,
        "super.users": "User:ANONYMOUS;User:admin",
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
    with ApacheKafka(folder, kafka_settings([*rights.OUTSIDERS, *(case.user for case in rights.cases())])) as kafka:
        theirs = trio.run(of_kafka, kafka.port)
    different = {
        case: (ours[case], theirs[case])
        for case in ours
        if ours[case] != theirs[case] and case not in KNOWN and not is_refused_better(ours[case], theirs[case])
    }
    assert not different, "\n".join(f"{case}\n  ours   {a}\n  theirs {b}" for case, (a, b) in different.items())
