"""What the measurements of record batches share: the records, the options, and the table of figures."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from barnabas.wire.batch import Record
from barnabas.wire.table import table

#: About the bytes of one reading on the wire.
READING_BYTES = 180


def readings(first: int, count: int) -> list[Record]:
    """Readings of 1,000 sensors as JSON values, numbered from `first` on, one a millisecond."""
    return [
        Record(
            b"%08d" % (n % 1000),
            b'{"device":"sensor-%06d","seq":%d,"temp":%.3f,"note":"%s"}'
            % (n % 1000, n, n % 400 / 10, b"x" * (100 - len(str(n)))),
            1_700_000_000_000 + n,
        )
        for n in range(first, first + count)
    ]


def options(description: str | None, records: int, rounds: int) -> argparse.ArgumentParser:
    """A command line with `--records`, `--rounds` and `--json`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=records)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file, too")
    return parser


def show(figures: Sequence[dict[str, object]], file: str | None) -> None:
    """Print a table of figures, and write them to a file as JSON if one is named."""
    rows = [[f"{value:.2f}" if isinstance(value, float) else value for value in each.values()] for each in figures]
    print(table(list(figures[0]), rows))
    if file:
        Path(file).write_text(json.dumps(figures, indent=1))
