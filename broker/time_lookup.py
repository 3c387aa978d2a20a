"""Look-ups by time, without holding up the event loop: what is read from the disk, a thread reads."""

from __future__ import annotations

from barnabas.broker.workers import Workers
from barnabas.storage.segment import CorruptLogError
from barnabas.storage.vnode import Vnode

#: Asks for the newest record instead of a time (KIP-734).
MAX_TIMESTAMP = -3


async def find_time(workers: Workers, vnode: Vnode, asked: int) -> tuple[int, int] | None:
    """Offset and timestamp of the first record at or after a time, or of the newest. Raises KafkaError."""
    wanted = vnode.newest_timestamp() if asked == MAX_TIMESTAMP else asked
    if wanted < 0:
        return None
    for scan in vnode.time_scans(wanted):
        try:
            found = await workers.read(scan.run)
        except (OSError, CorruptLogError) as error:
            raise vnode.read_failed(error) from error
        if found is not None:
            return found
    return None
