"""`barnabas users`: manage who may log in with SCRAM, through a running broker."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, check, only
from barnabas.client.passwords import new_salt, read_password
from barnabas.scripts.listing import show
from barnabas.wire import scram
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)


def add(args: argparse.Namespace) -> int:
    """Set a user's password."""
    password = read_password(args.user)
    wanted = []
    for mechanism in args.mechanism or scram.CODES:
        salt = new_salt()
        salted = scram.salted_password(mechanism, password, salt, args.iterations)
        wanted.append(ScramCredentialUpsertion(args.user, scram.CODES[mechanism], args.iterations, salt, salted))
    _alter(args, AlterUserScramCredentialsRequest(upsertions=wanted))
    return 0


def remove(args: argparse.Namespace) -> int:
    """Remove a user's passwords."""
    with Cluster(args.server) as cluster:
        known = dict(_described(cluster)).get(args.user, {})
    gone = [ScramCredentialDeletion(args.user, scram.CODES[each]) for each in args.mechanism or known]
    if not gone:
        raise ClientError(f"User {args.user} has no SCRAM credential")
    _alter(args, AlterUserScramCredentialsRequest(gone))
    return 0


def list_users(args: argparse.Namespace) -> int:
    """Print who may log in."""
    with Cluster(args.server) as cluster:
        show_users(_described(cluster), as_json=args.json)
    return 0


def show_users(users: Iterable[tuple[str, Mapping[str, int]]], *, as_json: bool) -> None:
    """Print users with the iteration count of each of their mechanisms."""
    rows: list[tuple[object, ...]] = [
        (
            user,
            dict(sorted(mechanisms.items()))
            if as_json
            else ", ".join(f"{name} ({iterations} iterations)" for name, iterations in sorted(mechanisms.items())),
        )
        for user, mechanisms in sorted(users)
    ]
    show(("user", "mechanisms"), rows, as_json=as_json)


def _alter(args: argparse.Namespace, request: AlterUserScramCredentialsRequest) -> None:
    with Cluster(args.server) as cluster:
        told = only(cluster.controller(request, AlterUserScramCredentialsResponse).results, f"User {args.user}")
        check(told.error_code, f"User {args.user}", told.error_message)


def _described(cluster: Cluster) -> list[tuple[str, dict[str, int]]]:
    """Users, with the iteration count of each of their mechanisms."""
    answer = cluster.any(DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse)
    check(answer.error_code, "Users", answer.error_message)
    return [
        (each.user, {scram.MECHANISMS[info.mechanism]: info.iterations for info in each.credential_infos})
        for each in answer.results
        if each.error_code == ErrorCode.NONE
    ]
