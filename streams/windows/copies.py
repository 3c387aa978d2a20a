"""Copies of the checkpoints of streams in another folder or an object store.

    TARGET/CLUSTER/QUERY/BATCH.tar     the checkpoint as of this batch: what Spark needs to continue after it
    TARGET/CLUSTER/QUERY/BATCH.json    written after it: a description, and its SHA-256

The two newest copies of each query are kept. Spark never changes a file of a checkpoint once written, so the files are
linked into a folder while the query runs, and copied from there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.streams.query.errors import QueryError
from barnabas.streams.windows import batches
from barnabas.streams.windows.checkpoint import Folder, link
from barnabas.streams.windows.groups import Group

if TYPE_CHECKING:
    from obstore.store import ObjectStore

KEPT = 2
_REMEDY = "install it with pip install 'barnabas[s3]'"
_CHUNK = 1 << 20
_VERSIONED = (".zip", ".changelog", ".delta", ".snapshot")


class Copy(msgspec.Struct, frozen=True):
    """One copy: the query, its last batch, Spark's id of its checkpoint, and the SHA-256 of its files."""

    group: Group
    batch: int
    checkpoint: str
    sha256: str


class Copies:
    """The copies of one cluster's queries. All methods raise OSError and obstore's errors if the target fails."""

    def __init__(self, target: str, cluster_id: str) -> None:
        """`target` is a folder, or a URL that obstore knows (s3://BUCKET/PREFIX). Raises QueryError."""
        try:
            from obstore import store
        except ImportError:
            raise QueryError(f"barnabas.streams.checkpoint.copies needs obstore: {_REMEDY}") from None
        self._cluster = cluster_id
        try:
            if "://" not in target:  # streams' data is for their user only
                os.makedirs(target, mode=0o700, exist_ok=True)
            self._store: ObjectStore = (
                store.from_url(target) if "://" in target else store.LocalStore(os.path.abspath(target))
            )
        except Exception as error:  # obstore's errors have no common base class
            raise QueryError(f"barnabas.streams.checkpoint.copies={target}: {error}") from None

    def save(self, group: Group, folder: Folder) -> int:
        """Copy the checkpoint as of the last completed batch. Returns that batch's number, or -1 if there is none."""
        import obstore

        linked = os.path.join(folder.path, "copying")
        archive = f"{linked}.tar"
        try:
            batch = snapshot(folder.checkpoint, linked)
            if batch < 0:
                return batch
            with tarfile.open(archive, "w") as tar:
                tar.add(linked, arcname=".")
            copy = Copy(group, batch, folder.checkpoint_id(), _sha256(archive))
            path = f"{self._cluster}/{group.id}/{batch:020}"
            with open(archive, "rb") as file:
                obstore.put(self._store, f"{path}.tar", file)
            obstore.put(self._store, f"{path}.json", msgspec.json.encode(copy))
        finally:
            shutil.rmtree(linked, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(archive)
        self._remove(group.id, keep=KEPT)
        return batch

    def newest(self, query: str = "") -> list[Copy]:
        """The newest copy of each query, or of this one. A damaged copy is skipped in favour of the one before."""
        found: dict[str, Copy] = {}
        for name in sorted(self._names(query), reverse=True):
            place, _, kind = name.rpartition(".")
            of = place.split("/")[-2]
            if kind == "json" and of not in found and (copy := self._read(name)) is not None:
                found[of] = copy
        return list(found.values())

    def restore(self, query: str, folder: Folder) -> int | None:
        """Restore a query's newest complete copy to its folder. Returns its batch, or None if there is no copy."""
        import obstore

        names = sorted((name for name in self._names(query) if name.endswith(".json")), reverse=True)
        folder.make()
        archive, new = os.path.join(folder.path, "restoring.tar"), os.path.join(folder.path, "restoring")
        try:
            for name in names:
                copy = self._read(name)
                if copy is None:
                    continue
                with open(archive, "wb") as file:
                    for chunk in obstore.get(self._store, f"{name.removesuffix('.json')}.tar"):
                        file.write(chunk)
                if _sha256(archive) != copy.sha256:
                    continue
                shutil.rmtree(new, ignore_errors=True)
                with tarfile.open(archive) as tar:
                    tar.extractall(new, filter="data")
                shutil.rmtree(folder.checkpoint, ignore_errors=True)
                os.replace(new, folder.checkpoint)
                return copy.batch
            return None
        finally:
            shutil.rmtree(new, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(archive)

    def remove(self, query: str) -> None:
        """Remove the copies of a query."""
        self._remove(query, keep=0)

    def _remove(self, query: str, *, keep: int) -> None:
        import obstore

        names = sorted(self._names(query), reverse=True)
        batches_there = sorted({name.rpartition(".")[0] for name in names}, reverse=True)
        gone = [name for name in names if name.rpartition(".")[0] in batches_there[keep:]]
        if gone:  # the file that announces the copy is removed first
            obstore.delete(self._store, sorted(gone, key=lambda name: name.endswith(".tar")))

    def _names(self, query: str) -> Iterator[str]:
        import obstore

        prefix = f"{self._cluster}/{query}/" if query else f"{self._cluster}/"
        for some in obstore.list(self._store, prefix):
            yield from (str(meta["path"]) for meta in some)

    def _read(self, name: str) -> Copy | None:
        import obstore

        data: Any = obstore.get(self._store, name).bytes()
        try:
            return msgspec.json.decode(bytes(data), type=Copy)
        except msgspec.DecodeError:
            return None


def snapshot(checkpoint: str, into: str) -> int:
    """Link what Spark needs to continue after the last completed batch, while the query may run. Returns its number.

    The state of batch N has version N + 1: a snapshot, plus the changes of later versions. Spark removes a version a
    hundred batches later. A snapshot refers to other files, so it is linked before them.
    """
    shutil.rmtree(into, ignore_errors=True)
    batch = batches.last_batch(checkpoint, batches.COMMITS)
    if batch < 0:
        return batch
    _link_all(checkpoint, into, [name for name in ("metadata", ".metadata.crc") if _is_file(checkpoint, name)])
    for log in (batches.OFFSETS, batches.COMMITS):
        names = [name for number in (batch - 1, batch) for name in (str(number), f".{number}.crc")]
        _link_all(os.path.join(checkpoint, log), os.path.join(into, log), names)
    for folder, _, names in os.walk(os.path.join(checkpoint, "state")):
        target = os.path.join(into, os.path.relpath(folder, checkpoint))
        wanted = _versions(names, batch + 1)
        _link_all(folder, target, wanted)
        others = [name for name in os.listdir(folder) if _version(name) is None and not _is_temporary(name)]
        _link_all(folder, target, [name for name in others if _is_file(folder, name)])
    return batch


def _versions(names: Iterable[str], last: int) -> list[str]:
    """The files that are needed for version `last`."""
    versions = {name: version for name in names if (version := _version(name)) is not None and version <= last}
    whole = [version for name, version in versions.items() if name.endswith((".zip", ".snapshot"))]
    first = max(whole, default=0)
    return sorted(name for name, version in versions.items() if version >= first)


def _version(name: str) -> int | None:
    """The version in a state file's name; None if it has none, like the files that a snapshot refers to."""
    plain = name.removeprefix(".").removesuffix(".crc")
    if not plain.endswith(_VERSIONED) or _is_temporary(name):
        return None
    number = plain.partition(".")[0].partition("_")[0]
    return int(number) if number.isdecimal() else None


def _is_temporary(name: str) -> bool:
    return name.endswith((".tmp", ".tmp.crc"))


def _is_file(folder: str, name: str) -> bool:
    return os.path.isfile(os.path.join(folder, name))


def _link_all(folder: str, target: str, names: Iterable[str]) -> None:
    os.makedirs(target, exist_ok=True)
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile because of its age
            link(os.path.join(folder, name), os.path.join(target, name))


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
