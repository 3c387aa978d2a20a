"""Decides what a client may do: super users, the streams driver and other nodes everything; others what ACLs say.

A decision is remembered until an ACL changes, or until there are too many; then all are forgotten. Any error in here
denies.

Source: KIP-11, KIP-801 (StandardAuthorizer), KIP-679 (producer ids for clients that may write any topic).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas.broker.log import EventLog
from barnabas.broker.security.acl_index import same_form
from barnabas.broker.security.acls import Acls
from barnabas.broker.security.audit import Audit
from barnabas.broker.security.operations import READ_TOPIC, Right
from barnabas.broker.security.principals import DRIVER, NODE, Principal, parse_principal

NO_AUTHORIZER = "No Authorizer is configured on the broker"
#: The only class that `authorizer.class.name` may name.
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
#: The most decisions remembered, and the longest name in one: about 10 MB.
_MOST_DECISIONS = 20_000
_LONGEST_NAME = 255
#: As in Kafka, a question about any resource first asks about this name, for clients that are allowed all.
_ANY_NAME = "hardcode"
#: Principal, host, right and resource name; None for any resource.
Question = tuple[Principal, str, Right, str | None]


class Authorizer(Protocol):
    """Decides on each operation of each client. It must not wait."""

    @property
    def version(self) -> int:
        """A number that changes when decisions may change."""

    def forget(self) -> None:
        """Forget all decisions, because something other than the ACLs has changed."""

    def allows(
        self, principal: Principal, host: str, right: Right, name: str, *, api: str = "", quiet: bool = False
    ) -> bool:
        """Whether `principal`, whose address is `host`, has a right to the resource `name`.

        `api` is for the log; a denial of a `quiet` question is not logged.
        """

    def allows_any(self, principal: Principal, host: str, right: Right, *, api: str = "") -> bool:
        """Whether there may be a resource to which the principal has this right."""


class AclAuthorizer:
    """Kafka's StandardAuthorizer."""

    def __init__(
        self,
        acls: Acls,
        super_users: str,
        everyone_without_acl: bool,
        audit: Audit,
        log: EventLog,
        shown_by: Callable[[str], Sequence[str]] = lambda _: (),
    ) -> None:
        """`super_users` are separated by semicolons. `shown_by` gives the topics whose values a topic contains, which
        a reader must be allowed to read, too. Raises ValueError for a super user that is not a principal."""
        self._acls, self._audit, self._log = acls, audit, log
        self._super_users = parse_super_users(super_users)
        self._without_acl = everyone_without_acl
        self._shown_by = shown_by
        self._decisions: dict[Question, bool] = {}
        self._version = -1

    @property
    def version(self) -> int:
        return self._acls.version

    def forget(self) -> None:
        self._version = -1

    def allows(
        self, principal: Principal, host: str, right: Right, name: str, *, api: str = "", quiet: bool = False
    ) -> bool:
        key = principal, host, right, name
        known = self._decisions.get(key) if self._version == self._acls.version else None
        allowed = self._decide(key) if known is None else known
        if not allowed:
            if not quiet:
                self._audit.denied(principal, host, right, name, api)
        elif self._audit.tells_allowed:
            self._audit.allowed(principal, host, right, name, api)
        return allowed

    def allows_any(self, principal: Principal, host: str, right: Right, *, api: str = "") -> bool:
        key = principal, host, right, None
        known = self._decisions.get(key) if self._version == self._acls.version else None
        allowed = self._decide(key) if known is None else known
        if not allowed:
            self._audit.denied(principal, host, right, "*", api)
        return allowed

    def _decide(self, key: Question) -> bool:
        """Make a new decision, and remember it."""
        principal, host, right, name = key
        decisions = self._decisions
        if self._version != self._acls.version or len(decisions) >= _MOST_DECISIONS:
            decisions.clear()
            self._version = self._acls.version
        try:
            allowed = self._ask(principal, same_form(host), right, name)
        except Exception as error:
            trace = "".join(traceback.format_exception(error))
            self._log.error("authorizer.failed", principal=principal, error=repr(error), trace=trace, effect="denied")
            return False
        if name is None or len(name) <= _LONGEST_NAME:
            decisions[key] = allowed
        return allowed

    def _ask(self, principal: Principal, host: str, right: Right, name: str | None) -> bool:
        if principal in self._super_users or principal in (DRIVER, NODE):
            return True
        index, operation, kind = self._acls.index, right.operation, right.type
        asked = _ANY_NAME if name is None else name
        by_name = index.decide(principal, host, operation, kind, asked)
        if not by_name and self._without_acl:
            by_name = not index.has_any(kind, asked)
        if by_name and right is READ_TOPIC and name is not None:
            return all(self._ask(principal, host, right, each) for each in self._shown_by(name))
        return by_name or (name is None and index.decide_any(principal, host, operation, kind))


def parse_super_users(text: str) -> frozenset[Principal]:
    """The principals of `super.users`. Names may contain commas. Raises ValueError for an invalid principal."""
    return frozenset(parse_principal(each.strip()) for each in text.split(";") if each.strip())
