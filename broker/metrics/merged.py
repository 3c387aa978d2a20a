"""The metrics of several nodes as one text.

Each series gets the label `node`. Each family appears once, as both formats require: its header lines, followed by the
series of all nodes. The texts are in Prometheus' text format 0.0.4, or in OpenMetrics 1.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_HELP, _COMMENT, _END = b"# HELP ", b"#", b"# EOF"
#: The name of a series, and the beginning of its labels, if it has any.
_NAME = re.compile(rb"([^{ ]+)(\{(\})?)?")


@dataclass(slots=True)
class _Family:
    head: list[bytes] = field(default_factory=list)
    series: list[bytes] = field(default_factory=list)


def merged(pages: Mapping[int, bytes | None]) -> bytes:
    """Merge the texts of nodes, by their ids, into one. None stands for a node that has not answered. For a thread."""
    families: dict[bytes, _Family] = {}
    for node, page in pages.items():
        _add(families, page or b"", b'node="%d"' % node)
    lines = [line for family in families.values() for line in (*family.head, *family.series)]
    lines += [
        b"# HELP barnabas_node_up Whether the node has answered for this page.",
        b"# TYPE barnabas_node_up gauge",
        *(b'barnabas_node_up{node="%d"} %d.0' % (node, page is not None) for node, page in pages.items()),
    ]
    if any(page is not None and page.rstrip().endswith(_END) for page in pages.values()):
        lines.append(_END)
    return b"\n".join(lines) + b"\n"


def _add(families: dict[bytes, _Family], page: bytes, label: bytes) -> None:
    family = _Family()
    is_new = False
    for line in page.split(b"\n"):
        if line.startswith(_HELP):
            name = line.split(b" ", 3)[2]
            is_new = name not in families
            family = families.setdefault(name, _Family())
        if not line.startswith(_COMMENT):
            if line:
                family.series.append(_labelled(line, label))
        elif is_new and line != _END:
            family.head.append(line)


def _labelled(line: bytes, label: bytes) -> bytes:
    """A series with one more label."""
    found = _NAME.match(line)
    assert found is not None
    name, opening, is_empty = found.groups()
    rest = line[found.end() :]
    if opening is None or is_empty:
        return name + b"{" + label + b"}" + rest
    return name + b"{" + label + b"," + rest
