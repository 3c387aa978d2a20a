"""ACLs: which principal may, or must not, do which operation on which resources, from which host.

They are kept in the metadata log, one record each; `Acls` is their image. Its `version` rises with each change, so that
a cached decision is known to be outdated.

Source: KIP-11, KIP-290 (prefixes). An ACL is new by its seven fields: adding it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.broker.security.acl_index import AclIndex
from barnabas.broker.security.principals import parse_principal
from barnabas.wire.acls import (
    ANY,
    CLUSTER_NAME,
    UNKNOWN,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.records.cluster_metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from barnabas.wire.schema import ProtocolError

#: The most ACLs of one cluster, and the most characters of a name and of a principal.
MAX_ACLS = 50_000
MAX_NAME = 1024
MAX_HOST = 255
#: The most ACLs that one request may add or remove, as in Kafka.
MAX_AT_ONCE = 10_000


_TYPES, _OPERATIONS = frozenset(map(int, ResourceType)), frozenset(map(int, Operation))
_PATTERNS, _PERMISSIONS = frozenset(map(int, PatternType)), frozenset(map(int, Permission))


def check_new(acl: Acl) -> None:
    """Raises KafkaError for an invalid ACL."""
    if acl.type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.name:
        raise _invalid("Invalid empty resource name")
    if acl.type not in _TYPES:
        raise _invalid(f"Invalid resourceType {acl.type}")
    if acl.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {acl.pattern}")
    if acl.operation not in _OPERATIONS:
        raise _invalid(f"Invalid operation {acl.operation}")
    if acl.permission not in (Permission.ALLOW, Permission.DENY):
        raise _invalid(f"Invalid permissionType {acl.permission}")
    try:
        parse_principal(acl.principal)
    except ValueError as error:
        raise _invalid(f"Could not parse principal: {error}") from None
    if len(acl.name) > MAX_NAME or len(acl.principal) > MAX_NAME or len(acl.host) > MAX_HOST:
        raise _invalid(
            f"An ACL has at most {MAX_NAME} characters of resource name and principal, and {MAX_HOST} of host"
        )


def check_question(wanted: AclFilter) -> None:
    """Raises KafkaError for a filter with the value that stands for "unknown".

    A value that this version does not know is not refused: no ACL has it.
    """
    if UNKNOWN in (wanted.type, wanted.pattern, wanted.operation, wanted.permission):
        raise _invalid("The filter contains an unknown element.")


def check_filter(wanted: AclFilter) -> None:
    """Raises KafkaError for a filter with unknown values."""
    if not (wanted.type == ANY or wanted.type in _TYPES) or wanted.pattern not in _PATTERNS:
        raise _invalid("Unknown patternFilter.")
    if not (wanted.operation == ANY or wanted.operation in _OPERATIONS) or wanted.permission not in _PERMISSIONS:
        raise _invalid("Unknown entryFilter.")


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)


class Acls:
    """All ACLs of the cluster, by the ids of their records, and indexed for the authorizer."""

    def __init__(self) -> None:
        self.version = 0
        self.clear()

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._ids

    def clear(self) -> None:
        """Forget all, before the log is read again."""
        self._by_id: dict[bytes, Acl] = {}
        self._ids: dict[Acl, bytes] = {}
        self.index = AclIndex()
        self.version += 1

    def apply(self, record: AccessControlEntryRecord | RemoveAccessControlEntryRecord) -> None:
        """Change the image by one record. Raises ProtocolError for an ACL that could not have been added."""
        self.version += 1
        if isinstance(record, RemoveAccessControlEntryRecord):
            gone = self._by_id.pop(record.id, None)
            if gone is not None and gone in self._ids:
                del self._ids[gone]
                self.index.remove(gone)
            return
        acl = acl_of(record)
        # A failed write may be in the log nevertheless, so that the ACL is there under two ids. Either id removes it.
        self._by_id[record.id] = acl
        if acl not in self._ids:
            try:
                self.index.add(acl)
            except ValueError as error:
                raise ProtocolError(f"an invalid ACL: {error}") from None
        self._ids[acl] = record.id

    def matching(self, wanted: AclFilter) -> Iterator[tuple[Acl, bytes] | None]:
        """The ACLs that a filter finds, with their ids; None for each other ACL, so that callers can count steps."""
        for acl, acl_id in list(self._ids.items()):
            yield (acl, acl_id) if wanted.matches(acl) else None

    def records(self) -> Iterator[AccessControlEntryRecord]:
        """The records of all ACLs."""
        for acl, acl_id in self._ids.items():
            yield record_of(acl_id, acl)


def acl_of(record: AccessControlEntryRecord) -> Acl:
    """The ACL in a record."""
    return Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def record_of(acl_id: bytes, acl: Acl) -> AccessControlEntryRecord:
    """The record of an ACL."""
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.type,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
