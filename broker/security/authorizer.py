"""Who decides what a client may do.

Source: KIP-11.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.broker.security.operations import Operation, Resource
from barnabas.broker.security.principals import Principal

NO_AUTHORIZER = "No Authorizer is configured on the broker"


class Authorizer(Protocol):
    """Decides about each operation of each client. It must not wait."""

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether `principal`, whose address is `host`, may do this."""


class AllowAll:
    """Everybody may do everything."""

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        return True
