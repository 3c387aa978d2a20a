"""`barnabas acls` and Kafka's own `kafka-acls`, against one broker: each sees the other's changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.broker.security.authorizer import STANDARD
from compat_tests.broker_process import Barnabas, Server
from compat_tests.cli.test_cli import run
from compat_tests.conftest import NewServer
from compat_tests.java import tools
from compat_tests.tools import missing

SETTINGS = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS;User:CN=ops,O=Example"}


@pytest.fixture(scope="module")
def secured(new_server: NewServer) -> Server:
    """A broker with an authorizer; the user of these commands is a super user."""
    server = new_server(SETTINGS)
    if not isinstance(server, Barnabas):
        pytest.skip("Apache Kafka's own tool has Apache Kafka's own tests")
    return server


def acls(server: Server, verb: str, *words: str, stdin: bytes = b"", status: int = 0) -> list[list[str]]:
    """The rows that a command prints, without the header."""
    said = run("acls", verb, *words, "-b", server.address, stdin=stdin, status=status)
    if status:
        return [said.split()]
    rows = [line.split() for line in said.splitlines()]
    return [row for row in rows if len(row) == 7 and row[6] in ("ALLOW", "DENY")]


def test_acls_are_added_listed_and_removed(secured: Server) -> None:
    alice = ["TOPIC", "orders", "LITERAL", "User:alice", "*"]
    assert acls(secured, "add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders") == [
        [*alice, "Read", "ALLOW"]
    ]
    deny = ("--deny-principal", "User:alice", "--deny-host", "10.0.0.1", "--deny-host", "10.0.0.2")
    acls(secured, "add", *deny, "--operation", "describe-configs", "--topic", "orders")
    assert len(acls(secured, "list", "--topic", "orders")) == 3
    assert acls(secured, "list", "--topic", "orders", "--principal", "User:bob") == []
    assert acls(secured, "list", "--topic", "order") == []
    remove = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    assert len(acls(secured, "remove", *remove, stdin=b"n\n")) == 1, "what would be removed"
    assert len(acls(secured, "list", "--topic", "orders")) == 3
    acls(secured, "remove", *remove, stdin=b"y\n")
    assert {row[6] for row in acls(secured, "list", "--topic", "orders")} == {"DENY"}
    acls(secured, "remove", "--topic", "orders", "--force")
    assert acls(secured, "list") == []


def test_roles_say_which_operations(secured: Server) -> None:
    who = ("--allow-principal", "User:p")
    made = acls(secured, "add", *who, "--producer", "--topic", "a", "--transactional-id", "x", "--idempotent")
    assert sorted((row[0], row[1], row[5]) for row in made) == [
        ("CLUSTER", "kafka-cluster", "IdempotentWrite"),
        ("TOPIC", "a", "Create"),
        ("TOPIC", "a", "Describe"),
        ("TOPIC", "a", "Write"),
        ("TRANSACTIONAL_ID", "x", "Describe"),
        ("TRANSACTIONAL_ID", "x", "Write"),
    ]
    prefixed = ("--resource-pattern-type", "prefixed")
    made = acls(secured, "add", *who, "--consumer", "--topic", "b", "--group", "g", *prefixed)
    assert sorted((row[0], row[2], row[5]) for row in made) == [
        ("GROUP", "PREFIXED", "Read"),
        ("TOPIC", "PREFIXED", "Describe"),
        ("TOPIC", "PREFIXED", "Read"),
    ]
    matching = acls(secured, "list", "--topic", "before", "--resource-pattern-type", "match")
    assert {row[1] for row in matching} == {"b"}
    acls(secured, "remove", "--topic", "b", "--group", "g", "--resource-pattern-type", "any", "--force")
    acls(secured, "remove", "--topic", "a", "--cluster", "--transactional-id", "x", "--force")
    assert acls(secured, "list") == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--topic", "t"), "Name a principal"),
        (("--allow-principal", "User:a"), "Name a resource"),
        (("--allow-principal", "alice", "--topic", "t"), "INVALID_REQUEST (Could not parse principal"),
        (("--allow-principal", "User:a", "--topic", "t", "--operation", "Clean"), "expected one of All, Read"),
        (("--allow-principal", "User:a", "--group", "g", "--operation", "Write"), "of a group there are Read"),
        (("--allow-principal", "User:a", "--consumer", "--topic", "t"), "--consumer needs --group"),
        (("--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "any"), "literal or prefixed"),
    ],
)
def test_what_cannot_be_is_one_line(secured: Server, words: tuple[str, ...], says: str) -> None:
    said = run("acls", "add", *words, "-b", secured.address, status=1)
    assert says in said
    assert len(said.splitlines()) == 1


@pytest.mark.skipif(bool(missing("java")), reason=str(missing("java")))
def test_kafkas_tool_sees_what_ours_does_and_the_other_way_round(secured: Server) -> None:
    at = ("--bootstrap-server", secured.address)
    made = acls(secured, "add", "--deny-principal", "User:m", "--topic", "mine", "--operation", "Write")
    assert [row[:2] for row in made] == [["TOPIC", "mine"]]
    listed = tools.run(tools.ACLS, *at, "--list", "--topic", "mine")
    assert "(principal=User:m, host=*, operation=WRITE, permissionType=DENY)" in listed.stdout
    consumer = ("--allow-principal", "User:k", "--consumer", "--topic", "theirs", "--group", "g")
    tools.run(tools.ACLS, *at, "--add", *consumer)
    assert len(acls(secured, "list", "--principal", "User:k")) == 3
    tools.run(tools.ACLS, *at, "--remove", "--topic", "mine", "--topic", "theirs", "--group", "g", "--force")
    assert acls(secured, "list") == []


def test_acls_outlive_a_kill(tmp_path: Path) -> None:
    with Barnabas(tmp_path, SETTINGS) as server:
        acls(server, "add", "--allow-principal", "User:alice", "--topic", "t")
        before = acls(server, "list")
        assert server.process is not None
        server.process.kill()
        server.process.wait()
        server.start()
        assert acls(server, "list") == before


def test_the_command_has_help() -> None:
    done = subprocess.run([sys.executable, "-m", "barnabas", "acls", "add", "--help"], capture_output=True, check=True)
    assert b"--allow-principal" in done.stdout
