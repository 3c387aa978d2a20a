"""The arguments of handlers, and what they may ask of their request."""

from __future__ import annotations

from typing import Any

import pytest

import barnabas.broker.apis  # noqa: F401  registers the handlers
from barnabas.broker.partitions import Partitions
from barnabas.broker.parts import Parts
from barnabas.broker.registry import APIS, Context, Handlers
from barnabas.broker.security.operations import CREATE_TOPIC, DESCRIBE_TOPIC, Right
from barnabas.broker.security.principals import ANONYMOUS, Principal
from barnabas.broker.tests.conftest import Start
from barnabas.wire.acls import Operation, ResourceType
from barnabas.wire.errors import ErrorCode
from barnabas.wire.schema import ProtocolError


def test_a_handler_that_wants_what_no_broker_has_is_noticed_at_the_start() -> None:
    with pytest.raises(TypeError, match=r"the handler of \w+ takes a part that does not exist"):
        Handlers(Parts())


async def test_every_handler_finds_its_parts_in_a_broker(start: Start) -> None:
    async with start() as broker:
        handlers = Handlers(broker.node._parts)
        for api in APIS.values():
            if api.for_nodes:  # there is one of these
                with pytest.raises(ProtocolError, match="unknown API key"):
                    handlers.find(api.key, api.versions.last)
            else:
                assert handlers.find(api.key, api.versions.last).api is api
        assert handlers.find(18, 99).version == 0, "an unknown version of ApiVersions"
        assert isinstance(broker.node.partitions, Partitions)


class Strict:
    """An authorizer that lets one host describe topics."""

    version = 0

    def allows(
        self, principal: Principal, host: str, right: Right, name: str, *, api: str = "", quiet: bool = False
    ) -> bool:
        assert principal is ANONYMOUS
        return (host, right) == ("127.0.0.1", DESCRIBE_TOPIC)

    def allows_any(self, principal: Principal, host: str, right: Right, *, api: str = "") -> bool:
        return False


class Caller:
    principal, host, authorizer = ANONYMOUS, "127.0.0.1", Strict()


def context_of(api: str) -> Context:
    caller: Any = Caller()
    return Context(caller, next(each for each in APIS.values() if each.name == api), 0, 1, "client", 0.0)


def test_a_request_knows_who_asks_and_what_they_may_do() -> None:
    context = context_of("Metadata")
    assert str(context.principal) == "User:ANONYMOUS"
    assert context.may(DESCRIBE_TOPIC, "t")
    assert not context.may(CREATE_TOPIC, "t")
    assert context.refusal(CREATE_TOPIC, "t") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert context.allowed(ResourceType.TOPIC, "t") == 1 << Operation.DESCRIBE
    assert context.allowed(ResourceType.CLUSTER) == 0


def test_a_handler_that_asks_for_what_the_table_does_not_say_is_noticed() -> None:
    with pytest.raises(RuntimeError, match="does not say that EndTxn needs TOPIC DESCRIBE"):
        context_of("EndTxn").may(DESCRIBE_TOPIC, "t")
