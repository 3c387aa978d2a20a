"""Replace old segments by new ones, all or none: Kafka's protocol of `.cleaned` and `.swap` files.

    written: 0.log.cleaned 9.log.cleaned, synced       the old ones are the log
    -> from the last to the first: .cleaned -> .swap   the old ones, until no `.log.cleaned` is left; then the new ones
    -> the old ones -> .deleted                        the new ones
    -> from the first to the last: .swap -> the name in the log

Of the files of one segment the log is renamed last, so a log under its new name implies its indexes. File systems with
a journal write names of one folder to disk in the order of the changes. So a loss of power leaves what a kill leaves,
and no fsync is needed between the steps. The next start calls `settle`.

After an interrupted replacement, the `.swap` files show which old segments it replaces: those that begin within the
offsets of the new ones. So the new ones must begin at the offset of the first old one, and end behind the beginning of
the last old one. If records at the end are left out, an empty batch (`storage.salvage.filler`) replaces them; it also
keeps their offsets used.
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
    """Put `new` segments, which are `.cleaned`, in the place of `old`. Gives the files to delete.

    The caller syncs the names. Raises OSError; then the old segments are still the log. Raises HalfReplacedError if
    they no longer are.
    """
    directory = new[0].directory
    # Files of a failed attempt: as long as a `.log.cleaned` exists, no `.swap` after it is finished.
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
    """Give up new segments that are not in the log yet. If one cannot be unlinked, the next replacement does it."""
    with contextlib.suppress(OSError):
        _sweep(io, directory)


def sweep_unplaced(io: Io, directory: str) -> None:
    """Give up new segments that are not in the log yet, if the log is whole. Raises OSError."""
    _sweep(io, directory)


def _sweep(io: Io, directory: str, keep: Iterable[str] = ()) -> None:
    """Unlink `.cleaned` and `.swap` files: the `.log.swap` first, as a `.log.cleaned` says not to finish them."""
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
            if suffix != TXN_INDEX_SUFFIX:  # there is none if no transaction was aborted
                raise


def settle(io: Io, directory: str) -> bool:
    """Finish or undo a replacement that a crash has interrupted; whether there was one. Raises OSError."""
    files = [found for name in io.listdir(directory) if (found := _SEGMENT_FILE.fullmatch(name))]
    if not any(found[3] for found in files):
        return False
    cleaned = [int(found[1]) for found in files if (found[2], found[3]) == ("log", CLEANED_SUFFIX)]
    swaps = sorted(int(found[1]) for found in files if (found[2], found[3]) == ("log", SWAP_SUFFIX))
    # The last one was renamed first: those before the first `.cleaned` belong to a complete replacement.
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
    """Give the files of a `.swap` segment their names. Missing indexes are rebuilt."""
    base = Segment(segment.directory, segment.base_offset)
    for suffix in INDEX_SUFFIXES:
        with contextlib.suppress(FileNotFoundError):
            io.unlink(base.path(suffix))  # its positions do not match the new log
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
