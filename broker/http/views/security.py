"""Transactions, users and ACLs, as Kafka's APIs describe them."""

from __future__ import annotations

from barnabas.broker.http.asking import Asker, Broker, check
from barnabas.broker.http.messages import Request, Response, json_answer
from barnabas.broker.http.views.given import number
from barnabas.broker.http.views.lists import page_of, those
from barnabas.wire.acls import Operation, PatternType, Permission, ResourceType
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_acls import AclDescription, DescribeAclsRequest, DescribeAclsResource
from barnabas.wire.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from barnabas.wire.messages.list_transactions import ListTransactionsRequest, TransactionState

MOST_ROWS = 200
_ANY = 1  # resource type and operation in a filter
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


async def transactions(asker: Asker, broker: Broker, request: Request) -> Response:
    """A page of transactional ids, the open ones first. Query: filter, start."""
    wanted, start = request.query.get("filter", "").lower(), number(request.query, "start", 0)
    answer = await asker.ask(ListTransactionsRequest())
    check(answer.error_code, "the list of transactions")
    found: list[TransactionState] = await those(
        answer.transaction_states, lambda each: wanted in each.transactional_id.lower()
    )

    def order(each: TransactionState) -> tuple[bool, str]:
        return each.transaction_state != "Ongoing", each.transactional_id

    page = [each.transactional_id for each in await page_of(found, order, start=start, limit=MOST_ROWS)]
    answers = (await asker.ask(DescribeTransactionsRequest(transactional_ids=page))).transaction_states
    described = {each.transactional_id: each for each in answers}
    now = broker.clock.wall_ms()
    rows = [
        {
            "id": each.transactional_id,
            "state": each.transaction_state,
            "producer_id": each.producer_id,
            "epoch": each.producer_epoch,
            "timeout_ms": each.transaction_timeout_ms,
            "age_ms": now - each.transaction_start_time_ms if each.transaction_start_time_ms > 0 else None,
            "partitions": [
                {"topic": topic.topic, "partitions": list(topic.partitions)[:100]} for topic in each.topics[:100]
            ],
        }
        for each in (described[name] for name in page)
        if not each.error_code
    ]
    return json_answer({"transactions": rows, "matched": len(found), "start": start})


async def users(asker: Asker, broker: Broker, request: Request) -> Response:
    """A page of users with SCRAM credentials. Query: start."""
    start = number(request.query, "start", 0)
    answer = await asker.ask(DescribeUserScramCredentialsRequest(users=None))
    check(answer.error_code, "the users", answer.error_message)
    rows = [
        {
            "name": each.user,
            "credentials": [
                {"mechanism": _MECHANISMS.get(info.mechanism, str(info.mechanism)), "iterations": info.iterations}
                for info in each.credential_infos
            ],
        }
        for each in await page_of(answer.results, lambda each: each.user, start=start, limit=MOST_ROWS)
    ]
    return json_answer({"users": rows, "matched": len(answer.results), "start": start})


async def acls(asker: Asker, broker: Broker, request: Request) -> Response:
    """A page of ACLs. Query: filter (of principal or resource), start. `enforced` says whether they count."""
    wanted, start = request.query.get("filter", "").lower(), number(request.query, "start", 0)
    everything = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=Permission.ANY,
    )
    answer = await asker.ask(everything)
    if answer.error_code == ErrorCode.SECURITY_DISABLED:
        return json_answer({"acls": [], "matched": 0, "start": 0, "enforced": False})
    check(answer.error_code, "the ACLs", answer.error_message)
    found: list[tuple[DescribeAclsResource, AclDescription]] = await those(
        ((resource, acl) for resource in answer.resources for acl in resource.acls),
        lambda each: wanted in each[0].resource_name.lower() or wanted in each[1].principal.lower(),
    )

    def order(each: tuple[DescribeAclsResource, AclDescription]) -> tuple[object, ...]:
        resource, acl = each
        return acl.principal, resource.resource_type, resource.resource_name, acl.operation

    rows = [
        {
            "resource": ResourceType(resource.resource_type).name,
            "name": resource.resource_name,
            "pattern": PatternType(resource.pattern_type).name,
            "principal": acl.principal,
            "host": acl.host,
            "operation": Operation(acl.operation).name,
            "permission": Permission(acl.permission_type).name,
        }
        for resource, acl in await page_of(found, order, start=start, limit=MOST_ROWS)
    ]
    return json_answer({"acls": rows, "matched": len(found), "start": start, "enforced": True})
