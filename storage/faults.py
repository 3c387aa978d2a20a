"""What an I/O error means for a partition: the one place that decides it.

| class     | errors                                     | what it costs                                            |
| --------- | ------------------------------------------ | -------------------------------------------------------- |
| transient | EMFILE ENFILE ENOMEM ENOBUFS EAGAIN EINTR  | this call is refused, the partition is as before         |
| space     | ENOSPC EDQUOT EFBIG                        | this call is refused, its partial write is cut off.      |
|           |                                            | Reads go on, retention and DeleteRecords make room, and  |
|           |                                            | appends work again once there is room                    |
| damage    | no errno (`CorruptLogError`): bytes that   | reads of the damaged batch are refused until its bytes   |
|           | are not a batch, a CRC that does not match | are set aside (`storage.salvage`); then there is a gap   |
|           |                                            | in the offsets. Everything else goes on                  |
| offline   | any error of an fsync that has begun, EIO, | the partition refuses everything until the next start    |
|           | and any other error of the system          |                                                          |

Refused means KAFKA_STORAGE_ERROR, which is retriable. After a refused append, the batches that its producer had in
flight behind it are refused, too, until the first one has come again. An fsync that could not even open its file has
not begun (`NotBegunError`): it is still owed, and is tried again. After an fsync that began and failed, the kernel may
have dropped the data that it could not write, and a second fsync would report success for it. Indexes, snapshots,
leader epochs and checkpoints can be rebuilt from the log: if they cannot be written for lack of descriptors or room,
they wait in memory.
"""

from __future__ import annotations

import errno
from enum import Enum


class Fault(Enum):
    """The class of an error of the operating system."""

    TRANSIENT = "transient"
    SPACE = "space"
    OFFLINE = "offline"


_CLASSES = {
    **dict.fromkeys(
        (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EINTR), Fault.TRANSIENT
    ),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), Fault.SPACE),
}


class NotBegunError(OSError):
    """An fsync could not open its file just now. Nothing is lost; the caller tries again."""


def fault_of(error: OSError) -> Fault:
    """The class of an error of a call other than fsync."""
    return _CLASSES.get(error.errno or 0, Fault.OFFLINE)
