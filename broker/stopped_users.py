"""`barnabas users --data-dir`: the users of SCRAM in the data directory of a broker that is stopped or was never
started.

With it, the first user exists before any client can connect.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from barnabas.broker.clock import Clock
from barnabas.broker.metadata.credentials import credential_record
from barnabas.broker.metadata.image import METADATA_TOPIC, METADATA_TOPIC_ID, MetadataImage
from barnabas.broker.node import METADATA_LOG
from barnabas.storage.claim import node_id_of
from barnabas.storage.data_dir import DataDir
from barnabas.storage.errors import StorageError
from barnabas.storage.flusher import Flusher
from barnabas.storage.io import Io
from barnabas.wire import scram
from barnabas.wire.logfmt import told
from barnabas.wire.records.cluster_metadata import RemoveUserScramCredentialRecord
from barnabas.wire.text import visible
from barnabas.wire.types import Message

if TYPE_CHECKING:
    from collections.abc import Callable

_FIRST_NODE = 1


def add(args: argparse.Namespace, password: str, salt: Callable[[], bytes]) -> int:
    """Give a user a password."""

    def change(image: MetadataImage) -> list[Message]:
        found: list[Message] = []
        for mechanism in args.mechanism or scram.CODES:
            own = salt()
            salted = scram.salted_password(mechanism, password, own, args.iterations)
            known = scram.credential(mechanism, salted, own, args.iterations)
            found.append(credential_record(args.user, mechanism, known))
        return found

    return _run(args, change)


def remove(args: argparse.Namespace) -> int:
    """Delete a user's passwords."""

    def change(image: MetadataImage) -> list[Message]:
        known = image.credentials.of.get(args.user, {})
        gone = [each for each in args.mechanism or known if each in known]
        if not gone:
            raise StorageError(f"user {args.user} has no such credential")
        return [RemoveUserScramCredentialRecord(args.user, scram.CODES[each]) for each in gone]

    return _run(args, change)


def list_users(args: argparse.Namespace, show: Callable[[Sequence[tuple[str, dict[str, int]]]], None]) -> int:
    """Print the users that may log in."""

    def look(image: MetadataImage) -> list[Message]:
        users = [
            (user, {mechanism: each.iterations for mechanism, each in known.items()})
            for user, known in image.credentials.of.items()
        ]
        show(users)
        return []

    return _run(args, look)


def _run(args: argparse.Namespace, change: Callable[[MetadataImage], list[Message]]) -> int:
    try:
        trio.run(_change, args.data_dir, change)
    except StorageError as error:
        print(f"barnabas: {visible(str(error))}", file=sys.stderr)
        return 1
    return 0


async def _change(path: str, change: Callable[[MetadataImage], list[Message]]) -> None:
    """Append a change to the metadata log. Raises StorageError, for example if a broker serves the directory."""
    io = Io()
    try:
        node_id = node_id_of(path)
    except StorageError:
        node_id = _FIRST_NODE
    async with DataDir.open(path, node_id=node_id, io=io, tell=_tell) as directory:
        await directory.load(config_of=lambda topic: METADATA_LOG)
        if (METADATA_TOPIC, 0) not in directory.vnodes:
            directory.create_vnode(METADATA_TOPIC, 0, METADATA_TOPIC_ID, METADATA_LOG)
        log = directory.vnodes[METADATA_TOPIC, 0]
        image = MetadataImage(node_id, Clock())
        image.load(log, directory.snapshots(METADATA_TOPIC, 0), _tell)
        records = change(image)  # if this raises, its exception is not in a nursery's group
        if records:
            end = image.write(image.batch_of(records))
            flusher = Flusher(io)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(flusher.run)
                await flusher.flushed(log, end)
                nursery.cancel_scope.cancel()


def _tell(event: str, /, **fields: object) -> None:
    print(told(event, fields), file=sys.stderr)
