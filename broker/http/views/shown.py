"""A record in the form that the page shows: long values are cut, and binary data is shown in hexadecimal."""

from __future__ import annotations

import codecs
import re
from typing import Any

from barnabas.wire.batch import Record

#: The most bytes of a key, a value and a header's value in a list of records, and the most headers.
MOST_KEY, MOST_VALUE, MOST_HEADER, MOST_HEADERS = 512, 2048, 128, 10
#: The most bytes of each for a single record. Longer values can only be downloaded.
MOST_WHOLE, MOST_WHOLE_HEADER, MOST_WHOLE_HEADERS = 256 << 10, 1024, 500
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")


def shown(partition: int, record: Record, *, whole: bool = False) -> dict[str, Any]:
    """A record as JSON."""
    headers = record.headers if whole else record.headers[:MOST_HEADERS]
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": data(record.key, MOST_WHOLE if whole else MOST_KEY),
        "value": data(record.value, MOST_WHOLE if whole else MOST_VALUE),
        "headers": [
            [name[:MOST_HEADER], data(value, MOST_WHOLE_HEADER if whole else MOST_HEADER)]
            for name, value in headers[:MOST_WHOLE_HEADERS]
        ],
        "header_count": len(record.headers),
    }


def data(value: bytes | None, most: int) -> dict[str, Any] | None:
    """Bytes as text if they are printable UTF-8, otherwise in hexadecimal; `cut` if not all of them are shown."""
    if value is None:
        return None
    first, size = value[:most], len(value)
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(first, final=size <= most)
    except UnicodeDecodeError:
        text = None
    if text is None or _CONTROLS.search(text):
        first = first[: most // 2]
        return {"hex": first.hex(), "size": size, "cut": size > len(first)}
    return {"text": text, "size": size, "cut": size > len(first)}
