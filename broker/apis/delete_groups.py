"""DeleteGroups (42), versions 0-2: answered when the group's removal is durable (KIP-229).

Version 0: all fields. Version 1: the same. Version 2: only the encoding is new (flexible).
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.coordinators.groups import Groups, Reply
from barnabas.broker.coordinators.refused import split
from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.order import GROUPS, MEMBERS, OFFSETS
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DELETE_GROUP
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.wire.streams.keys import is_stream
from barnabas.wire.types import replace


@api(DeleteGroupsRequest, DeleteGroupsResponse, uses=GROUPS | MEMBERS | OFFSETS, changes=GROUPS | OFFSETS)
def handle(
    context: Context, request: DeleteGroupsRequest, groups: Groups
) -> DeleteGroupsResponse | DelayedResponse | Awaitable[DeleteGroupsResponse]:
    if any(map(is_stream, request.groups_names)):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return DeleteGroupsResponse(results=[DeletableGroupResult(name, code) for name in request.groups_names])
    allowed, refused = split(request.groups_names, lambda group_id: context.may(DELETE_GROUP, group_id))
    results = [DeletableGroupResult(name, DELETE_GROUP.refusal) for name in dict.fromkeys(refused)]
    if refused:
        request = replace(request, groups_names=allowed)
    if groups.elsewhere is not None:
        return _completed(groups.elsewhere.delete_groups(request), results)
    reply = _Reply(results)
    groups.coordinator.delete_groups(request, reply=reply)
    return reply.now_or_later()


async def _completed(
    asked: Awaitable[DeleteGroupsResponse], refused: list[DeletableGroupResult]
) -> DeleteGroupsResponse:
    answer = await asked
    return replace(answer, results=[*answer.results, *refused])


class _Reply(Reply[DeleteGroupsResponse]):
    """Adds the groups that the client may not delete."""

    __slots__ = ("_refused",)

    def __init__(self, refused: list[DeletableGroupResult]) -> None:
        super().__init__()
        self._refused = refused

    def __call__(self, answer: DeleteGroupsResponse) -> None:
        super().__call__(replace(answer, results=[*answer.results, *self._refused]))
