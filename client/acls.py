"""Find, add and remove a cluster's ACLs."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.client.cluster import Cluster
from barnabas.client.errors import check
from barnabas.wire.acls import Acl, AclFilter
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from barnabas.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from barnabas.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def find_acls(cluster: Cluster, wanted: AclFilter) -> list[Acl]:
    """The ACLs that match a filter. Raises ClientError."""
    answer = cluster.any(DescribeAclsRequest(*wanted), DescribeAclsResponse)
    check(answer.error_code, "ACLs", answer.error_message)
    return [
        Acl(each.resource_type, each.resource_name, each.pattern_type, *_fields(acl))
        for each in answer.resources
        for acl in each.acls
    ]


def _fields(acl: object) -> tuple[str, str, int, int]:
    return acl.principal, acl.host, acl.operation, acl.permission_type  # type: ignore[attr-defined]


def add_acls(cluster: Cluster, acls: Sequence[Acl]) -> None:
    """Add ACLs; existing ones change nothing. Raises ClientError for the first that is refused."""
    answer = cluster.controller(CreateAclsRequest([AclCreation(*acl) for acl in acls]), CreateAclsResponse)
    for acl, result in zip(acls, answer.results, strict=True):
        check(result.error_code, f"ACL of {acl.principal} for {acl.name}", result.error_message)


def remove_acls(cluster: Cluster, filters: Sequence[AclFilter]) -> list[Acl]:
    """Remove and return all ACLs that match the filters. Raises ClientError for the first filter that is refused."""
    request = DeleteAclsRequest([DeleteAclsFilter(*each) for each in filters])
    gone: dict[Acl, None] = {}
    for result in cluster.controller(request, DeleteAclsResponse).filter_results:
        check(result.error_code, "ACLs", result.error_message)
        for acl in result.matching_acls:
            check(acl.error_code, f"ACL of {acl.principal} for {acl.resource_name}", acl.error_message)
            gone[Acl(acl.resource_type, acl.resource_name, acl.pattern_type, *_fields(acl))] = None
    return list(gone)
