"""Which package may import which: the layout of the folders is the architecture.

A room may import only from the rooms that the table lists, and from storage only the doors. Tests may import anything.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parents[2] / "barnabas"

#: Each room, and the rooms that it may import from besides itself.
ALLOWED = {
    "wire": set(),
    "storage": {"wire"},
    "groupcoord": {"wire", "storage"},
    "broker": {"wire", "storage", "groupcoord", "client"},
    "client": {"wire"},
    "streams": {"wire", "storage", "client"},
    "connect": {"wire", "client"},
    "scripts": {"wire", "client", "streams", "connect"},
    "testing": {"wire", "storage", "broker", "client"},
}
#: Files that may import more: the command uses every room.
MORE = {"scripts/cli.py": {"broker"}}
#: Rooms that may only be imported inside functions: they need optional packages, or take long to load.
LAZILY = {("scripts", "streams"), ("scripts", "broker"), ("scripts", "connect")}
#: The modules of storage that other rooms may import, by room.
DOORS = {
    "groupcoord": {"vnode"},
    "broker": {
        *("vnode", "validation", "verification", "config", "errors", "data_dir", "flusher", "io", "pace", "snapshots"),
        *("claim", "cleaner", "compaction_terms", "garbage", "kafka_dir", "takeover"),
    },
    "streams": {"log_reader", "errors"},
    "testing": {"io", "claim", "errors"},
}
#: Rooms inside a room, and the inner rooms that each may import from. Modules at the room's top are open to all.
INNER: dict[str, dict[str, set[str]]] = {
    "broker": {
        "apis": {
            "between",
            "coordinators",
            "jobs",
            "metadata",
            "metrics",
            "net",
            "quotas",
            "reading",
            "security",
            "settings",
        },
        "between": {"coordinators", "metadata", "net", "quotas", "security", "settings"},
        "coordinators": {"between", "metadata", "moving", "net", "settings"},
        "http": {"between", "coordinators", "jobs", "metadata", "metrics", "net", "quotas", "security", "settings"},
        "jobs": {"between", "metadata", "reading", "security", "settings"},
        "metadata": {"security", "settings"},
        "metrics": {"coordinators", "jobs", "metadata", "net", "reading", "settings"},
        "moving": {"metadata", "settings"},
        "net": {"quotas", "security", "settings"},
        "quotas": {"metadata", "security", "settings"},
        "reading": {"between"},
        "security": {"metadata", "settings"},
        "settings": {"between", "coordinators", "jobs", "metadata", "security"},
    },
    "groupcoord": {
        "classic": {"log"},
        "log": {"offsets"},
        "offsets": {"classic", "log"},
        "transactions": {"log"},
    },
}
#: The modules of an inner room that another one may import, if not all of them.
INNER_DOORS = {
    ("broker/jobs", "metadata"): {"image", "producer_ids", "topic_manager"},
    ("broker/jobs", "between"): {"envelopes", "forwarding", "peers"},
    ("broker/jobs", "reading"): {"offsets"},
    ("broker/reading", "between"): {"peers"},
    ("broker/settings", "between"): {"peers"},
    ("broker/http", "between"): {"envelopes", "peers"},
    ("broker/http", "coordinators"): {"groups", "transactions"},
    ("broker/coordinators", "net"): {"delayed_response"},
    ("broker/apis", "between"): {"desk", "followers", "membership", "moves", "registration", "snapshots"},
    ("broker/apis", "net"): {"delayed_response", "errors", "framing", "large", "order", "turn"},
    ("broker/apis", "metadata"): {
        *("credentials", "features", "image", "placement", "producer_ids", "tokens", "topic_manager"),
    },
}
#: The broker is not a client of Kafka. It is a client of ZooKeeper, and shares with clients the key stores, the
#: handling of URLs, the partition of a key, temporary folders, and the login, which nodes use with each other.
BROKERS_CLIENTS = {"keystores", "partitioner", "sasl", "temporary", "urls", "zookeeper"}


class Import(NamedTuple):
    """A file's import of a module; `lazy` if it happens only inside a function."""

    file: str
    line: int
    module: str
    lazy: bool

    @property
    def room(self) -> str:
        return self.file.partition("/")[0]

    @property
    def of(self) -> str:
        return self.module.split(".")[1]

    @property
    def inner_room(self) -> str:
        """The inner room that the file is in; "" at the room's top."""
        parts = self.file.split("/")
        return parts[1] if len(parts) > 2 else ""


def imports_of(file: str, text: str) -> Iterator[Import]:
    """Every import of the project's modules in a file's text, including imports of single names."""

    def walk(node: ast.AST, lazy: bool) -> Iterator[Import]:
        if isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING":
            lazy = True
        for module in _modules(node):
            if module.startswith("barnabas."):
                yield Import(file, node.lineno, module, lazy)  # type: ignore[attr-defined]
        inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside)

    yield from walk(ast.parse(text), False)


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        module = node.module or ""
        # `from barnabas.storage import index` imports storage.index; a name that is not a module does no harm.
        is_folder = (PACKAGE.parent / module.replace(".", "/")).is_dir()
        return [f"{module}.{alias.name}" for alias in node.names] if is_folder else [module]
    if isinstance(node, ast.Call) and _last_name(node.func) in ("import_module", "_lazy"):
        return [str(first.value) for first in node.args[:1] if isinstance(first, ast.Constant)]
    return []


def _last_name(called: ast.expr) -> str:
    """Of `a.b.c` it is `c`; "" of what is no name."""
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def wrong(found: Import) -> str | None:
    """Why an import is forbidden; None if it is allowed."""
    if found.of == found.room:
        return _wrong_inside(found)
    if found.of not in ALLOWED[found.room] | MORE.get(found.file, set()):
        return f"{found.room} does not import {found.of}"
    if found.of == "storage" and found.module.split(".")[2] not in DOORS[found.room]:
        return f"{found.module} is no door of storage for {found.room}"
    if (found.room, found.of) == ("broker", "client") and found.module.split(".")[2] not in BROKERS_CLIENTS:
        return f"{found.module} is no client that the broker has"
    if (found.room, found.of) in LAZILY and not found.lazy:
        return f"{found.of} is loaded by a function that needs it"
    return None


def _wrong_inside(found: Import) -> str | None:
    """Why an import inside the same room is forbidden by its inner rooms."""
    inner, (of, *module) = INNER.get(found.room, {}), found.module.split(".")[2:]
    if found.inner_room not in inner or of not in inner or of == found.inner_room:
        return None
    here = f"{found.room}/{found.inner_room}"
    if of not in inner[found.inner_room]:
        return f"{here} does not import {found.room}/{of}"
    doors = INNER_DOORS.get((here, of))
    if doors is not None and module and module[0] not in doors:
        return f"{found.module} is no door of {found.room}/{of} for {here}"
    return None


@cache
def all_imports() -> list[Import]:
    """The imports of every Python file of the rooms, except tests."""
    found: list[Import] = []
    for room in ALLOWED:
        folder = (PACKAGE / room).resolve()
        for path in folder.rglob("*.py"):
            inside = path.relative_to(folder)
            if "tests" not in inside.parts:
                found += imports_of(f"{room}/{inside}", path.read_text())
    return found


def test_every_room_is_in_the_table() -> None:
    assert {path.name for path in PACKAGE.iterdir() if path.is_symlink()} == set(ALLOWED)


def test_imports_keep_to_the_table() -> None:
    found = all_imports()
    assert {each.room for each in found} == set(ALLOWED)
    assert [f"{each.file}:{each.line}: {why}" for each in found if (why := wrong(each))] == []


def test_the_table_names_nothing_that_nobody_needs() -> None:
    found = all_imports()
    used = {(each.room, each.of) for each in found} - {(room, room) for room in ALLOWED}
    assert used == {(room, other) for room, others in ALLOWED.items() for other in others} | {("scripts", "broker")}
    doors = {(each.room, each.module.split(".")[2]) for each in found if each.of == "storage" != each.room}
    assert doors == {(room, door) for room, names in DOORS.items() for door in names}


def test_the_inner_rooms_are_the_folders_that_are_there() -> None:
    for room, inner in INNER.items():
        folders = {path.name for path in (PACKAGE / room).iterdir() if path.is_dir()} - {"tests", "__pycache__"}
        assert folders == set(inner)


def test_the_inner_tables_name_nothing_that_nobody_needs() -> None:
    used: dict[str, dict[str, set[str]]] = {room: {name: set() for name in inner} for room, inner in INNER.items()}
    doors: dict[tuple[str, str], set[str]] = {where: set() for where in INNER_DOORS}
    for each in all_imports():
        of, *module = each.module.split(".")[2:]
        if each.of == each.room and each.inner_room and of in used.get(each.room, {}) and of != each.inner_room:
            used[each.room][each.inner_room].add(of)
            where = (f"{each.room}/{each.inner_room}", of)
            if where in doors and module:
                doors[where].add(module[0])
    assert used == INNER
    assert doors == INNER_DOORS


#: Modules that create and drop vnodes, count them, or serve no client. All others reach a partition through
#: `Partitions`, which checks the rights.
VNODES = {
    *("partitions.py", "node.py", "metadata/topic_manager.py", "clean_logs.py", "stopped_users.py"),
    *("metrics/watch.py", "metrics/collector.py"),
}


def test_one_door_leads_from_a_partition_to_its_vnode() -> None:
    folder = (PACKAGE / "broker").resolve()
    place = re.compile(r"(directory|data_dir|partitions|node|self)\._?vnodes\b")
    files = [path for path in folder.rglob("*.py") if "tests" not in path.parts]
    used = {str(path.relative_to(folder)) for path in files if place.search(path.read_text())}
    assert used - {"apis/fetch.py"} == VNODES  # fetch.py has a dict of that name


def test_what_is_against_the_rule_is_seen() -> None:
    def said(file: str, text: str) -> list[str]:
        return [why for each in imports_of(file, text) if (why := wrong(each))]

    assert said("storage/x.py", "from barnabas.broker.node import Node") == ["storage does not import broker"]
    assert said("wire/x.py", "import barnabas.storage.io") == ["wire does not import storage"]
    assert said("client/x.py", "def f():\n    from barnabas.storage import io") == ["client does not import storage"]
    assert said("broker/net/x.py", "from barnabas.broker.metadata.image import MetadataImage") == [
        "broker/net does not import broker/metadata"
    ]
    assert said("broker/metadata/x.py", "from barnabas.broker.net import large") == [
        "broker/metadata does not import broker/net"
    ]
    assert said("broker/apis/x.py", "from barnabas.broker.net.connection import Connection") == [
        "barnabas.broker.net.connection is no door of broker/net for broker/apis"
    ]
    assert said("broker/node.py", "from barnabas.broker.net.connection import Connection") == []
    assert said("broker/x.py", "from barnabas.storage import segment, vnode") == [
        "barnabas.storage.segment is no door of storage for broker"
    ]
    assert said("streams/x.py", "from barnabas.storage.local_vnode import LocalVnode") == [
        "barnabas.storage.local_vnode is no door of storage for streams"
    ]
    assert said("scripts/x.py", "from barnabas.streams.wal import LogDir") == [
        "streams is loaded by a function that needs it"
    ]
    assert said("scripts/x.py", "def f():\n    importlib.import_module('barnabas.streams.adhoc')") == []
    assert said("scripts/x.py", "def f():\n    from barnabas.broker.main import serve") == [
        "scripts does not import broker"
    ]
    assert said("scripts/cli.py", "def f():\n    from barnabas.broker.main import serve") == []
    assert said("scripts/cli.py", "from barnabas.broker.main import serve") == [
        "broker is loaded by a function that needs it"
    ]
