"""What an I/O error means for a partition: the one place that decides it.

| class     | errors                                     | what it costs                                            |
| --------- | ------------------------------------------ | -------------------------------------------------------- |
| transient | EMFILE ENFILE ENOMEM ENOBUFS EAGAIN EINTR  | this call is refused, the partition is as before         |
| space     | ENOSPC EDQUOT EFBIG                        | this call is refused, what was written of it is cut off. |
|           |                                            | Reads go on, retention and DeleteRecords make room, and  |
|           |                                            | appends work again when there is some                    |
| damage    | no errno (`CorruptLogError`): bytes that   | reads of the damaged batch are refused until its bytes   |
|           | are no batch, a CRC that does not match    | are set aside (`storage.salvage`); then there is a gap   |
|           |                                            | in the offsets. All else goes on                         |
| offline   | any error of an fsync that has begun, EIO, | the partition refuses everything until the next start    |
|           | and whatever else the system says          |                                                          |

Refused means KAFKA_STORAGE_ERROR, which is retriable. An fsync that could not even open its file has not
begun (`NotBegunError`): it is owed still, and is tried again. After one that has begun and failed, the kernel may have
dropped what it could not write, and a second fsync would report success for it. Indexes, snapshots, leader epochs and
checkpoints can be made from the log: what cannot be written of them for lack of descriptors or room waits in memory.
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
    """An fsync that could not open its file just now. Nothing is lost; it is to be tried again."""


def fault_of(error: OSError) -> Fault:
    """What is to be done about an error of a call that was no fsync."""
    return _CLASSES.get(error.errno or 0, Fault.OFFLINE)
