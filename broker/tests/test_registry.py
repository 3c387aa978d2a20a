"""What handlers are given, and what they may ask of their request."""

from __future__ import annotations

from typing import Any

import pytest

import barnabas.broker.apis  # noqa: F401  registers the handlers
from barnabas.broker.partitions import Partitions
from barnabas.broker.parts import Parts
from barnabas.broker.registry import APIS, Context, Handlers
from barnabas.broker.security.operations import CLUSTER, Operation, Resource, ResourceType
from barnabas.broker.security.principals import ANONYMOUS, Principal
from barnabas.broker.tests.conftest import Start


def test_a_handler_that_wants_what_no_broker_has_is_noticed_at_the_start() -> None:
    with pytest.raises(TypeError, match=r"the handler of \w+ wants what no broker has"):
        Handlers(Parts())


async def test_every_handler_finds_its_parts_in_a_broker(start: Start) -> None:
    async with start() as broker:
        handlers = Handlers(broker.node._parts)
        for api in APIS.values():
            assert handlers.find(api.key, api.versions.last).api is api
        assert handlers.find(18, 99).version == 0, "an unknown version of ApiVersions"
        assert isinstance(broker.node.partitions, Partitions)


class Strict:
    """An authorizer that lets one host describe topics."""

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        assert principal is ANONYMOUS
        return (host, operation, resource.type) == ("127.0.0.1", Operation.DESCRIBE, ResourceType.TOPIC)


class Caller:
    principal, host, authorizer = ANONYMOUS, "127.0.0.1", Strict()


def test_a_request_knows_who_asks_and_what_they_may_do() -> None:
    caller: Any = Caller()
    context = Context(caller, 0, 1, "client", 0.0)
    topic = Resource(ResourceType.TOPIC, "t")
    assert str(context.principal) == "User:ANONYMOUS"
    assert context.authorize(Operation.DESCRIBE, topic)
    assert not context.authorize(Operation.READ, topic)
    assert context.allowed(topic) == 1 << Operation.DESCRIBE
    assert context.allowed(CLUSTER) == 0
