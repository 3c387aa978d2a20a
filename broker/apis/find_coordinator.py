"""FindCoordinator (10), versions 0-6: this broker coordinates every group and transactional id.

`__consumer_offsets` is made when a group is first looked for, `__transaction_state` when a transactional id is. Share
groups have no coordinator yet; a client that asks for one gets INVALID_REQUEST.

Version 0: one group. Version 1: a key type (group or transaction) and an error message. Version 2: the same.
Version 3: only the encoding is new (flexible). Version 4: many keys in one request (KIP-699).
Version 5: TRANSACTION_ABORTABLE is possible (KIP-890); it is never given. Version 6: the key type share (KIP-932).
"""

from __future__ import annotations

from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.coordinators.transactions import Transactions
from barnabas.broker.identity import Identity
from barnabas.broker.net.order import GROUPS, METADATA, TRANSACTIONS
from barnabas.broker.registry import Context, api
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION = 0, 1


@api(FindCoordinatorRequest, FindCoordinatorResponse, uses=METADATA, changes=METADATA | GROUPS | TRANSACTIONS)
async def handle(
    context: Context, request: FindCoordinatorRequest, groups: Groups, transactions: Transactions, identity: Identity
) -> FindCoordinatorResponse:
    code, message = ErrorCode.NONE, None
    host, port = identity.advertised(context.connection.listener)
    node_id = identity.node_id
    try:
        if request.key_type == GROUP:
            await groups.ready()
        elif request.key_type == TRANSACTION:
            await transactions.ready()
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"no coordinator for key type {request.key_type} here")
    except KafkaError as error:
        is_known = request.key_type in (GROUP, TRANSACTION)
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_known else error.code
        message, node_id, host, port = str(error), -1, "", -1
    if context.version < 4:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=node_id, host=host, port=port)
    return FindCoordinatorResponse(
        error_message=None,
        coordinators=[
            Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=message)
            for key in request.coordinator_keys
        ],
    )
