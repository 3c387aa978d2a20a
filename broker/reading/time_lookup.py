"""Look-ups by time, without holding up the event loop: a thread reads from the disk."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.workers import Workers
from barnabas.storage.vnode import Vnode

Call = Callable[[], None]
#: Asks for the newest record instead of a time (KIP-734).
MAX_TIMESTAMP = -3


async def find_time(
    workers: Workers, client: str, vnode: Vnode, asked: int, paid: Callable[[Call], Call] = lambda call: call
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record at or after a time, or of the newest. Raises KafkaError.

    `paid` wraps calls for threads so that their CPU is recorded.
    """
    wanted = vnode.newest_timestamp() if asked == MAX_TIMESTAMP else asked
    if wanted < 0:
        return None
    for scan in vnode.time_scans(wanted):
        await workers.read(client, paid(scan.run))
        found = vnode.end_scan(scan)
        if found is not None:
            return found
    return None
