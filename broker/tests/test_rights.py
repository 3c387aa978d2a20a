"""The table of rights, with each need of each API: clients with the right are served, and others get its refusal."""

from __future__ import annotations

from barnabas.broker.registry import APIS
from barnabas.broker.security.authorizer import STANDARD
from barnabas.broker.security.principals import Principal
from barnabas.broker.security.table import NEEDS
from barnabas.broker.tests import rights
from barnabas.broker.tests.conftest import Start

SETTINGS = {"authorizer_class_name": STANDARD, "super_users": "User:ANONYMOUS", "node_id": "1"}


def test_every_need_has_its_question() -> None:
    asked = {(api, number) for api, questions in rights.QUESTIONS.items() for number in range(len(questions))}
    served = {api.name for api in APIS.values()}
    needed = {(api, number) for api in served for number in range(len(NEEDS[api]))}
    assert asked == needed - rights.NOT_ASKED


async def test_rights_are_asked_for_as_the_table_says(start: Start) -> None:
    every = list(rights.cases())
    wrong = []
    async with start(**SETTINGS) as broker, await broker.client() as admin:
        world = await rights.prepare(admin, every)
        (connection,) = broker.node.connections
        for case in every:
            connection.known_as(Principal("User", case.user))
            answer = await admin.ask(rights.request_of(case, world), case.question.version)
            try:
                rights.judge(case, answer)
            except AssertionError as error:
                wrong.append(f"{case.id}: {error}")
    assert wrong == []


async def test_who_has_no_rights_is_answered_in_every_version(start: Start) -> None:
    async with start(**SETTINGS) as broker, await broker.client() as admin:
        world = await rights.prepare(admin, [])
        (connection,) = broker.node.connections
        for name, version, request in rights.without_rights(world):
            connection.known_as(Principal("User", name.partition(" ")[0]))
            await admin.ask(request, version)
        assert "authorizer.failed" not in broker.log


async def test_a_refusal_does_not_say_whether_a_topic_is_there(start: Start) -> None:
    outsider, watcher = rights.OUTSIDERS
    said: dict[tuple[str, int, str], dict[str, object]] = {}
    async with start(**SETTINGS) as broker, await broker.client() as admin:
        world = await rights.prepare(admin, [])
        (connection,) = broker.node.connections
        for name, version, request in rights.without_rights(world):
            user, api, _, topic, case = name.split(" ")
            if user == watcher or rights.names_ids(request):
                continue
            connection.known_as(Principal("User", outsider))
            answer = await admin.ask(request, version)
            told = [(path, "" if value == topic else value) for path, value in rights.shown(answer)]
            said.setdefault((api, version, case), {})[topic] = told
    pairs = [each for each in said.values() if len(each) == 2]
    assert len(pairs) > 100
    assert all(each[rights.TOPIC] == each[rights.ABSENT] for each in pairs)
