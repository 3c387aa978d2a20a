"""Rights: which operations each kind of resource has. A `Right` is one operation on one kind of resource.

There is one object for each right, made here, so that it can be compared and looked up by identity.

Source: KIP-11 (authorizer), KIP-373 (tokens of other users), KIP-430 (authorized operations).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.wire.acls import OPERATIONS_OF, Operation, ResourceType
from barnabas.wire.errors import ErrorCode

#: Authorized operations in an answer to a client that did not ask for them.
NOT_ASKED = -(2**31)
#: The error for a client without the right to a resource of this kind.
REFUSALS: Mapping[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


@dataclass(frozen=True, eq=False, slots=True)
class Right:
    """One operation on one kind of resource, and the error for a client without this right."""

    operation: Operation
    type: ResourceType
    refusal: ErrorCode

    def __str__(self) -> str:
        return f"{self.type.name} {self.operation.name}"


_RIGHTS = {
    (operation, kind): Right(operation, kind, REFUSALS[kind])
    for kind, operations in OPERATIONS_OF.items()
    for operation in operations
}


def right(operation: Operation, kind: ResourceType) -> Right:
    """The object of this right. Raises KeyError for an operation that this kind of resource does not have."""
    return _RIGHTS[operation, kind]


def rights_of(kind: ResourceType) -> tuple[Right, ...]:
    """All rights to a kind of resource."""
    return tuple(_RIGHTS[operation, kind] for operation in OPERATIONS_OF[kind])


READ_TOPIC = right(Operation.READ, ResourceType.TOPIC)
WRITE_TOPIC = right(Operation.WRITE, ResourceType.TOPIC)
CREATE_TOPIC = right(Operation.CREATE, ResourceType.TOPIC)
DELETE_TOPIC = right(Operation.DELETE, ResourceType.TOPIC)
ALTER_TOPIC = right(Operation.ALTER, ResourceType.TOPIC)
DESCRIBE_TOPIC = right(Operation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_TOPIC_CONFIGS = right(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
ALTER_TOPIC_CONFIGS = right(Operation.ALTER_CONFIGS, ResourceType.TOPIC)
READ_GROUP = right(Operation.READ, ResourceType.GROUP)
DELETE_GROUP = right(Operation.DELETE, ResourceType.GROUP)
DESCRIBE_GROUP = right(Operation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_GROUP_CONFIGS = right(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP)
ALTER_GROUP_CONFIGS = right(Operation.ALTER_CONFIGS, ResourceType.GROUP)
CREATE_IN_CLUSTER = right(Operation.CREATE, ResourceType.CLUSTER)
ALTER_CLUSTER = right(Operation.ALTER, ResourceType.CLUSTER)
DESCRIBE_CLUSTER = right(Operation.DESCRIBE, ResourceType.CLUSTER)
CLUSTER_ACTION = right(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS = right(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_CLUSTER_CONFIGS = right(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
IDEMPOTENT_WRITE = right(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
WRITE_TRANSACTIONAL_ID = right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID = right(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
TWO_PHASE_COMMIT = right(Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TOKEN = right(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN)
CREATE_TOKENS = right(Operation.CREATE_TOKENS, ResourceType.USER)
DESCRIBE_TOKENS = right(Operation.DESCRIBE_TOKENS, ResourceType.USER)
