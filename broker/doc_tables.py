"""The tables in the docs that come from the code: `python -m barnabas.broker.doc_tables` writes them again.

The registry gives the APIs in docs/reference/apis.md, `broker.security.table` the rights in docs/security.md, and the
tables of `broker.settings.config` the keys in docs/configuration.md. `compat_tests/site/tables.py` makes the tables of
the other packages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import barnabas.broker.apis  # noqa: F401  registers the handlers
from barnabas.broker.registry import APIS
from barnabas.broker.settings.config import BROKER, TOPIC
from barnabas.broker.settings.keys import ConfigKey

ROOT = Path(__file__).resolve().parent.parent


def apis() -> str:
    """API name, key and versions, with two APIs in each row."""
    cells = [
        f"{a.name} | {a.key} | {a.versions.first}-{a.versions.last}" for _, a in sorted(APIS.items()) if not a.for_nodes
    ]
    cells += ["| | "] * (-len(cells) % 2)
    rows = [f"| {cells[i]} | {cells[i + 1]} |" for i in range(0, len(cells), 2)]
    return "\n".join(
        ["| API | key | versions | API | key | versions |", "| --- | --- | --- | --- | --- | --- |", *rows]
    )


def _keys(keys: Iterable[ConfigKey], extra: str, show: Callable[[ConfigKey], str]) -> str:
    rows = [
        f"| `{key.name}` | {key.type} | {key.show(key.default) or ''} | {show(key)} | {key.doc} |"
        for key in sorted(keys, key=lambda key: key.name)
    ]
    return "\n".join([f"| key | type | default | {extra} | meaning |", "| --- | --- | --- | --- | --- |", *rows])


def broker_keys() -> str:
    """The keys of `server.properties`."""
    return _keys([key for key in BROKER.values() if key.used], "changeable", _changeable)


def _changeable(key: ConfigKey) -> str:
    return "yes" if key.dynamic else "at start"


def topic_keys() -> str:
    """The keys of a topic."""
    return _keys([key for key in TOPIC.values() if key.used], "from the broker's", _synonym)


def _synonym(key: ConfigKey) -> str:
    return f"`{key.synonym}`" if key.synonym else ""


def unused_broker_keys() -> str:
    """Kafka's keys of `server.properties` that have no effect in barnabas."""
    return _keys([key for key in BROKER.values() if not key.used], "changeable", _changeable)


def unused_topic_keys() -> str:
    """Kafka's keys of a topic that have no effect in barnabas."""
    return _keys([key for key in TOPIC.values() if not key.used], "from the broker's", _synonym)


def rights() -> str:
    """The rights that each served API needs, and the error codes of a refusal."""
    rows = []
    for _, api in sorted(APIS.items()):
        if api.for_nodes:
            continue
        for need in api.needs:
            wanted = " or ".join(str(right) for right in need.rights)
            refusal = need.code.name if need.code else "left out"
            where = need.where if need.code else ""
            rows.append(f"| {api.name} | {wanted} | {need.when} | {refusal} | {where} |")
        if not api.needs:
            rows.append(f"| {api.name} | nothing | | | |")
    return "\n".join(["| API | needs | when | a refusal says | of |", "| --- | --- | --- | --- | --- |", *rows])


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "apis": ("docs/reference/apis.md", apis),
    "broker-keys": ("docs/configuration.md", broker_keys),
    "topic-keys": ("docs/configuration.md", topic_keys),
    "rights": ("docs/security.md", rights),
    "unused-broker-keys": ("docs/configuration.md", unused_broker_keys),
    "unused-topic-keys": ("docs/configuration.md", unused_topic_keys),
}


def renewed(name: str, text: str) -> str:
    """A document in which one table, between its markers, is replaced."""
    return put(name, TABLES[name][1](), text)


def put(name: str, table: str, text: str) -> str:
    """A document with the given text between the markers of a table."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n{table}\n{end}", text, flags=re.DOTALL)


if __name__ == "__main__":
    for table, (file, _) in TABLES.items():
        path = ROOT / file
        path.write_text(renewed(table, path.read_text()))
