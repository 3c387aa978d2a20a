"""Splits a text into records, each with the number of its first line. Memory is bounded by a piece's size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from barnabas.streams.wal import WalError

PIECE_BYTES = 4 << 20
#: A longer record is an error: most likely a quote is not closed.
MAX_RECORD_BYTES = 8 << 20
_BOM = b"\xef\xbb\xbf"


class Piece(NamedTuple):
    """Some records of the text, in order."""

    lines: list[int]
    records: list[bytes]
    #: Where the next piece begins: bytes and lines from the beginning of the text.
    end: int
    end_line: int


def pieces(file: BinaryIO, *, quoted: bool, at: int = 0, line: int = 1) -> Iterator[Piece]:
    """The text from a position on, without blank lines. With `quoted`, a record continues while a CSV quote is open.

    An incomplete last line of a piece moves to the next one, so a growing text is read up to its complete lines. Raises
    WalError for a record longer than MAX_RECORD_BYTES.
    """
    rest = b""
    first = at == 0
    while True:
        data = file.read1(PIECE_BYTES) if hasattr(file, "read1") else file.read(PIECE_BYTES)
        ended = not data
        if first:
            first = False
            data, skipped = data.removeprefix(_BOM), len(_BOM) if data.startswith(_BOM) else 0
            at += skipped
        rest += data
        taken = _piece(rest, at, line, quoted=quoted, ended=ended)
        used = taken.end - at
        if not used and len(rest) > MAX_RECORD_BYTES:
            what = "a quote that is not closed, or a longer record" if quoted else "a longer line"
            raise WalError(f"line {line}: {what} than {MAX_RECORD_BYTES >> 20} MiB")
        rest, at, line = rest[used:], taken.end, taken.end_line
        if taken.records or used:
            yield taken
        if ended:
            return


def _piece(data: bytes, at: int, line: int, *, quoted: bool, ended: bool) -> Piece:
    """The complete records of `data`, which begins at a given position."""
    end = len(data) if ended else data.rfind(b"\n") + 1
    raw = data[:end].split(b"\n")
    if raw and not raw[-1]:
        raw.pop()
    if not quoted or b'"' not in data:
        numbers = [line + number for number, record in enumerate(raw) if record.strip()]
        records = [record.removesuffix(b"\r") for record in raw if record.strip()]
        return Piece(numbers, records, at + end, line + len(raw))
    return _quoted(raw, at, end, line, ended=ended)


def _quoted(raw: list[bytes], at: int, end: int, line: int, *, ended: bool) -> Piece:
    numbers: list[int] = []
    records: list[bytes] = []
    open_: list[bytes] = []
    begun = line
    for number, text in enumerate(raw):
        if not open_:
            begun = line + number
        if text.count(b'"') % 2:
            open_.append(text)
            if len(open_) == 1:
                continue
            text, open_ = b"\n".join(open_), []
        elif open_:
            open_.append(text)
            continue
        if text.strip():
            numbers.append(begun)
            records.append(text.removesuffix(b"\r"))
    if open_ and ended:  # the parser will say what is wrong
        numbers.append(begun)
        records.append(b"\n".join(open_))
    elif open_:
        end -= sum(len(text) + 1 for text in open_)
        return Piece(numbers, records, at + end, begun)
    return Piece(numbers, records, at + end, line + len(raw))
