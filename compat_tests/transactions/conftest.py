"""A broker, a client as producer, and a topic for one test."""

from __future__ import annotations

import re

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from compat_tests.broker_process import Server
from compat_tests.conftest import NewServer
from compat_tests.tools import missing
from compat_tests.transactions.processes import CLIENTS


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if reason := missing(name):
        pytest.skip(reason)
    return name


@pytest.fixture
def server(new_server: NewServer) -> Server:
    return new_server({})


@pytest.fixture
def new_topic(server: Server, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions for one test."""
    name = re.sub(r"\W", ".", request.node.name)
    admin = KafkaAdminClient(bootstrap_servers=server.address)
    admin.create_topics([NewTopic(name, 2, 1)])
    admin.close()
    return name


@pytest.fixture
def topic(client: str, new_topic: str) -> str:
    """A topic of two partitions for a test of each client."""
    return new_topic
