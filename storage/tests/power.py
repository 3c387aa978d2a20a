"""A disk that loses data: what is left of a directory when the power fails.

`Disk` is an `Io` over real files that keeps a journal of every call. From a prefix of the journal `survivor` makes what
a disk may hold after a power loss there: of each file the synced bytes and any prefix of its later writes, torn at any
byte; of each folder the synced names and any prefix of its later changes. A file's name is safe when its folder was
synced, not when the file was.

Every sync in the journal has the line of the project that made it, and the kind of file. A mutation drops one such pair
from the journal, as if that line did not exist.
"""

from __future__ import annotations

import ast
import functools
import os
import random
import re
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.storage.io import Io
from barnabas.wire.aliases import BytesLike

PROJECT = Path(__file__).resolve().parents[2]
ROOT = 1
_SYNCS = ("fdatasync", "fsync", "sync_path")


class Site(NamedTuple):
    """The lines that made a sync, innermost first, and the kind of file."""

    lines: tuple[str, ...]
    role: str

    def __str__(self) -> str:
        return f"{' < '.join(self.lines)} of {self.role}"


class Op(NamedTuple):
    kind: str
    node: int
    detail: Any = None


class Disk(Io):
    """Records every change below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.journal: list[Op] = []
        self._lock = threading.RLock()
        self._names: dict[int, dict[str, int]] = {ROOT: {}}
        self._roles: dict[int, str] = {ROOT: "data directory"}
        self._fds: dict[int, int] = {}
        self._next = ROOT

    def mark(self, what: Any) -> None:
        """Note in the journal what the program has promised so far."""
        with self._lock:
            self.journal.append(Op("mark", 0, what))

    def write_back(self) -> None:
        """Let the system write everything back, as it does with time."""
        with self._lock:
            self.journal += [Op("sync", node, Site((), "everything")) for node in self._roles]

    def damage(self, path: str, position: int, bit: int = 0) -> None:
        """Flip a bit on the disk itself."""
        with self._lock, open(path, "r+b") as file:
            file.seek(position)
            data = bytes([file.read(1)[0] ^ 1 << bit])
            file.seek(position)
            file.write(data)
            self.journal.append(Op("damage", self._node(path), (position, data)))

    # -- the calls ---------------------------------------------------------------------------------------------------

    def _split(self, path: str) -> tuple[int, str]:
        folder, name = os.path.split(os.path.relpath(path, self.root))
        return self._node(os.path.join(self.root, folder)), name

    def _node(self, path: str) -> int:
        node = ROOT
        for part in os.path.relpath(path, self.root).split(os.sep):
            if part not in ("", "."):
                node = self._names[node][part]
        return node

    def _new(self, role: str) -> int:
        self._next += 1
        self._roles[self._next] = role
        return self._next

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        with self._lock:
            fd = super().open(path, flags, mode)
            folder, name = self._split(path) if path != self.root else (ROOT, "")
            node = self._names[folder].get(name) if name else ROOT
            if node is None:
                node = self._new(_role_of(name))
                self._names[folder][name] = node
                self.journal.append(Op("link", folder, (name, node)))
            elif flags & os.O_TRUNC:
                self.journal.append(Op("truncate", node, 0))
            self._fds[fd] = node
            return fd

    def close(self, fd: int) -> None:
        with self._lock:
            self._fds.pop(fd, None)
            super().close(fd)

    def pwritev(self, fd: int, parts: Sequence[BytesLike], position: int) -> int:
        with self._lock:
            self.journal.append(Op("write", self._fds[fd], (position, b"".join(parts))))
            return super().pwritev(fd, parts, position)

    def ftruncate(self, fd: int, size: int) -> None:
        with self._lock:
            self.journal.append(Op("truncate", self._fds[fd], size))
            super().ftruncate(fd, size)

    def fdatasync(self, fd: int) -> None:
        self._sync(fd)

    def fsync(self, fd: int) -> None:
        self._sync(fd)

    def _sync(self, fd: int) -> None:
        with self._lock:
            node = self._fds[fd]
            self.journal.append(Op("sync", node, Site(_lines(), self._roles[node])))

    def replace(self, source: str, target: str) -> None:
        with self._lock:
            super().replace(source, target)
            folder, name = self._split(source)
            other, target_name = self._split(target)
            assert folder == other, "a rename across folders is not modelled"
            node = self._names[folder].pop(name)
            self._names[folder][target_name] = node
            self._roles[node] = _role_of(target_name) if node not in self._names else self._roles[node]
            self.journal.append(Op("rename", folder, (name, target_name, node)))

    def unlink(self, path: str) -> None:
        with self._lock:
            super().unlink(path)
            folder, name = self._split(path)
            del self._names[folder][name]
            self.journal.append(Op("unlink", folder, name))

    def mkdir(self, path: str) -> None:
        with self._lock:
            super().mkdir(path)
            folder, name = self._split(path)
            node = self._new("partition folder")
            self._names[node] = {}
            self._names[folder][name] = node
            self.journal.append(Op("mkdir", folder, (name, node)))

    def rmtree(self, path: str) -> None:
        with self._lock:
            if not os.path.exists(path):
                return
            for name in sorted(os.listdir(path), reverse=True):  # in the worst order: partition.metadata goes first
                inside = os.path.join(path, name)
                if os.path.isdir(inside):
                    self.rmtree(inside)
                else:
                    self.unlink(inside)
            super().rmtree(path)
            folder, name = self._split(path)
            del self._names[folder][name]
            self.journal.append(Op("unlink", folder, name))


def _role_of(name: str) -> str:
    name = name.removesuffix(".tmp")
    return re.sub(r"^\d{20}", "*", re.sub(r"damaged-\d+", "damaged-n", name)).removesuffix(".cleaned")


@functools.cache
def _real(name: str) -> Path:
    return Path(name).resolve()  # the package's folders are links


def _lines() -> tuple[str, ...]:
    """The lines from the sync outwards, up to the first that is not in `storage/io.py`."""
    found = []
    frame = sys._getframe(3)
    while frame is not None:
        path = _real(frame.f_code.co_filename)
        inside = path.is_relative_to(PROJECT)
        found.append(f"{path.relative_to(PROJECT) if inside else path.name}:{frame.f_lineno}")
        if path.name != "io.py":
            break
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(found)


def sync_lines(*folders: str) -> set[str]:
    """Every line of the project that calls fdatasync, fsync or sync_path."""
    found = set()
    for folder in folders:
        for path in (PROJECT / folder).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                called = node.func if isinstance(node, ast.Call) else None
                name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                by_system = isinstance(called, ast.Attribute) and getattr(called.value, "id", "") == "os"
                if name in _SYNCS and not by_system:
                    found.add(f"{path.relative_to(PROJECT)}:{node.lineno}")  # type: ignore[attr-defined]
    return found


def functions_of(folder: str) -> dict[str, str]:
    """The innermost function of every line."""
    found: dict[str, str] = {}
    for path in (PROJECT / folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    found[f"{path.relative_to(PROJECT)}:{line}"] = node.name
    return found


# -- what survives -----------------------------------------------------------------------------------------------------


class _File:
    def __init__(self) -> None:
        self.durable = bytearray()
        self.pending: list[Op] = []


class _Folder:
    def __init__(self) -> None:
        self.durable: dict[str, int] = {}
        self.pending: list[Op] = []


def survivor(
    journal: Iterable[Op],
    target: Path,
    pick: random.Random,
    *,
    mode: str,
    dropped: Callable[[Site], bool] | None = None,
) -> None:
    """Make in `target` what a disk may hold when the power fails after `journal`.

    `mode` says what survives of unsynced changes: "none", "all", "some", or all "names" but no bytes.
    """
    nodes: dict[int, _File | _Folder] = {ROOT: _Folder()}
    for op in journal:
        if op.kind == "mark":
            continue
        if op.kind in ("link", "mkdir"):
            nodes[op.detail[1]] = _File() if op.kind == "link" else _Folder()
        node = nodes[op.node]
        if op.kind == "sync":
            if not op.detail.lines or dropped is None or not dropped(op.detail):
                _settle(node, len(node.pending))
        elif op.kind == "damage":
            assert isinstance(node, _File)
            position, data = op.detail
            if position < len(node.durable):
                node.durable[position : position + 1] = data
            node.pending.append(Op("write", op.node, op.detail))
        else:
            node.pending.append(op)
    for node in nodes.values():
        count = len(node.pending)
        how = mode if mode != "some" else pick.choice(("none", "some", "some", "all"))
        if mode == "names":
            how = "all" if isinstance(node, _Folder) else "none"
        kept = 0 if how == "none" else count if how == "all" else pick.randint(0, count)
        torn = node.pending[kept] if how == "some" and kept < count else None
        _settle(node, kept)
        if torn is not None and isinstance(node, _File) and torn.kind == "write":
            position, data = torn.detail
            _apply(node, Op("write", 0, (position, data[: pick.randint(0, len(data))])))
            if pick.random() < 0.3:  # the length was written, the data was not
                node.durable.extend(bytes(max(0, position + len(data) - len(node.durable))))
    _write(nodes, ROOT, target)


def _settle(node: _File | _Folder, count: int) -> None:
    for op in node.pending[:count]:
        _apply(node, op)
    del node.pending[:count]


def _apply(node: _File | _Folder, op: Op) -> None:
    if isinstance(node, _File):
        if op.kind == "truncate":
            del node.durable[op.detail :]
            node.durable.extend(bytes(op.detail - len(node.durable)))
        else:
            position, data = op.detail
            node.durable.extend(bytes(max(0, position - len(node.durable))))
            node.durable[position : position + len(data)] = data
    elif op.kind in ("link", "mkdir"):
        node.durable[op.detail[0]] = op.detail[1]
    elif op.kind == "unlink":
        node.durable.pop(op.detail, None)
    else:
        source, target, number = op.detail
        node.durable.pop(source, None)
        node.durable[target] = number


def _write(nodes: dict[int, _File | _Folder], number: int, target: Path) -> None:
    node = nodes[number]
    if isinstance(node, _File):
        target.write_bytes(node.durable)
        return
    target.mkdir()
    for name, child in node.durable.items():
        _write(nodes, child, target / name)
