"""`barnabas acls`: list, add and remove ACLs, with the options of Kafka's `kafka-acls`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from enum import IntEnum

from barnabas.client.acls import add_acls, find_acls, remove_acls
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.scripts.listing import show
from barnabas.wire.acls import (
    ANY,
    CLUSTER_NAME,
    OPERATIONS_OF,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

_PRODUCES = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
_CONSUMES = (Operation.READ, Operation.DESCRIBE)
#: A resource: its kind and name.
Resource = tuple[ResourceType, str]


def words(name: str) -> str:
    """An operation as `kafka-acls` writes it, such as DescribeConfigs."""
    return "".join(part.capitalize() for part in name.split("_"))


OPERATIONS = {words(each.name).lower(): each for each in Operation}


def list_acls(args: argparse.Namespace) -> int:
    """Print the ACLs of the given resources and principals, or all."""
    wanted = [
        AclFilter(*resource, principal=principal)
        for resource in _filters(args)
        for principal in args.principal or [None]
    ]
    with Cluster(args.server) as cluster:
        found = dict.fromkeys(acl for each in wanted for acl in find_acls(cluster, each))
    _print(found, as_json=args.json)
    return 0


def add(args: argparse.Namespace) -> int:
    """Add ACLs."""
    acls = list(dict.fromkeys(_asked(args)))
    with Cluster(args.server) as cluster:
        add_acls(cluster, acls)
    print(f"Added {len(acls)} ACL(s).")
    _print(acls)
    return 0


def remove(args: argparse.Namespace) -> int:
    """Remove the named ACLs; without a principal, all ACLs of the resources."""
    named = args.allow_principal or args.deny_principal
    if named:
        filters = [AclFilter(*acl) for acl in dict.fromkeys(_asked(args, _pattern(args)))]
    else:
        if args.producer or args.consumer or args.operation:
            raise ClientError("Name a principal with --allow-principal or --deny-principal")
        filters = [AclFilter(*resource) for resource in _filters(args)]
        if not _resources(args):
            raise ClientError("Name a resource, as with --topic, --group or --cluster")
    with Cluster(args.server) as cluster:
        if not args.force:
            found = dict.fromkeys(acl for each in filters for acl in find_acls(cluster, each))
            _print(found)
            if not found or not _agrees(f"Remove {len(found)} ACL(s)? (y/n) "):
                print("Nothing was removed.")
                return 0
        gone = remove_acls(cluster, filters)
    print(f"Removed {len(gone)} ACL(s).")
    if args.force:
        _print(gone)
    return 0


def _agrees(question: str) -> bool:
    try:
        return input(question).strip().lower() == "y"
    except EOFError:
        print()
        return False


def _pattern(args: argparse.Namespace) -> int:
    return PatternType[args.resource_pattern_type.upper()]


def _resources(args: argparse.Namespace) -> list[Resource]:
    """The resources that the command line names."""
    named = (
        (ResourceType.TOPIC, args.topic),
        (ResourceType.GROUP, args.group),
        (ResourceType.TRANSACTIONAL_ID, args.transactional_id),
        (ResourceType.DELEGATION_TOKEN, args.delegation_token),
        (ResourceType.USER, args.user_principal),
        (ResourceType.CLUSTER, [CLUSTER_NAME] if args.cluster else []),
    )
    return [(kind, name) for kind, names in named for name in names]


def _filters(args: argparse.Namespace) -> Iterator[tuple[int, str | None, int]]:
    """The kind, name and pattern of what to list or remove."""
    named = _resources(args)
    if not named:
        yield ANY, None, ANY
    for kind, name in named:
        yield kind, name, PatternType.LITERAL if kind == ResourceType.CLUSTER else _pattern(args)


def _asked(args: argparse.Namespace, pattern: int | None = None) -> Iterator[Acl]:
    """The ACLs that the command line describes. Raises ClientError if it leaves something out."""
    if pattern is None:
        pattern = _pattern(args)
        if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
            raise ClientError("--resource-pattern-type of a new ACL is literal or prefixed")
    given = list(_operations_by_resource(args))
    principals = [(Permission.ALLOW, each) for each in args.allow_principal]
    principals += [(Permission.DENY, each) for each in args.deny_principal]
    if not principals:
        raise ClientError("Name a principal with --allow-principal or --deny-principal, as User:alice")
    for (kind, name), operation in given:
        for permission, principal in principals:
            hosts = args.allow_host if permission == Permission.ALLOW else args.deny_host
            for host in hosts or [WILDCARD]:
                # There is only one cluster, so a prefix of its name makes no sense.
                how = PatternType.LITERAL if kind == ResourceType.CLUSTER else pattern
                yield Acl(kind, name, how, principal, host, operation, permission)


def _operations_by_resource(args: argparse.Namespace) -> Iterator[tuple[Resource, Operation]]:
    if args.producer or args.consumer:
        if args.operation:
            raise ClientError("--producer and --consumer say which operations: leave --operation out")
        yield from _of_roles(args)
        return
    if args.idempotent:
        raise ClientError("--idempotent goes with --producer")
    named = _resources(args)
    if not named:
        raise ClientError("Name a resource, as with --topic, --group or --cluster")
    for kind, name in named:
        for word in args.operation or ["All"]:
            operation = _operation(word)
            if operation != Operation.ALL and operation not in OPERATIONS_OF[kind]:
                known = ", ".join(words(each.name) for each in (*OPERATIONS_OF[kind], Operation.ALL))
                raise ClientError(f"--operation {word}: of a {kind.name.lower()} there are {known}")
            yield (kind, name), operation


def _operation(word: str) -> Operation:
    found = OPERATIONS.get(word.lower().replace("_", "").replace("-", ""))
    if found is None:
        known = ", ".join(words(each.name) for each in Operation)
        raise ClientError(f"--operation {word}: expected one of {known}")
    return found


def _of_roles(args: argparse.Namespace) -> Iterator[tuple[Resource, Operation]]:
    """The operations that a producer needs, and those that a consumer needs."""
    if not args.topic:
        raise ClientError("--producer and --consumer need --topic")
    if args.consumer and not args.group:
        raise ClientError("--consumer needs --group")
    for topic in args.topic:
        resource = ResourceType.TOPIC, topic
        yield from ((resource, each) for each in _PRODUCES if args.producer)
        yield from ((resource, each) for each in _CONSUMES if args.consumer)
    if args.producer:
        for name in args.transactional_id:
            resource = ResourceType.TRANSACTIONAL_ID, name
            yield from ((resource, each) for each in (Operation.WRITE, Operation.DESCRIBE))
        if args.idempotent:
            yield (ResourceType.CLUSTER, CLUSTER_NAME), Operation.IDEMPOTENT_WRITE
    if args.consumer:
        for group in args.group:
            yield (ResourceType.GROUP, group), Operation.READ


def _print(acls: Iterable[Acl], *, as_json: bool = False) -> None:
    rows = [
        (
            _name(ResourceType, acl.type),
            acl.name,
            _name(PatternType, acl.pattern),
            acl.principal,
            acl.host,
            words(_name(Operation, acl.operation)),
            _name(Permission, acl.permission),
        )
        for acl in sorted(acls)
    ]
    if rows:
        show(("type", "resource", "pattern", "principal", "host", "operation", "permission"), rows, as_json=as_json)


def _name(kind: type[IntEnum], code: int) -> str:
    """A code's name; an unknown code as its number."""
    try:
        return kind(code).name
    except ValueError:
        return str(code)
