"""Apache Kafka's tools that look after a cluster, against one node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compat_tests.broker_process import Barnabas, Server
from compat_tests.driver import Driver
from compat_tests.java import tools
from compat_tests.java.driver import JavaDriver
from compat_tests.java.test_tools import run
from compat_tests.waiting import until

DRIVER = JavaDriver

pytestmark = pytest.mark.usefixtures("client")


def refused(server: Server, main: str, *arguments: str) -> str:
    """The error of a tool that must fail."""
    done = tools.run(main, "--bootstrap-server", server.address, *arguments)
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


def test_features(server: Server) -> None:
    told = run(server, tools.FEATURES, "describe")
    assert "Feature: metadata.version" in told
    assert "FinalizedVersionLevel" in told
    if isinstance(server, Barnabas):
        assert "was upgraded to 7" in run(server, tools.FEATURES, "upgrade", "--feature", "metadata.version=7")


@pytest.mark.one_node("the other nodes are observers")
def test_metadata_quorum(server: Server) -> None:
    status = run(server, tools.QUORUM, "describe", "--status")
    assert "LeaderId:               1" in status
    assert "MaxFollowerLag:         0" in status
    rows = run(server, tools.QUORUM, "describe", "--replication").splitlines()[1:]
    assert [row.split()[-1] for row in rows if row.strip()] == ["Leader"]


def test_leader_election(other: Driver, server: Server) -> None:
    other.create_topic("elected", 2)
    place = ("--topic", "elected", "--partition", "1")
    assert "already elected" in run(server, tools.ELECTIONS, "--election-type", "preferred", *place)
    run(server, tools.ELECTIONS, "--election-type", "preferred", "--all-topic-partitions")


@pytest.mark.long
def test_reassignments(other: Driver, server: Server, tmp_path: Path) -> None:
    other.create_topic("moved", 1)
    assert "No partition reassignments found" in run(server, tools.REASSIGNMENTS, "--list")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [1]}]}))
    told = run(server, tools.REASSIGNMENTS, "--reassignment-json-file", str(plan), "--execute", "--throttle", "1000")
    assert "Successfully started partition reassignment for moved-0" in told
    told = ""

    def is_complete() -> bool:
        nonlocal told
        told = run(server, tools.REASSIGNMENTS, "--reassignment-json-file", str(plan), "--verify")
        return "moved-0 is completed" in told

    until(is_complete, "the partition is moved")  # with several nodes its old leader closes it first
    assert "Clearing topic-level throttles" in told


@pytest.mark.long
def test_client_quotas(server: Server) -> None:
    user = ("--entity-type", "users", "--entity-name", "alice")
    run(server, tools.CONFIGS, "--alter", *user, "--add-config", "consumer_byte_rate=1000,request_percentage=50")
    told = run(server, tools.CONFIGS, "--describe", "--entity-type", "users")
    assert "Quota configs for user-principal 'alice' are" in told
    assert "consumer_byte_rate=1000.0" in told
    run(server, tools.CONFIGS, "--alter", *user, "--delete-config", "consumer_byte_rate,request_percentage")
    assert "alice" not in run(server, tools.CONFIGS, "--describe", "--entity-type", "users")


def test_settings_of_a_broker(server: Server) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    run(server, tools.CONFIGS, "--alter", *broker, "--add-config", "num.io.threads=9,log.cleaner.threads=2")
    told = run(server, tools.CONFIGS, "--describe", *broker)
    assert "num.io.threads=9" in told
    assert "log.cleaner.threads=2" in told
    run(server, tools.CONFIGS, "--alter", *broker, "--delete-config", "num.io.threads,log.cleaner.threads")


@pytest.mark.long
def test_the_brokers_logger(server: Server) -> None:
    logger = ("--entity-type", "broker-loggers", "--entity-name", "1")
    run(server, tools.CONFIGS, "--alter", *logger, "--add-config", "root=ERROR")
    assert "root=ERROR" in run(server, tools.CONFIGS, "--describe", *logger)
    run(server, tools.CONFIGS, "--alter", *logger, "--add-config", "root=INFO")


def test_what_is_not_served_says_so(server: Server) -> None:
    assert "No Authorizer is configured" in refused(server, tools.ACLS, "--list")
    assert run(server, tools.CLIENT_METRICS, "--list").strip() == ""
