"""How Kafka's consumers kept committed offsets in ZooKeeper until 0.9: paths, names and numbers. Pure.

    /consumers/GROUP/offsets/TOPIC/PARTITION   the offset of the next record, in decimal
    /consumers/GROUP/ids/...                   the members of a group that runs

All of it lies below the chroot of `zookeeper.connect`. Group names come from clients. `misfit` finds those that cannot
be a znode, so that no name leads to a path outside /consumers/GROUP.
"""

from __future__ import annotations

import re

from barnabas.wire.aliases import TopicPartition
from barnabas.wire.streams.keys import is_stream

#: The largest offset: a signed 64-bit integer.
MAX_OFFSET = (1 << 63) - 1
#: The most bytes of a group name. ZooKeeper takes requests of 1 MB (jute.maxbuffer), and a transaction has many paths.
MOST_NAME_BYTES = 16 * 1024
_DIGITS = re.compile(r"[0-9]{1,19}")
# Characters that ZooKeeper's PathUtils refuses in a path. It works on UTF-16, where those beyond U+FFFF are surrogates.
_REFUSED = re.compile("[\\x00-\\x1f\\x7f-\\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
_HOST = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^\[\]:/,\s@]+)(:([0-9]{1,5}))?")


def misfit(group: str) -> str | None:
    """Why a group cannot have znodes; None if it can."""
    if is_stream(group):
        return "it is the position of a stream, which only the broker's own log keeps"
    if group in ("", ".", ".."):
        return "ZooKeeper has no name for this group: it is empty or a dot"
    if "/" in group:
        return "ZooKeeper has no name for this group: it has a slash"
    if _REFUSED.search(group):
        return "ZooKeeper takes no control characters, and none beyond U+FFFF, in a group's name"
    if len(group.encode()) > MOST_NAME_BYTES:
        return f"the group's name is longer than {MOST_NAME_BYTES} bytes"
    return None


def group_path(root: str, group: str) -> str:
    """The znode above everything of a group. The group must not be a misfit."""
    return f"{root}/consumers/{group}"


def position_path(root: str, group: str, place: TopicPartition) -> str:
    """The znode of one position."""
    return f"{root}/consumers/{group}/offsets/{place[0]}/{place[1]}"


def parse_number(text: str, most: int = MAX_OFFSET) -> int:
    """A decimal number from 0 to `most`, with nothing around it. Raises ValueError with the reason."""
    if not _DIGITS.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a number")
    number = int(text)
    if number > most:
        raise ValueError(f"{number} is too large")
    return number


def parse_partition(text: str) -> int:
    """The number of a partition. Raises ValueError."""
    if re.fullmatch(r"[0-9]+-[0-9]+", text):
        raise ValueError(f"{text!r} is not a partition number: Kafka 0.7 named them BROKER-PARTITION")
    return parse_number(text, (1 << 31) - 1)


def parse_offset(value: bytes) -> int:
    """The offset in a znode's content. Raises ValueError."""
    return parse_number(value.decode("ascii", "backslashreplace"))


def parse_connect(text: str) -> tuple[str, str]:
    """Hosts and chroot (which may be empty) of HOST:PORT[,HOST:PORT...][/CHROOT]. Raises ValueError."""
    hosts, slash, chroot = text.strip().partition("/")
    for host in hosts.split(","):
        found = _HOST.fullmatch(host.strip())
        if not found or int(found[3] or 2181) not in range(1, 65536):
            raise ValueError("expected HOST:PORT[,HOST:PORT...][/CHROOT]")
    names = [name for name in chroot.split("/") if name]
    if any(misfit(name) for name in names):
        raise ValueError(f"no chroot: {slash}{chroot}")
    return ",".join(host.strip() for host in hosts.split(",")), "".join(f"/{name}" for name in names)
