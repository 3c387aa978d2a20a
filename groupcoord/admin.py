"""Administrators' requests about groups of any type: ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.groupcoord.group import Group, Surroundings
from barnabas.groupcoord.log.shard import Shards
from barnabas.groupcoord.log.store import told
from barnabas.groupcoord.offsets.committed import NO_OFFSETS, OffsetManager
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

_DEAD = "Dead"  # the state of a group that does not exist
_NOT_FOUND_SINCE = 6  # from this DescribeGroups version on, a missing group is an error


class Admin:
    def __init__(self, shards: Shards, offsets: OffsetManager, around: Surroundings) -> None:
        self._shards = shards
        self._offsets = offsets
        self._outbox = around.outbox

    def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """ListGroups, filtered by state and type. Upper and lower case are the same in both."""
        if any(not shard.is_loaded for shard in self._shards.by_partition.values()):
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        states = {state.strip().lower() for state in request.states_filter}
        types = {kind.strip().lower() for kind in request.types_filter}
        return ListGroupsResponse(
            groups=[
                ListedGroup(
                    group_id=group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state_name,
                    group_type=group.group_type,
                )
                for group_id, group in self._shards.groups.items()
                if (not states or group.state_name.lower() in states) and (not types or group.group_type in types)
            ]
        )

    def describe(self, request: DescribeGroupsRequest, version: int) -> DescribeGroupsResponse:
        """DescribeGroups. The authorized operations stay at their default; a caller that knows them fills them in."""
        group_ids = dict.fromkeys(request.groups)  # each one once, because an answer can be large
        return DescribeGroupsResponse(groups=[self._describe(group_id, version) for group_id in group_ids])

    def delete_groups(self, request: DeleteGroupsRequest, *, reply: Callable[[DeleteGroupsResponse], None]) -> None:
        """DeleteGroups: delete groups without members, and their offsets. The reply comes when that is durable."""
        group_ids = list(dict.fromkeys(request.groups_names))
        results: dict[str, ErrorCode] = {}

        def one_done(group_id: str, error: ErrorCode) -> None:
            results[group_id] = error
            if len(results) == len(group_ids):
                listed = [DeletableGroupResult(group_id=each, error_code=results[each]) for each in group_ids]
                self._outbox.put(reply, DeleteGroupsResponse(results=listed))

        with self._outbox:
            if not group_ids:
                self._outbox.put(reply, DeleteGroupsResponse())
            for group_id in group_ids:
                try:
                    self._delete(group_id, one_done)
                except KafkaError as refusal:
                    one_done(group_id, refusal.code)

    def _describe(self, group_id: str, version: int) -> DescribedGroup:
        try:
            group = self._shards.of(group_id).groups.get(group_id)
            if group is None:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            return group.describe()
        except KafkaError as refusal:
            message = refusal.message if version >= _NOT_FOUND_SINCE else None
            if refusal.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                return DescribedGroup(error_code=refusal.code, error_message=message, group_id=group_id)
            code = refusal.code if version >= _NOT_FOUND_SINCE else ErrorCode.NONE
            return DescribedGroup(error_code=code, error_message=message, group_id=group_id, group_state=_DEAD)

    def check_delete(self, group_id: str) -> Group:
        """Raises KafkaError if the group does not exist or has members."""
        group = self._shards.of(group_id).groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"no group {group_id}")
        if not group.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"it is {group.state_name}")
        return group

    def _delete(self, group_id: str, done: Callable[[str, ErrorCode], None]) -> None:
        group, shard = self.check_delete(group_id), self._shards.of(group_id)
        offsets = shard.offsets.get(group_id) or NO_OFFSETS
        self._offsets.delete_group(shard, group, offsets.places(), lambda error: done(group_id, told(error)))
