"""`barnabas log dump`: print the batches and records of segment files, and check their CRCs and offsets."""

from __future__ import annotations

import argparse
import mmap
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

from barnabas.client.errors import ClientError
from barnabas.wire.batch import HEADER_SIZE, BatchHeader, Record, check, iter_records
from barnabas.wire.compression import CompressionType
from barnabas.wire.errors import KafkaError
from barnabas.wire.text import visible

SHOWN_BYTES = 200
_SEGMENT = re.compile(r"\d{20}\.log(\.|$)")
_NAMES = "20 digits and .log"


def run(args: argparse.Namespace) -> int:
    """Dump every named segment, and those of every named folder. Returns 1 if one is damaged."""
    damaged = 0
    for path in _segments(args.path):
        damaged += not dump(path, records=not args.batches_only)
    return 1 if damaged else 0


def _is_segment(name: str) -> bool:
    """Whether a file name is that of a log segment, or of one that was set aside (`.log.deleted`, `.log.damaged-1`)."""
    return _SEGMENT.match(name) is not None


def _segments(paths: list[str]) -> list[Path]:
    found: list[Path] = []
    for text in paths:
        path = Path(text)
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*.log") if _is_segment(file.name))
            if not inside:
                raise ClientError(f"{path}: no segment ({_NAMES}) in this folder")
            found += inside
        elif path.is_file():
            if not _is_segment(path.name):
                raise ClientError(f"{path}: no log segment, by its name: they are called {_NAMES}")
            found.append(path)
        else:
            raise ClientError(f"{path}: no such file or folder")
    return found


def dump(path: Path, *, records: bool) -> bool:
    """Print a segment, and return whether it is sound. Errors are printed with their positions."""
    print(f"Segment: {visible(str(path))}  Size: {path.stat().st_size}")
    if path.stat().st_size == 0:
        return True
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        memoryview(data) as view,
    ):
        position, following = 0, int(path.name[:20])
        try:
            while position < len(view):
                with view[position:] as rest:
                    if not any(rest[:HEADER_SIZE]) and not bytes(rest).strip(b"\0"):
                        print(f"room for more  position {position}  bytes {len(rest)}")
                        break
                    header = check(rest)
                    if header.base_offset < following:
                        raise ClientError(f"offset {header.base_offset} where at least {following} is due")
                    print(_batch(position, header))
                    if records and header.records_count:
                        with rest[: header.size_in_bytes] as whole:
                            for record in iter_records(whole):
                                print(_record(record))
                following = header.last_offset + 1
                position += header.size_in_bytes
        except (KafkaError, ClientError) as error:
            sys.stdout.flush()
            print(visible(f"{path}: damaged at position {position}: {error}"), file=sys.stderr)
            return False
    return True


def _time(milliseconds: int) -> str:
    if milliseconds < 0:
        return "-"
    try:
        return (
            datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)


def _batch(position: int, header: BatchHeader) -> str:
    marks = [
        CompressionType(header.compression).name.lower()
        if header.compression in set(CompressionType)
        else f"codec {header.compression}"
    ]
    if header.is_transactional:
        marks.append("transactional")
    if header.is_control:
        marks.append("control")
    producer = f"  producer {header.producer_id}/{header.producer_epoch} sequence {header.base_sequence}"
    return (
        f"batch {header.base_offset}..{header.last_offset}  position {position}  bytes {header.size_in_bytes}"
        f"  records {header.records_count}  epoch {header.partition_leader_epoch}  {' '.join(marks)}"
        f"  max time {_time(header.max_timestamp)}{producer if header.producer_id >= 0 else ''}  crc ok"
    )


def _shown(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = data[:SHOWN_BYTES].decode("utf-8", "surrogateescape").replace("\\", "\\\\").replace("'", "\\'")
    return f"'{visible(text)}'" + (f" ... {len(data)} bytes" if len(data) > SHOWN_BYTES else "")


def _record(record: Record) -> str:
    headers = "".join(f" {visible(name)}={_shown(value)}" for name, value in record.headers)
    return (
        f"  {record.offset}  {_time(record.timestamp)}  key {_shown(record.key)}  value {_shown(record.value)}"
        f"{'  headers' + headers if headers else ''}"
    )
