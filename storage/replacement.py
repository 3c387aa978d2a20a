"""New segments in the place of old ones, all or none: Kafka's protocol of `.cleaned` and `.swap` files.

    written: 0.log.cleaned 9.log.cleaned, synced       the old ones are the log
    -> from the last to the first: .cleaned -> .swap   the old ones, until no `.log.cleaned` is left; then the new ones
    -> the old ones -> .deleted                        the new ones
    -> from the first to the last: .swap -> the name in the log

Of the files of one segment the log is renamed last, so it stands for its indexes. Names in one folder reach the disk in
the order in which they were changed, as file systems with a journal keep it; so what holds for a kill holds for a loss
of power, and no fsync is needed between the steps. `settle` is what the next start does.

Which old segments a cut replacement is about, its `.swap` files say: those that begin within the offsets of the new
ones. So the new ones begin at the offset of the first old one, and end behind the beginning of the last old one; who
leaves out records at the end puts an empty batch there (`storage.salvage.filler`), which keeps the offsets used, too.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Sequence

from barnabas.storage.files import OpenFile
from barnabas.storage.io import Io
from barnabas.storage.salvage import Damage, known_boundaries, whole_batches
from barnabas.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    Segment,
)
from barnabas.storage.txn_index import SUFFIX as TXN_INDEX_SUFFIX

_SUFFIXES = (*INDEX_SUFFIXES, LOG_SUFFIX)
_SEGMENT_FILE = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex)(\.cleaned|\.swap|)")


class HalfReplacedError(Exception):
    """The files are those of neither the old segments nor the new ones until the next recovery."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def swap(io: Io, old: Sequence[Segment], new: Sequence[Segment]) -> list[str]:
    """Put `new`, which are `.cleaned`, in the place of `old`. The files to delete.

    The names are the caller's to sync. Raises OSError; then the old segments are the log. Raises HalfReplacedError if
    that is not so any more.
    """
    directory = new[0].directory
    # What an attempt that failed has left: as long as a `.log.cleaned` is there, no `.swap` after it is finished.
    _sweep(io, directory, keep=(os.path.basename(segment.path(suffix)) for segment in new for suffix in _SUFFIXES))
    committed = False
    doomed = []
    try:
        for segment in reversed(new):
            _rename(io, segment, CLEANED_SUFFIX, SWAP_SUFFIX)
        committed = True
        for segment in old:
            for suffix in reversed(_SUFFIXES):
                with contextlib.suppress(FileNotFoundError):
                    path = segment.path(suffix)
                    io.replace(path, path + DELETED_SUFFIX)
                    doomed.append(path + DELETED_SUFFIX)
        for segment in new:
            _rename(io, segment, SWAP_SUFFIX, "")
    except OSError as error:
        if committed:
            raise HalfReplacedError(error) from error
        discard_cleaned(io, directory)
        raise
    return doomed


def discard_cleaned(io: Io, directory: str) -> None:
    """Give up new segments that are not in the log yet. What cannot be unlinked now, the next replacement unlinks."""
    with contextlib.suppress(OSError):
        _sweep(io, directory)


def sweep_unplaced(io: Io, directory: str) -> None:
    """Give up new segments that are not in the log yet, of a log that is whole. Raises OSError."""
    _sweep(io, directory)


def _sweep(io: Io, directory: str, keep: Iterable[str] = ()) -> None:
    """Unlink what is `.cleaned` or `.swap`: the `.log.swap` first, as a `.log.cleaned` says not to finish them."""
    kept = set(keep)
    found = [name for name in io.listdir(directory) if (match := _SEGMENT_FILE.fullmatch(name)) and match[3]]
    for name in sorted(found, key=lambda name: not name.endswith(LOG_SUFFIX + SWAP_SUFFIX)):
        if name not in kept:
            io.unlink(os.path.join(directory, name))


def _rename(io: Io, segment: Segment, mark: str, to: str) -> None:
    for suffix in _SUFFIXES:
        segment.mark = mark
        source = segment.path(suffix)
        segment.mark = to
        try:
            io.replace(source, segment.path(suffix))
        except FileNotFoundError:
            if suffix != TXN_INDEX_SUFFIX:  # there is none where no transaction was aborted
                raise


def settle(io: Io, directory: str) -> bool:
    """Finish or undo a replacement that a crash has cut; whether there was one. Raises OSError."""
    files = [found for name in io.listdir(directory) if (found := _SEGMENT_FILE.fullmatch(name))]
    if not any(found[3] for found in files):
        return False
    cleaned = [int(found[1]) for found in files if (found[2], found[3]) == ("log", CLEANED_SUFFIX)]
    swaps = sorted(int(found[1]) for found in files if (found[2], found[3]) == ("log", SWAP_SUFFIX))
    # The last one was renamed first: those before the first `.cleaned` are of a replacement that was whole.
    whole = [Segment(directory, base, mark=SWAP_SUFFIX) for base in swaps if not cleaned or base < min(cleaned)]
    if whole:
        end = _end_of(io, whole[-1])
        for base in sorted(int(found[1]) for found in files if (found[2], found[3]) == ("log", "")):
            if whole[0].base_offset <= base < end:
                _unlink(io, Segment(directory, base))
        for segment in whole:
            place(io, segment)
    _sweep(io, directory)
    return True


def place(io: Io, segment: Segment) -> None:
    """Give the files of a `.swap` segment their names. Indexes that it does not have are made anew."""
    base = Segment(segment.directory, segment.base_offset)
    for suffix in INDEX_SUFFIXES:
        with contextlib.suppress(FileNotFoundError):
            io.unlink(base.path(suffix))  # its positions are not those of the new log
        with contextlib.suppress(FileNotFoundError):
            io.replace(segment.path(suffix), base.path(suffix))
    io.replace(segment.path(), base.path())


def _unlink(io: Io, segment: Segment) -> None:
    for suffix in reversed(_SUFFIXES):
        with contextlib.suppress(FileNotFoundError):
            io.unlink(segment.path(suffix))


def _end_of(io: Io, segment: Segment) -> int:
    """The offset after the last whole batch of a segment."""
    segment.size = io.stat(segment.path()).st_size
    file = OpenFile(io, segment.path(), os.O_RDONLY)
    end = segment.base_offset
    for found in whole_batches(
        io, segment, file, 0, end, file_size=segment.size, following=None, known=known_boundaries(io, segment)
    ):
        if not isinstance(found, Damage):
            end = found[1].last_offset + 1
    return end
