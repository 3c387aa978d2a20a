"""FindCoordinator (10), versions 0-6: the leader of a key's partition coordinates its group or transactional id.

The first look-up of a group creates `__consumer_offsets`, the first one of a transactional id `__transaction_state`.
Share groups have no coordinator yet; a client that asks for one gets INVALID_REQUEST.

Version 0: one group. Version 1: a key type (group or transaction) and an error message. Version 2: the same.
Version 3: only the encoding is new (flexible). Version 4: many keys in one request (KIP-699).
Version 5: TRANSACTION_ABORTABLE is possible (KIP-890); it is never given. Version 6: the key type share (KIP-932).
"""

from __future__ import annotations

from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.coordinators.transactions import Transactions
from barnabas.broker.net.order import GROUPS, METADATA, TRANSACTIONS
from barnabas.broker.nodes import Nodes
from barnabas.broker.partitions import Partitions
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION = 0, 1
RIGHTS = {GROUP: DESCRIBE_GROUP, TRANSACTION: DESCRIBE_TRANSACTIONAL_ID}


@api(FindCoordinatorRequest, FindCoordinatorResponse, uses=METADATA, changes=METADATA | GROUPS | TRANSACTIONS)
async def handle(
    context: Context,
    request: FindCoordinatorRequest,
    groups: Groups,
    transactions: Transactions,
    partitions: Partitions,
    nodes: Nodes,
) -> FindCoordinatorResponse:
    right = RIGHTS.get(request.key_type)
    keys = [request.key] if context.version < 4 else request.coordinator_keys
    refused = {key for key in keys if right is not None and not context.may(right, key)}
    code, message = ErrorCode.NONE, None
    try:
        if right is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"no coordinator for key type {request.key_type} here")
        if len(refused) < len(keys):
            await (groups.ready() if request.key_type == GROUP else transactions.ready())
    except KafkaError as error:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if right is not None else error.code
        message = str(error)

    def coordinator(key: str) -> Coordinator:
        if right is not None and key in refused:
            return Coordinator(key=key, node_id=-1, port=-1, error_code=right.refusal, error_message=None)
        if code:
            return Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=message)
        coordinated = groups.coordinator if request.key_type == GROUP else transactions.coordinator
        topic = OFFSETS_TOPIC if request.key_type == GROUP else TRANSACTIONS_TOPIC
        leader = partitions.leader(topic, coordinated.partition_of(key))
        node = nodes.find(leader.node, context.connection.listener) if leader is not None else None
        if node is None:
            told, unavailable = "no broker coordinates it now", ErrorCode.COORDINATOR_NOT_AVAILABLE
            return Coordinator(key=key, node_id=-1, port=-1, error_code=unavailable, error_message=told)
        return Coordinator(key=key, node_id=node.id, host=node.host, port=node.port, error_message=None)

    found = [coordinator(key) for key in keys]
    if context.version < 4:
        (one,) = found
        return FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )
    return FindCoordinatorResponse(error_message=None, coordinators=found)
