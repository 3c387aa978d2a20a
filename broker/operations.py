"""Authorized operations (KIP-430): what a client may do with a resource, as a bit for each of Kafka's operations.

There is no authorizer, so everybody may do all that there is for the kind of resource.
"""

from __future__ import annotations

from collections.abc import Iterable

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = range(3, 10)
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(10, 13)


def _bits(operations: Iterable[int]) -> int:
    return sum(1 << operation for operation in operations)


OF_TOPIC = _bits((READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS))
OF_GROUP = _bits((READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS))
OF_CLUSTER = _bits((CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE))
#: In answers to who did not ask.
NOT_ASKED = -(2**31)
NO_AUTHORIZER = "No Authorizer is configured on the broker"
